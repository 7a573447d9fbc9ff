"""An operator with a database on PostgreSQL and several machines: each is a daemon with directories of its own.

The machines share one kernel here, and so their processes see each other: a dead one is known at once. A test that
needs its lease judged gives a daemon a boot id of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from claudeops.engine.gate.approval_key import ensure_key
from claudeops.store.connection.engines import parse_url
from support.operating import Daemon, Operator, operator
from support.stores import Database


@dataclass
class FleetOperator(Operator):
    """What the operator of several machines has; `run` and `rows` look at the database that they share."""

    url: str = ""

    def environment(self, **changes: str) -> dict[str, str]:
        shared = {"CLAUDEOPS_DATABASE_URL": self.url, "CLAUDEOPS_DISPATCHER": "procrastinate"}
        return super().environment(**shared | changes)

    def directory(self, name: str) -> Path:
        """Return the directory of a machine, with those that it needs and the fleet's approval key."""
        directory = self.root / name
        if not directory.exists():
            (directory / "state").mkdir(parents=True, mode=0o700)
            (directory / "results").mkdir()
            (directory / "state" / "approval.key").touch(0o600)
            (directory / "state" / "approval.key").write_bytes(ensure_key(self.root / "state"))
        return directory

    def places(self, name: str) -> dict[str, str]:
        """Return what a machine is given besides what all have."""
        directory = self.directory(name)
        return {
            "CLAUDEOPS_NODE": name,
            "CLAUDEOPS_STATE_DIR": str(directory / "state"),
            "CLAUDEOPS_RESULTS_DIR": str(directory / "results"),
        }

    def node(self, name: str, **environment: str) -> AbstractAsyncContextManager[Daemon]:
        """Run the daemon of a machine until the block is left."""
        return self.daemon(**self.places(name) | environment)

    @contextmanager
    def connect(self) -> Iterator[sa.Connection]:
        engine = sa.create_engine(parse_url(self.url), poolclass=sa.NullPool)
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()


@asynccontextmanager
async def fleet(root: Path, database: Database, **tiers: list[dict[str, object]]) -> AsyncIterator[FleetOperator]:
    """Give an operator a small estate and a model as `operator` does, on a database that machines share."""
    async with operator(root, **tiers) as alone:
        yield FleetOperator(root, alone.api, url=database.url)
