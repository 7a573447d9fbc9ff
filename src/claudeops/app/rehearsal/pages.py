"""The pages of rehearsals: one address and one login for all of them, whichever plays, and after the last one.

Every rehearsal has a daemon and a database of its own; the pages are of the one that was shown last. Part of the
composition root.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskGroup, TaskStatus

from claudeops.app.log_lines import SessionLogs
from claudeops.app.node import Node
from claudeops.app.pages import site_of
from claudeops.app.web import FileSources
from claudeops.clock import Clock
from claudeops.domain.access.logins import LONGEST, Login, LoginLink, NewLogin, Role
from claudeops.domain.access.tokens import SECRET_BYTES, digest_of
from claudeops.domain.access.users import User
from claudeops.engine.live.hub import Hub
from claudeops.http_server import ConnectionLimits, ConnectionPool, listen
from claudeops.logs import Logger
from claudeops.settings import Settings
from claudeops.store.reading.calls import verdicts
from claudeops.store.store import Store, open_store
from claudeops.structs import replace
from claudeops.tasks import open_tasks
from claudeops.web.api.description import description_endpoints
from claudeops.web.api.table import api_endpoints
from claudeops.web.authentication import Authenticator
from claudeops.web.endpoints import EndpointTable
from claudeops.web.listener import AllowedHosts, Listener
from claudeops.web.pages.table import page_endpoints
from claudeops.web.streams import Streams, stream_endpoints

LINK: Final = timedelta(hours=12)
"""For which the link may be used: it stands on the terminal of whoever has started the rehearsals, and nowhere else."""

_HOST: Final = "127.0.0.1"


@dataclass(kw_only=True)
class LoginsInMemory:
    """`claudeops.web.ports.Logins` in memory: they are over when the rehearsals are."""

    link: LoginLink | None = None  # None: it was used
    changes: int = 0
    _begun: dict[str, Login] = field(default_factory=dict)

    async def active(self, now: datetime) -> Mapping[str, Login]:
        """Return the logins that open something now, by the digest of their cookie."""
        return {digest: login for digest, login in self._begun.items() if login.is_active(now)}

    async def used(self, last: Mapping[int, datetime]) -> None:
        """Note when logins were last used, by id."""
        for digest, login in self._begun.items():
            self._begun[digest] = replace(login, last_used_at=last.get(login.id, login.last_used_at))

    async def use_link(self, digest: str, new: NewLogin) -> Login | None:
        """Begin the login that the link is for; None: it is another, was used, or is over."""
        if self.link is None or self.link.digest != digest or self.link.expires_at <= new.at:
            return None
        link, self.link = self.link, None
        self.changes += 1
        begun = Login(
            id=len(self._begun) + 1,
            name=link.name,
            role=link.role,
            digest=new.digest,
            created_at=new.at,
            expires_at=new.at + LONGEST,
            last_used_at=new.at,
        )
        self._begun[new.digest] = begun
        return begun

    async def log_in(self, user: User, new: NewLogin) -> Login | None:  # noqa: ARG002 - the port's
        """Return None: rehearsals have no users."""
        return None

    async def log_in_by(self, provider: str, user: User, new: NewLogin) -> Login | None:  # noqa: ARG002 - the port's
        """Return None: rehearsals have no users."""
        return None

    async def end(self, login_id: int, *, now: datetime) -> None:
        """Let a login open nothing from now on."""
        self.changes += 1
        for digest, login in self._begun.items():
            if login.id == login_id:
                self._begun[digest] = replace(login, ended_at=now)


@dataclass(kw_only=True)
class RehearsalPages:
    """Serves the pages of the rehearsal that was shown last."""

    settings: Settings
    log: Logger
    say: Callable[[str], None]  # writes the line with the link, once
    hub: Hub = field(default_factory=Hub)  # for all rehearsals
    _logins: LoginsInMemory = field(default_factory=LoginsInMemory)
    _clock: Clock = field(default_factory=Clock)
    _tasks: TaskGroup
    _listener: Listener | None = None  # None: nothing was shown yet
    _shown: tuple[Store, Streams] | None = None

    async def show(self, node: Node) -> None:
        """Show a rehearsal from now on; what was shown before is not any more."""
        await self._leave()
        settings = node.settings
        store = open_store(settings.places.database_url)
        logs = SessionLogs(
            records=store.records,
            verdicts=lambda session_id: store.database.read(partial(verdicts, session_id=session_id)),
        )
        site = site_of(
            settings,
            database=store.database,
            logins=self._logins,
            logs=logs,
            clock=self._clock,
            next_fires=dict,
        )
        streams = Streams(live=self.hub, logs=logs, render=site.pages.lines)
        self._shown = (store, streams)
        rows = (*page_endpoints(site), *stream_endpoints(streams), *api_endpoints(site))
        table = EndpointTable((*rows, *description_endpoints(site, rows)))
        if self._listener is not None:
            self._listener.table = table
            return
        self._listener = Listener(
            table=table,
            authenticator=Authenticator(
                tokens=store.tokens, sources=FileSources(), logins=self._logins, clock=self._clock, log=self.log
            ),
            hosts=AllowedHosts.of(()),
            clock=self._clock,
            log=self.log,
            crowd=ConnectionPool(ConnectionLimits()),
            refused_page=site.pages.refused,
        )
        url = await self._tasks.start(self._serve, self._listener)
        self.say(self._link(url))

    async def close(self) -> None:
        """Serve nothing any more."""
        await self._leave()
        self._tasks.cancel_scope.cancel()

    async def _leave(self) -> None:
        if self._shown is not None:
            store, streams = self._shown
            self._shown = None
            streams.closing.set()
            streams.close()
            await store.close()

    async def _serve(self, listener: Listener, *, task_status: TaskStatus[str]) -> None:
        closing = anyio.Event()
        async with listen(
            listener, host=_HOST, port=_free_port(self.settings), closing=closing, crowd=listener.crowd, outside=True
        ) as url:
            task_status.started(url)
            await anyio.sleep_forever()

    def _link(self, url: str) -> str:
        secret, at = secrets.token_urlsafe(SECRET_BYTES), self._clock.now()
        self._logins.link = LoginLink(
            name="you", role=Role.ADMIN, digest=digest_of(secret), created_at=at, expires_at=at + LINK
        )
        port = urlsplit(url).port
        return f"http://localhost:{port}/setup/{secret}"


@asynccontextmanager
async def rehearsal_pages(settings: Settings, log: Logger, say: Callable[[str], None]) -> AsyncIterator[RehearsalPages]:
    """Serve the pages of rehearsals for the length of the block; ``say`` is given the link that logs a browser in."""
    async with open_tasks() as tasks:
        pages = RehearsalPages(settings=settings, log=log, say=say, _tasks=tasks)
        try:
            yield pages
        finally:
            await pages.close()


def _free_port(settings: Settings) -> int:
    """Return the operator's port where it is free: the address stays the same from run to run. Else 0: any."""
    try:
        with socket.create_server((_HOST, settings.listener.port)):
            return settings.listener.port
    except OSError:  # a daemon listens there
        return 0
