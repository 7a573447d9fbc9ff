"""The release after this one: the same program with one more migration, in a directory of its own."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from claudeops.store.connection.engines import parse_url
from claudeops.store.migrate import run
from claudeops.store.tables import HEAD

CHECKOUT: Final = Path(__file__).parents[2]
NEXT: Final = f"{int(HEAD) + 1:04}"

_MIGRATION: Final = f"""
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{HEAD}"


def upgrade() -> None:
    op.add_column("events", sa.Column("colour", sa.Text()))
"""


@dataclass(frozen=True)
class NewerRelease:
    """Where it is; what is started with its `environment` is of it."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.root / "src")}


def newer_migrations(root: Path) -> Path:
    """Make the migrations of the next release below a directory, and return where they are."""
    migrations = root / "migrations"
    shutil.copytree(CHECKOUT / "migrations", migrations, ignore=shutil.ignore_patterns("__pycache__"))
    (migrations / "versions" / f"{NEXT}_next.py").write_text(_MIGRATION)
    return migrations


def migrate_to_next(url: str, root: Path) -> None:
    """Migrate a database as the next release does."""
    from alembic import command  # noqa: PLC0415 - most tests of daemons migrate nothing

    run(parse_url(url), newer_migrations(root), lambda config: command.upgrade(config, "head"))


def newer_release(root: Path) -> NewerRelease:
    """Install the next release below a directory."""
    newer_migrations(root)
    for name in ("src", "prompts", "schemas"):
        shutil.copytree(CHECKOUT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "pyproject.toml", root)
    head = root / "src" / "claudeops" / "store" / "tables" / "__init__.py"
    head.write_text(head.read_text().replace(f'"{HEAD}"', f'"{NEXT}"'))
    return NewerRelease(root)
