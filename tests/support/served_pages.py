"""Pages over a database in which something has happened, served by a process of their own.

``python served_pages.py DIRECTORY`` prints the address, and serves until its standard input ends. With ``provider``
after it people may log in at an identity provider as well, which vouches for ``bea``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from claudeops.domain.access.logins import Role
from claudeops.http_server import listen
from support.hostile import TEXTS
from support.identity_provider import IdentityProvider, listening, login_at
from support.listening import TestClock
from support.lived_in import log_of, something_of_everything, with_log
from support.paged import secret_for, site_door
from support.store_values import NOW
from support.stores import Database

PASSWORD: Final = "correct horse battery"
"""Of the users ``bea``, who may operate, and ``cleo`` and ``dora``, who may approve."""


@dataclass(frozen=True)
class Served:
    """Pages at an address."""

    url: str
    database: Database
    secret: str  # of a login
    link: str  # the path of a link that logs somebody in


@contextmanager
def served_pages(directory: Path, *extras: str) -> Iterator[Served]:
    """Serve pages for the length of the block; ``provider``: with an identity provider."""
    tests = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, __file__, str(directory), *extras],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(tests)},
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield Served(
                url=process.stdout.readline().strip(),
                database=Database(f"sqlite:///{directory / 'claudeops.db'}"),
                secret=secret_for("ada"),
                link=f"/setup/{secret_for('link-eve')}",
            )
        finally:
            process.stdin.close()


class ServedClock(TestClock):
    """A wall clock that stands, so that pages say the same every time; what bounds callers goes on."""

    def monotonic(self) -> float:
        return time.monotonic()


async def _serve(directory: Path, *extras: str) -> None:
    async with site_door(directory, clock=ServedClock()) as site, listening(IdentityProvider()) as provider:
        site.door.clock.at = NOW
        session = await something_of_everything(site.store)
        said = " ".join(TEXTS)
        await with_log(site.store, session, directory / "session-000001.ndjson", log_of(session, says=said))
        await site.login(Role.ADMIN)
        await site.link("eve")
        await site.user("bea", password=PASSWORD)
        for approver in ("cleo", "dora"):
            await site.user(approver, Role.APPROVER, password=PASSWORD)
        async with listen(site.door.listener, host="127.0.0.1", port=0, closing=anyio.Event()) as url:
            if "provider" in extras:
                provider.now = site.door.clock.now
                public = url.replace("127.0.0.1", "localhost")  # another site than the provider's, as a browser sees it
                site.site.provider = login_at(site, provider, public_url=public)
            sys.stdout.write(f"{url}\n")
            sys.stdout.flush()
            await anyio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    anyio.run(_serve, Path(sys.argv[1]), *sys.argv[2:])
