"""Pages between a test and a real database: called within the process, with a login in each role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread

from claudeops.app.log_lines import SessionLogs
from claudeops.domain.access.logins import COOKIE, LoginLink, NewLogin, Role
from claudeops.domain.access.tokens import digest_of
from claudeops.domain.access.users import NewUser, User
from claudeops.domain.sessions import NewSession, Trigger
from claudeops.store.glance import Glance, glance
from claudeops.store.reading.calls import verdicts
from claudeops.store.store import Store, open_store
from claudeops.structs import replace
from claudeops.web.acting import act_endpoints
from claudeops.web.acts import Acting
from claudeops.web.api.description import description_endpoints
from claudeops.web.api.table import api_endpoints
from claudeops.web.authentication import Authenticator
from claudeops.web.connection import ConnectionRules
from claudeops.web.endpoints import EndpointTable
from claudeops.web.pages.rendering import Pages
from claudeops.web.pages.site import ShownFire, Site
from claudeops.web.pages.table import page_endpoints
from claudeops.web.passkeys import Passkeys
from claudeops.web.password_login import PasswordLogin
from claudeops.web.passwords import Passwords
from claudeops.web.streams import Streams, stream_endpoints
from claudeops.web.table import Rooms, table_of
from support.listening import NOON, Answered, Door, TestClock, figures
from support.migrated import write_migrated
from support.store_values import RULES

KEY: Final = b"k" * 32
"""By which answers to approvals are proven."""

BROWSER: Mapping[str, str] = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate", "accept": "text/html"}


PROXY_SECRET = "the-secret-of-the-proxy"


def is_same(hashed: str, password: str) -> bool:
    """Return whether a password is right, without the hundred milliseconds and 64 MiB of a real hash."""
    return hashed == f"hash of {password}"


def secret_for(name: str) -> str:
    """Return the secret in a cookie, or a link."""
    return f"{name:x<43}"


@dataclass
class SiteDoor:
    """A listener with pages, over a database."""

    door: Door
    store: Store
    site: Site
    streams: Streams

    async def link(self, name: str, role: Role = Role.VIEWER) -> str:
        """Make the link ``link-<name>``; return the digest of its secret."""
        at, digest = self.door.clock.now(), digest_of(secret_for(f"link-{name}"))
        link = LoginLink(name=name, role=role, digest=digest, created_at=at, expires_at=at + timedelta(seconds=60))
        await self.store.logins.make_link(link)
        return digest

    async def login(self, role: Role = Role.VIEWER, *, name: str = "ada") -> dict[str, str]:
        """Log somebody in; return the header with the cookie."""
        digest = await self.link(name, role)
        new = NewLogin(digest=digest_of(secret_for(name)), at=self.door.clock.now())
        assert await self.store.logins.use_link(digest, new) is not None
        return {"cookie": f"{COOKIE}={secret_for(name)}"}

    async def user(self, name: str, role: Role = Role.OPERATOR, *, password: str | None = None) -> User:
        """Add a user."""
        hashed = None if password is None else f"hash of {password}"
        at = self.door.clock.now()
        new = NewUser(name=name, role=role, password_hash=hashed, created_at=at, created_by="ada")
        user = await self.store.users.add(new)
        assert user is not None
        return user

    async def get(self, path: str, cookie: Mapping[str, str], *, peer: str = "127.0.0.1", **headers: str) -> Answered:
        """Answer a browser."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.door.ask("GET", path, headers={**BROWSER, **cookie, **named}, peer=peer)

    async def post(
        self, path: str, cookie: Mapping[str, str], body: bytes = b"", *, peer: str = "127.0.0.1", **headers: str
    ) -> Answered:
        """Answer a form."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.door.ask("POST", path, body, headers={**BROWSER, **cookie, **named}, peer=peer)


@asynccontextmanager
async def site_door(
    directory: Path, *, key: bytes | None = KEY, clock: TestClock | None = None
) -> AsyncIterator[SiteDoor]:
    """Open a listener with pages and API over an empty database."""
    file = directory / "claudeops.db"
    write_migrated(file)
    url, door = f"sqlite:///{file}", Door(clock=clock or TestClock())
    store = open_store(url)
    try:

        async def seen() -> Glance:
            at = door.clock.now()
            return await anyio.to_thread.run_sync(partial(glance, url, now=at, midnight=at.replace(hour=0)))

        site = Site(
            pages=Pages(version="0.0"),
            database=store.database,
            logins=store.logins,
            logs=SessionLogs(
                records=store.records,
                verdicts=lambda number: store.database.read(partial(verdicts, session_id=number)),
            ),
            clock=door.clock,
            glance=seen,
            next_fires=lambda: [ShownFire(name="default", at=NOON + timedelta(hours=1))],
            timezone="UTC",
            day_budget_usd=25.0,
            chain_budget_usd=15.0,
            rules=RULES,
            interval_seconds=3600,
            tls_hosts=frozenset({"ops.example.com"}),
            acting=Acting(
                store=store,
                key=key,
                rules=lambda: RULES,
                root=lambda tier, prompt: NewSession(
                    tier=tier, trigger=Trigger.MANUAL, model="haiku", prompt_text=prompt
                ),
                highest_tier=2,
                clock=door.clock,
                passkeys=Passkeys(store=store.passkeys, tls_hosts=frozenset({"ops.example.com"})),
            ),
            passwords=PasswordLogin(
                users=store.users, logins=store.logins, clock=door.clock, passwords=Passwords(check=is_same)
            ),
        )
        streams = Streams(live=door.hub, logs=site.logs, render=site.pages.lines)
        rooms = Rooms(
            readiness=lambda: door.checks,
            pings=door.pings,
            sources=door.sources,
            intake=door.intake,
            interactions=door.presses,
            metrics=figures,
            pages=(
                *stream_endpoints(streams),
                *page_endpoints(site),
                *api_endpoints(site),
                *act_endpoints(site),
            ),
            described=partial(description_endpoints, site),
        )
        authenticator = Authenticator(
            tokens=door.tokens,
            logins=store.logins,
            users=store.users,
            sources=door.sources,
            clock=door.clock,
            log=door.authenticator.log,
            slack=door.authenticator.slack,
        )
        door.listener = replace(
            door.listener,
            table=EndpointTable(table_of(rooms)),
            authenticator=authenticator,
            refused_page=site.pages.refused,
            connections=ConnectionRules(proxy_secret=PROXY_SECRET),
        )
        yield SiteDoor(door, store, site, streams)
    finally:
        await store.close()
