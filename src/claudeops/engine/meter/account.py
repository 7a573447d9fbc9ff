"""A session's account with the meter: its token, its model calls and their booking; and the ledger of ends still owed.

A call is over when it is over, whatever the database does. Its row goes on to count with the most that it can cost
until its end is written. So the request for the next call carries the ends that are owed, and both are written in one
transaction, the ends first: no call waits for money that an ended call of the same session no longer holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
import msgspec

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.holds import ApiAnswer, refusal
from claudeops.domain.sessions import Session
from claudeops.domain.spending import prices
from claudeops.domain.spending.budget import BudgetDenied, CallWaits
from claudeops.domain.spending.prices import Price
from claudeops.domain.spending.tokens import CallState, TokenUsage
from claudeops.engine.meter.availability import Availability
from claudeops.engine.ports import UNCOUNTED, Counting
from claudeops.errors import DatabaseUnavailableError, StoreError
from claudeops.formats.model_request import display
from claudeops.logs import LogEvent, Logger
from claudeops.store.spend import ModelCalls
from claudeops.structs import replace
from claudeops.tasks import DatabaseTrouble
from claudeops.text.redact import Redactor

_LOOK_AGAIN_SECONDS: Final = 1.0
"""Pause before a waiting call asks again; the ends of another node's calls are not announced here."""

CLOSE_SECONDS: Final = 10.0
_ERROR_STATUS: Final = 400

BOOK_SECONDS: Final = 5.0
"""How long writing a state may take; the last state of a call is owed if it is not written by then."""

RETRY_FIRST_SECONDS: Final = 0.5
RETRY_LONGEST_SECONDS: Final = 10.0


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A model call that wants to start."""

    model: str
    prompt_tokens: int  # at most
    output_tokens: int  # at most
    searches: int = 0

    @property
    def price(self) -> Price | None:
        """The model's price; ``None`` if it is not known."""
        return prices.price_of(self.model)

    @property
    def worst_usd(self) -> float:
        """The most that the call can cost; a model without a price counts as the dearest one."""
        price = self.price or prices.DEAREST
        return price.worst(prompt_tokens=self.prompt_tokens, output_tokens=self.output_tokens, searches=self.searches)

    def cost(self, usage: TokenUsage) -> float | None:
        """Return what the call cost; ``None`` for a model without a price."""
        return None if self.price is None else self.price.cost(usage)

    def charge(self, usage: TokenUsage) -> float:
        """Return what budgets count for the call."""
        cost = self.cost(usage)
        return prices.DEAREST.charge(usage) if cost is None else cost


class CallWaker:
    """Wakes the calls that wait for another call to end."""

    def __init__(self) -> None:
        self._ended = anyio.Event()

    def notify(self) -> None:
        """Wake the waiting calls: a call has ended."""
        ended, self._ended = self._ended, anyio.Event()
        ended.set()

    async def next(self) -> None:
        """Return when a call has ended, or after a second."""
        with anyio.move_on_after(_LOOK_AGAIN_SECONDS):
            await self._ended.wait()


