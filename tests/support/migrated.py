"""A migrated SQLite file, made once a process: to write it takes a hundredth of what it takes to migrate one."""

from __future__ import annotations

import stat
import tempfile
from functools import cache
from pathlib import Path

from claudeops.store.migrate import migrate
from support.stores import MIGRATIONS


def write_migrated(file: Path) -> None:
    """Make a file as `migrate` leaves one."""
    content, mode = _made()
    file.write_bytes(content)
    file.chmod(mode)


@cache
def _made() -> tuple[bytes, int]:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "template.db"
        migrate(f"sqlite:///{file}", migrations_dir=MIGRATIONS, backup_dir=Path(directory))
        assert not file.with_name("template.db-wal").exists(), "a part of it is in another file"
        return file.read_bytes(), stat.S_IMODE(file.stat().st_mode)
