"""Empties the outbox: gives notices to their targets, and delivers to each target apart from all others.

A target that hangs, fails or is away delays no other one, and nothing else of the daemon: each has its own task, its
own courier process, and a pause that grows with its failures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import anyio
import msgspec

from claudeops.domain.notices.notice import UNROUTED, DeliveryOutcome, Pending, Settlement, Target, Topic
from claudeops.domain.notices.refusals import CONTENT
from claudeops.domain.notices.routing import HOUR, REFUSED_TRIES, RoutingPlan, is_dead, plan, wait_seconds
from claudeops.errors import StaleTermError, StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.notify.delivery import Carrier, DeliveryResult
from claudeops.store.notify.outbox import Outbox
from claudeops.structs import replace
from claudeops.tasks import DatabaseTrouble, Waiter
from claudeops.wording.notices.texts import Wording, folded

LOOK_SECONDS: Final = 1.0
"""Between two looks at an outbox in which something waits."""

LATE: Final = timedelta(minutes=15)
"""How old the oldest notice may be: two failures of a target are no alarm, the third is."""

LEASE: Final = timedelta(seconds=60)
"""How long claimed rows belong to whoever claimed them; longer than a courier lives."""

SOON_SECONDS: Final = 60.0
"""For which a target may ask us to wait with a question before that counts as a failure."""

BATCH: Final = 20  # messages of one courier
_FOLDED: Final = 200  # rows that are claimed at once for a target with a bound, where most are one message
_ROUTED: Final = 200  # rows in one transaction
_SETTLE_SECONDS: Final = 5.0  # for what is known when the daemon stops


def _uncounted(_channel: str, _result: DeliveryOutcome) -> None:
    return


class _TargetState(msgspec.Struct, kw_only=True):
    """How a target has fared lately."""

    due: anyio.Event = msgspec.field(default_factory=anyio.Event)
    failures: int = 0  # in a row
    until: datetime | None = None  # it is left alone


@dataclass(kw_only=True)
class NoticeSender:
    """Delivers what is in the outbox, until cancelled."""

    outbox: Outbox
    targets: Sequence[Target]
    carriers: Mapping[str, Carrier]  # by the names of targets
    wording: Wording
    now: Callable[[], datetime]
    log: Logger
    look_seconds: float = LOOK_SECONDS
    waiter: Waiter | None = None  # for notices; None: they are looked for
    oldest: datetime | None = None  # since when the notice waits that should have left first, as last seen
    counted: Callable[[str, DeliveryOutcome], None] = (
        _uncounted  # with the kind of target and the result of each message
    )
    node: str = ""  # the machine on which it runs
    kept_events: Collection[str] | None = None  # about targets, that may be open; None: they are not known
    _states: dict[str, _TargetState] = field(init=False)
    _refusals: dict[int, int] = field(default_factory=dict)  # of notices for their text, by the ids of rows

    def __post_init__(self) -> None:
        self._states = {target.name: _TargetState() for target in self.targets}

    async def run(self) -> None:
        """Look at the outbox again and again, and deliver to each target in a task of its own."""
        async with anyio.create_task_group() as tasks:
            for target in self.targets:
                tasks.start_soon(self._serve, target)
            await self._look()

    def is_late(self) -> str:
        """Return why notices do not leave, as a sentence; empty: they do."""
        if self.oldest is None or self.now() - self.oldest < LATE:
            return ""
        return f"A notice has waited since {self.oldest:%Y-%m-%d %H:%M} UTC: see `claudeops notify test`."

    async def _look(self) -> None:
        trouble = DatabaseTrouble(self.log, "notifications")
        waiter = self.waiter or Waiter(longest_seconds=self.look_seconds)
        while True:
            try:
                has_more = await self.look_once()
                is_empty = not has_more and self.oldest is None and await self.outbox.is_empty()
            except StoreError as error:
                await anyio.sleep(max(self.look_seconds, trouble.failed(error)))
            else:
                trouble.over()
                await waiter.pause(0.0 if has_more else math.inf if is_empty else self.look_seconds)

    async def look_once(self) -> bool:
        """Route what is new, and wake the targets for which something is due; return whether there is more to route."""
        now = self.now()
        if self.kept_events is not None:  # once: what is gone since an edit or a start keeps no event open
            await self.outbox.end_events(self.kept_events, node=self.node, now=now)
            self.kept_events = None
        self.oldest = await self.outbox.oldest(now)
        waiting = await self.outbox.waiting(now)
        routed = 0
        if not waiting <= self._states.keys():  # new ones, or of targets that are gone
            routed = await self.outbox.route(self.targets, now=now, most=_ROUTED)
        paused = {name for name, state in self._states.items() if state.until and state.until > now}
        # A new question waits for no pause: until it is delivered it may count as not received.
        asking = await self.outbox.asking(now) if waiting & paused else frozenset()
        for name in waiting & self._states.keys():
            if name not in paused or name in asking:
                self._states[name].due.set()
        return UNROUTED in waiting and routed > 0

    async def _serve(self, target: Target) -> None:
        state, trouble = self._states[target.name], DatabaseTrouble(self.log, f"notifications to {target.name}")
        while True:
            await state.due.wait()
            state.due = anyio.Event()
            try:
                await self.deliver_once(target)
                trouble.over()
            except StoreError as error:
                await anyio.sleep(trouble.failed(error))
            except StaleTermError:
                raise  # this daemon no longer notifies
            except Exception as error:  # noqa: BLE001 - a fault of ours in notifying people ends no session
                self.log.error(
                    LogEvent.NOTIFICATION_FAILED,
                    target=target.name,
                    error=type(error).__name__,
                    failures=state.failures,
                )

    def _fail(self, target: Target, now: datetime, *, wait: float | None = None) -> None:
        """Note one more failure in a row, and leave the target alone for a while, or for as long as it wants."""
        state = self._states[target.name]
        state.failures += 1
        state.until = now + timedelta(seconds=wait_seconds(state.failures) if wait is None else wait)

    async def deliver_once(self, target: Target) -> None:
        """Deliver what is due for one target, as far as one courier takes it."""
        now = self.now()
        most = BATCH if target.max_per_hour is None else _FOLDED
        until = now + LEASE
        claimed = await self.outbox.claim(target.name, now=now, until=until, most=most)
        if not claimed:
            return
        bounded = target.max_per_hour is not None
        sent = await self.outbox.sent(target.name, now - HOUR) if bounded else ()
        waiting = [replace(each, refusals=self._refusals.get(each.id, 0)) for each in claimed]
        planned = plan(target, waiting, sent=sent, now=now)
        results: dict[int, DeliveryResult] = {}
        texts = [folded(group, self.wording) for group in planned.messages[:BATCH]]
        try:
            if texts:
                await self.carriers[target.name].deliver(texts, results)
        except OSError as error:
            self.log.error(LogEvent.NOTIFICATION_FAILED, target=target.name, error=error.strerror or "no process")
            results[0] = DeliveryResult(result=DeliveryOutcome.FAILED, error="no courier could be started")
        except StoreError:
            raise
        except Exception as error:
            # Whatever it met is likely to come again: a message that was never tried would be so for ever.
            at = next((index for index in range(len(texts)) if index not in results), 0)
            fault = f"a fault of ours: {type(error).__name__}"
            results[at] = DeliveryResult(result=DeliveryOutcome.FAILED, error=fault)
            raise
        finally:
            # A stop must not make others of what is known: it would be sent twice.
            with anyio.CancelScope(shield=True), anyio.move_on_after(_SETTLE_SECONDS):
                await self._settle(target, planned, results, until)

    async def _settle(
        self, target: Target, planned: RoutingPlan, results: Mapping[int, DeliveryResult], until: datetime
    ) -> None:
        now, state = self.now(), self._states[target.name]
        for each in results.values():
            self.counted(target.kind.value, each.result)
        failed = [each for each in results.values() if each.result is not DeliveryOutcome.DELIVERED]
        wait = max((each.wait_seconds for each in failed if each.wait_seconds is not None), default=None)
        if all(each.cause == CONTENT for each in results.values()):
            pass  # that proves nothing about the target; each of these messages waits for itself
        elif len(failed) == len(results):
            self._fail(target, now, wait=wait)
        else:
            state.failures, state.until = 0, None if wait is None else now + timedelta(seconds=wait)
        for each in failed:
            error = self.wording.redact(each.error)
            self.log.warning(LogEvent.NOTIFICATION_FAILED, target=target.name, error=error, failures=state.failures)
        settled = [Settlement(id=each.id, result=None, again_at=planned.until) for each in planned.waiting]
        for index, group in enumerate(planned.messages):
            settled += self._of_group(target, group, results.get(index), now)
        for each_settled in settled:
            if each_settled.again_at is None:
                self._refusals.pop(each_settled.id, None)
        for late in await self.outbox.settle(target.name, settled, until=until, now=now):
            why = f"notice {late} to {target.name} is over, or was claimed again since."
            self.log.error(LogEvent.STALE_ATTEMPT, error=why)

    def _of_group(
        self, target: Target, group: Sequence[Pending], result: DeliveryResult | None, now: datetime
    ) -> list[Settlement]:
        """Return what came of the rows that one message was about."""
        if result is None:
            again_at = self._states[target.name].until or now
            if any(each.notice.topic is Topic.APPROVAL for each in group):
                again_at = now
            return [Settlement(id=each.id, result=None, again_at=again_at) for each in group]
        is_question = any(each.notice.topic is Topic.APPROVAL for each in group)
        if is_question and result.wait_seconds is not None and result.wait_seconds <= SOON_SECONDS:
            # Too much at once is no failure: the question would count as one that reaches no person, and be denied.
            again_at = now + timedelta(seconds=result.wait_seconds)
            return [Settlement(id=each.id, result=None, again_at=again_at) for each in group]
        if result.result is DeliveryOutcome.DELIVERED:
            first, *others = group
            together = f"told together with {first.id}"
            rest = [Settlement(id=each.id, result=DeliveryOutcome.SUPPRESSED, error=together) for each in others]
            return [Settlement(id=first.id, result=DeliveryOutcome.DELIVERED), *rest]
        return [self._undelivered(target, each, result, now) for each in group]

    def _undelivered(self, target: Target, tried: Pending, result: DeliveryResult, now: datetime) -> Settlement:
        others = tuple(other.name for other in self.targets if other.name != target.name)
        # A text that one target refuses another one may take: no day needs to pass before it is tried.
        if result.cause == CONTENT:
            self._refusals[tried.id] = tried.refusals + 1
        is_refused = result.cause == CONTENT and tried.refusals + 1 >= REFUSED_TRIES and bool(others)
        is_over = is_dead(tried, now) or is_refused
        return Settlement(
            id=tried.id,
            result=result.result,
            error=self.wording.redact(result.error),
            again_at=None if is_over else self._next_try(target, tried, result, now),
            instead=others if is_over else (),
            cause=result.cause,
        )

    def _next_try(self, target: Target, tried: Pending, result: DeliveryResult, now: datetime) -> datetime:
        if result.wait_seconds is not None:
            return now + timedelta(seconds=result.wait_seconds)
        soon = now + timedelta(seconds=wait_seconds(1))
        if tried.notice.topic is Topic.APPROVAL and tried.attempts == 0:
            return soon  # whatever the target has done lately: a call waits to know whether it can be answered
        if result.cause == CONTENT:
            return now + timedelta(seconds=wait_seconds(tried.refusals + 1))
        # A single refused message waits as well: the others must not wait behind it.
        return self._states[target.name].until or soon