@dataclass(kw_only=True)
class MeterAccount:
    """A session's account with the meter, from before its spawn until its process has gone."""

    session: Session
    token: str = field(repr=False)
    spending: ModelCalls
    ledger: Ledger
    rules: EscalationRules
    clock: Clock
    log: Logger
    over_budget: Callable[[], None]  # called when a call was denied by a budget
    ended: CallWaker
    redactor: Redactor  # the daemon's, plus the token
    counts: Counting = UNCOUNTED
    availability: Availability | None = None  # hears that the API refuses us, or serves us again
    searches: bool = False  # may its requests have the API search the web?
    refusal: str | None = None  # the sentence with which a budget denied a call
    closed: bool = False
    _warned_models: set[str] = field(default_factory=set)  # without a price
    _calls: set[anyio.CancelScope] = field(default_factory=set)
    _made: set[int] = field(default_factory=set)  # ids of its calls that are over

    @property
    def unbooked(self) -> tuple[CallState, ...]:
        """Return the ends of its calls that the database has not taken yet."""
        return self.ledger.owed_of(self._made)

    def unserved(self, model: str) -> str | None:
        """Return why this session may not use a model, or ``None``: it may use its tier's model and no other.

        An alias leaves the choice to the CLI, so it stands only for models that have a price. An operator who names a
        model without a price has chosen it.
        """
        configured = self.session.model
        if not prices.is_model_of(model, configured):
            return f"model {display(model)} is not the one of this session"
        if prices.is_alias(configured) and prices.price_of(model) is None:
            setting = f"CLAUDEOPS_TIER{self.session.tier}_MODEL"
            return f"model {display(model)} has no price here: name it in {setting} to use it all the same"
        return None

    @contextmanager
    def call(self) -> Iterator[anyio.CancelScope]:
        """Count a call as open for the length of the block; it is cancelled when the account is closed."""
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                if self.closed:
                    scope.cancel()
                yield scope
            finally:
                self._calls.discard(scope)
                self.ended.notify()

    async def begin(self, asked: CallRequest) -> int | BudgetDenied:
        """Record a call, as soon as the budgets allow it; return the id of its row, or the refusal.

        Raises `DatabaseUnavailableError` if it cannot be recorded, `StaleAttemptError` if the session is no longer the
        current one.
        """
        while True:
            # Shielded: a caller that is cancelled meanwhile must still learn of its row, to end it. The store bounds
            # the wait.
            with anyio.CancelScope(shield=True):
                owed = self.ledger.owed
                answer = await self.spending.begin_model_call(
                    self.session,
                    model=asked.model,
                    worst_usd=asked.worst_usd,
                    rules=self.rules,
                    now=self.clock.now(),
                    owed=owed,
                )
                self.ledger.settled(owed)
            if isinstance(answer, CallWaits):
                await self.ended.next()
                continue
            if isinstance(answer, BudgetDenied):
                self.log.warning(LogEvent.MODEL_CALL_REFUSED, scope=answer.scope.value, reason=answer.message)
                self.refusal = answer.message
                self.over_budget()
                return answer
            self._warn_of_price(asked)
            return answer.id

    def log_refusal(self, reason: str) -> None:
        """Log that a request was not passed on."""
        self.log.warning(LogEvent.MODEL_REQUEST_REFUSED, reason=reason)

    def handle(self, answer: ApiAnswer) -> None:
        """Report what an answer means for all sessions. Raises nothing, waits for nothing."""
        if self.availability is None:
            return
        refused = refusal(answer, session_id=self.session.id, now=self.clock.now())
        if refused is not None:
            message = self.redactor.text(refused.message)
            self.availability.report_refusal(replace(refused, message=message, attempt=self.session.attempt))
        elif answer.status < _ERROR_STATUS and answer.error is None:
            self.availability.report_success(self.session)

    async def note(self, state: CallState) -> None:
        """Write the state of an open call; if that fails, its end will be written all the same."""
        await self.ledger.note(state)

    async def end(self, state: CallState, *, model: str) -> None:
        """Write how a call ended, even if the caller is cancelled; bounded. An end that is not written is owed."""
        self._made.add(state.id)
        self.counts.model_call_over(self.session, model, state)
        await self.ledger.end(replace(state, ended_at=self.clock.now()))
        self.log.info(
            LogEvent.MODEL_CALL_ENDED,
            call=state.id,
            http_status=state.http_status,
            cost_usd=state.cost_usd,
            error=state.error,
        )

    async def close(self) -> None:
        """End the open calls and wait until they are booked; no call is served afterwards. Bounded."""
        self.closed = True
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            for scope in self._calls:
                scope.cancel()
            while self._calls:
                await self.ended.next()

    def _warn_of_price(self, asked: CallRequest) -> None:
        if asked.price is None and asked.model not in self._warned_models:
            self._warned_models.add(asked.model)
            self.log.warning(LogEvent.MODEL_WITHOUT_PRICE, model=asked.model, prices_as_of=prices.AS_OF.isoformat())


class Ledger:
    """Books the states of one meter's calls, and keeps the ends that it still owes the database."""

    def __init__(self, spending: ModelCalls, log: Logger) -> None:
        self._spending = spending
        self._trouble = DatabaseTrouble(log, "book")
        self._owed: dict[int, CallState] = {}
        self._grown = anyio.Event()

    @property
    def owed(self) -> tuple[CallState, ...]:
        """The ends that are not written yet."""
        return tuple(self._owed.values())

    def owed_of(self, calls: Collection[int]) -> tuple[CallState, ...]:
        """Return the ends of some calls that are not written yet."""
        return tuple(state for call, state in self._owed.items() if call in calls)

    async def note(self, state: CallState) -> None:
        """Write the state of an open call; if that fails, its end will be written all the same."""
        await self._book(state)

    async def end(self, state: CallState) -> None:
        """Write how a call ended, even if the caller is cancelled; bounded. An end that is not written is owed."""
        with anyio.CancelScope(shield=True):
            if not await self._book(state):
                self._owed[state.id] = state
                self._grown.set()

    def settled(self, states: Collection[CallState]) -> None:
        """Note that these ends were written together with another call."""
        for state in states:
            self._owed.pop(state.id, None)

    async def run(self) -> None:
        """Write owed ends as soon as the database takes them, until cancelled."""
        while True:
            await self._grown.wait()
            self._grown = anyio.Event()
            delay = RETRY_FIRST_SECONDS
            while self._owed:
                await anyio.sleep(delay)
                delay = min(delay * 2, RETRY_LONGEST_SECONDS)
                await self._write_owed()

    async def _write_owed(self) -> None:
        for state in self.owed:
            if not await self._book(state):
                return
            self.settled((state,))

    async def _book(self, state: CallState) -> bool:
        try:
            with anyio.fail_after(BOOK_SECONDS):
                await self._spending.book_model_call(state)
        except (StoreError, TimeoutError) as error:
            away = error if isinstance(error, DatabaseUnavailableError) else DatabaseUnavailableError(str(error))
            self._trouble.failed(away)
            return False
        self._trouble.over()
        return True
