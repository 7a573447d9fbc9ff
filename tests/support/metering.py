"""A meter between a test and the scripted API, with a session that runs in a real SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
import msgspec
from anyio.abc import SocketStream

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules, TierChoice
from claudeops.domain.sessions import Session
from claudeops.domain.spending.budget import Budgets
from claudeops.domain.spending.tokens import CallState
from claudeops.engine.meter.account import MeterAccount
from claudeops.engine.meter.availability import Availability
from claudeops.engine.meter.bodies import MeterLimits
from claudeops.engine.meter.meter import Meter, MeterDeps, serve_meter
from claudeops.engine.meter.upstream import ModelUpstream
from claudeops.errors import DatabaseUnavailableError
from claudeops.logs import get_logger
from claudeops.scripted_api.script import Script
from claudeops.scripted_api.server import MessagesApi, serve
from claudeops.store.spend import ModelCalls
from claudeops.store.store import Store
from claudeops.structs import replace
from claudeops.text.redact import Redactor
from support.loopback_http import Answer, ask
from support.store_values import claimed, queued, rules, wanted
from support.stores import Database, opened
from support.waiting import until

MODEL = "claude-haiku-4-5"
KEY = "sk-ant-api03-the-operators-own-key"
ASKED: Mapping[str, object] = {
    "model": MODEL,
    "max_tokens": 100,
    "messages": [],
    "tools": [{"name": "Bash"}],
    "stream": True,
}


def paid(*, tier: float = 0.5, chain: float = 100, day: float = 100) -> EscalationRules:
    tiers = (TierChoice(number=1, model="haiku", max_budget_usd=tier),)
    return replace(rules(limited=False, tiers=tiers, max_tier=1), budgets=Budgets(chain_usd=chain, day_usd=day))


def script(*steps: Mapping[str, object]) -> Script:
    return Script.from_mapping({"tiers": {"haiku": {"steps": list(steps), "repeat_last": True}}})


@dataclass
class Bench:
    """Everything around one session's calls."""

    database: Database
    store: Store
    slow: Slowness
    away: set[str]  # what the database does not take at the moment: ``begin``, ``book``
    api: MessagesApi
    meter: Meter
    rules: EscalationRules
    stopped: list[int] = field(default_factory=list)  # sessions that were told that their money is spent

    async def session(self, model: str = "haiku") -> Session:
        await queued(self.store, replace(wanted(1), model=model), at=Clock().now())
        session = await claimed(self.store, at=Clock().now(), with_rules=self.rules)
        assert session is not None
        return session

    async def claimable(self) -> AsyncIterator[Session]:
        """Claim sessions as long as there are any that may start."""
        now = Clock().now()
        while (session := await claimed(self.store, at=now, with_rules=self.rules)) is not None:
            yield session

    @asynccontextmanager
    async def account(self, *, model: str = "haiku", searches: bool = False) -> AsyncIterator[MeterAccount]:
        session = await self.session(model)
        availability = Availability(holds=self.store.holds, clock=Clock(), log=get_logger())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(availability.run)
            async with self.meter.account(
                session,
                over_budget=lambda: self.stopped.append(session.id),
                availability=availability,
                searches=searches,
            ) as account:
                yield account
            tasks.cancel_scope.cancel()

    @property
    def calls(self) -> list[dict[str, object]]:
        return self.database.rows("model_calls")

    @property
    def holds(self) -> list[dict[str, object]]:
        return self.database.rows("flags")

    async def ask(self, account: MeterAccount, path: str = "/v1/messages?beta=true", **changes: object) -> Answer:
        return await self.ask_raw(account, msgspec.json.encode({**ASKED, **changes}), path)

    async def ask_raw(
        self, account: MeterAccount, raw: bytes, path: str = "/v1/messages?beta=true", **headers: str
    ) -> Answer:
        """Ask with a body as it is, and with headers whose names have no hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await ask(f"{self.meter.url}{path}", raw=raw, headers={"x-api-key": account.token, **named})

    @asynccontextmanager
    async def meanwhile(
        self, asking: Callable[..., Coroutine[object, object, Answer]], *said: object, **changes: object
    ) -> AsyncIterator[None]:
        """Ask something that is not answered, for the length of the block; it is on record by then, and ended after."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(asking, *said, **changes))
            await until(lambda: len(self.api.requests) == 1)
            yield
            tasks.cancel_scope.cancel()
        await until(lambda: self.calls[-1]["ended_at"] is not None)

    @asynccontextmanager
    async def connected(self, first: bytes = b"") -> AsyncIterator[SocketStream]:
        """Connect to the meter by hand, and send something."""
        async with await anyio.connect_tcp("127.0.0.1", int(self.meter.url.rpartition(":")[2])) as stream:
            if first:
                await stream.send(first)
            yield stream

    @asynccontextmanager
    async def begun(self, account: MeterAccount) -> AsyncIterator[bytes]:
        """Ask, and keep the connection once the answer has begun; gives what came first."""
        body = msgspec.json.encode(ASKED)
        async with self.connected(self.head(account, len(body)) + body) as stream:
            yield await stream.receive()

    @staticmethod
    def head(account: MeterAccount | None, length: int) -> bytes:
        """Return the head of a request with a body of some length, on a connection that is kept."""
        token = "" if account is None else account.token
        return (
            f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\ncontent-length: {length}\r\n\r\n".encode()
        )


@dataclass
class Slowness:
    """Holds back the answer that a call is on record."""

    begins: anyio.Event | None = None  # None: nothing is held back; else until it is set
    recorded: anyio.Event = field(default_factory=anyio.Event)  # set once a row is there


class FailingSpending:
    """A port whose database is away for the calls that are named, or slow."""

    def __init__(self, spending: ModelCalls, away: set[str], slow: Slowness) -> None:
        self._spending = spending
        self.away = away
        self.slow = slow

    async def begin_model_call(self, *args: object, **kwargs: object) -> object:
        self._refuse("begin")
        begun = await self._spending.begin_model_call(*args, **kwargs)  # type: ignore[arg-type]
        self.slow.recorded.set()
        if self.slow.begins is not None:
            await self.slow.begins.wait()
        return begun

    async def book_model_call(self, state: CallState) -> None:
        self._refuse("book")
        await self._spending.book_model_call(state)

    def _refuse(self, name: str) -> None:
        if name in self.away:
            raise DatabaseUnavailableError("the database is away.")


@asynccontextmanager
async def bench(
    database: Database,
    *steps: Mapping[str, object],
    with_rules: EscalationRules | None = None,
    upstream: ModelUpstream | None = None,
    limits: MeterLimits | None = None,
) -> AsyncIterator[Bench]:
    """Open a store, a scripted API and a meter between them; ``upstream`` gets the API's address where it has none."""
    with_rules = with_rules or paid()
    async with opened(database) as store, serve(script(*steps), expected_key=KEY) as api:
        away: set[str] = set()
        slow = Slowness()
        failing: ModelCalls = FailingSpending(store.spending, away, slow)  # type: ignore[assignment]  # passes on what it is given
        books = MeterDeps(
            spending=failing,
            rules=with_rules,
            clock=Clock(),
            log=get_logger(),
            redactor_with=lambda secret: Redactor((KEY, secret)),
        )
        way = upstream or ModelUpstream(secret=KEY)
        way = way if way.base_url else replace(way, base_url=api.url)
        async with serve_meter(way, books, limits) as meter:
            yield Bench(database=database, store=store, away=away, slow=slow, api=api, meter=meter, rules=with_rules)
