"""``exec-command``: runs one tier on a prompt, here or by the daemon, and answers with what came of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio
import msgspec

from claudeops.app.limits import escalation_rules
from claudeops.app.wiring import root_session
from claudeops.cli.bootstrap import run_anywhere, session_body
from claudeops.cli.on_database import operators_name
from claudeops.cli.on_store import run_on_store
from claudeops.cli.reply import (
    CommandResult,
    ErrorKind,
    Exit,
    StopReason,
    error_body,
    not_found,
    print_failure,
    print_result,
    refused,
)
from claudeops.cli.start import start
from claudeops.cli.text.terminal import beside_progress
from claudeops.cli.tiers.inventory import tier_number
from claudeops.cli.tiers.outcomes import TIMEOUTS, error_of, exit_of, exit_of_refusal, turn
from claudeops.cli.with_settings import read_settings
from claudeops.clock import Clock
from claudeops.domain.sessions import LOWEST_TIER, NewSession, Outcome, Session, Status, Suppressed, Trigger
from claudeops.errors import ClaudeopsError, ConfigurationError, MissingInputError, NoDaemonError
from claudeops.formats.stream.exchange import INPUT_BYTES, ExchangeVerdict
from claudeops.logs import Logger
from claudeops.settings import Settings
from claudeops.store.acts.sessions import queue_unless_held
from claudeops.store.locks import is_served
from claudeops.store.store import Store
from claudeops.structs import replace
from claudeops.text.escapes import visible

NAME: Final = "exec-command"
_STDIN: Final = "-"
_NOTHING_SAID: Final = "The session ended well and said nothing."


class ExecuteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for."""

    name: str  # of the tier, as it was written
    prompt: str
    wait: bool = True  # for the end; else it is left to the daemon
    timeout: float | None = None  # seconds for one session; None: as the settings have it
    live: bool = False  # what it does is printed on stderr


def stream(order: ExecuteRequest, *, inline: str | None, input_format: str, output_format: str) -> int:
    """Run a tier on every prompt that comes, printing frames; return the exit status."""
    from claudeops.cli.tiers.stream import STREAM, FramePrinter, run_exchange  # noqa: PLC0415 - few ask for frames

    try:
        tier = tier_number(order.name, read_settings())
    except ClaudeopsError:
        tier = LOWEST_TIER  # the exchange finds the same error, and says it in its last frame
    if tier is None or tier < LOWEST_TIER:
        refusal = ExchangeVerdict.refused(f"There is no tier {visible(order.name)!r}.", Exit.USAGE)
        FramePrinter(as_frames=output_format == STREAM, tier=LOWEST_TIER).end(refusal, duration_ms=0)
        return refusal.exit_status
    seconds = math.inf if order.timeout is None else order.timeout
    return run_exchange(tier, inline, input_format=input_format, output_format=output_format, timeout_seconds=seconds)


def execute(order: ExecuteRequest, *, as_json: bool) -> int:
    """Run a tier, print what came of it, and return the exit status."""
    try:
        order = _with_prompt(order)
        settings = read_settings()
        tier = tier_number(order.name, settings)
        refusal = _refusal(order, tier, settings)
        if refusal is not None or tier is None:
            return print_result(NAME, refusal or _unknown(order), as_json=as_json)
        new = root_session(settings, tier, Trigger.MANUAL, order.prompt or None, by=operators_name())
        if not order.wait:
            return _leave(order, new, settings, as_json=as_json)
        settings, log = start(
            sys.stderr, quiet=order.live or not as_json, line_start=beside_progress(sys.stderr) if order.live else ""
        )
        settings = _bounded(settings, order.timeout)
        found = anyio.run(partial(_run, order, new, settings, log))
    except ClaudeopsError as error:
        return print_failure(NAME, error, as_json=as_json, operation="start", target=order.name)
    return print_result(NAME, _answer(order, found, settings), as_json=as_json)


def _with_prompt(order: ExecuteRequest) -> ExecuteRequest:
    """Return the order with the prompt that stdin holds, where it asks for that."""
    if order.prompt != _STDIN:
        return order
    text = sys.stdin.buffer.read(INPUT_BYTES + 1)
    if len(text) > INPUT_BYTES:
        raise ConfigurationError(f"stdin holds more than {INPUT_BYTES} bytes.", operation="read", target="stdin")
    if not text.strip():
        raise MissingInputError("stdin holds no prompt.", operation="read", target="stdin", hint="Write one to stdin.")
    return replace(order, prompt=text.decode(errors="replace"))


# --- what may not run -------------------------------------------------------------------------------------


def _refusal(order: ExecuteRequest, tier: int | None, settings: Settings) -> CommandResult | None:
    """Return the answer for a tier that may not run, as far as no database is needed to know."""
    if tier is None:
        return _unknown(order)
    if tier > settings.ladder.max_tier:
        message = f"Tier {tier} may not run: CLAUDEOPS_MAX_TIER is {settings.ladder.max_tier}."
        return _denied(order, message, "Raise CLAUDEOPS_MAX_TIER, or name a lower tier.", settings)
    if settings.ladder.dry_run and tier > LOWEST_TIER:
        message = f"Tier {tier} may not run: CLAUDEOPS_DRY_RUN is on."
        return _denied(order, message, "Unset CLAUDEOPS_DRY_RUN, or run tier 1, which only looks.", settings)
    if tier < LOWEST_TIER:
        return not_found("tier_not_found", order.name, f"There is no tier {tier}: tiers begin at {LOWEST_TIER}.")
    return None


def _unknown(order: ExecuteRequest) -> CommandResult:
    message = f"There is no tier {visible(order.name)!r}; `claudeops command-graph` lists them."
    return not_found("command_not_found", order.name, message)


def _denied(order: ExecuteRequest, message: str, hint: str, settings: Settings) -> CommandResult:
    answer = refused("escalate", order.name, message, hint=hint)
    body = {**_named(order, settings), **answer.body, "message": message}
    return answer._replace(body=body)


def _named(order: ExecuteRequest, settings: Settings) -> dict[str, object]:
    number = tier_number(order.name, settings)
    path = next((str(tier.prompt_path) for tier in settings.tiers if tier.number == number), "CLAUDEOPS_MAX_TIER")
    return {"name": order.name, "prompt": order.prompt, "handled": False, "message": "", "source_hint": path}


# --- running it -------------------------------------------------------------------------------------------


def _bounded(settings: Settings, timeout: float | None) -> Settings:
    """Return the settings with less time for a session: the session itself is then stopped in its usual order."""
    if timeout is None:
        return settings
    usual = settings.timeouts
    bounded = replace(
        usual,
        session_seconds=min(usual.session_seconds, timeout),
        startup_seconds=min(usual.startup_seconds, timeout),
        silence_seconds=min(usual.silence_seconds, timeout),
    )
    return replace(settings, timeouts=bounded)


async def _run(
    order: ExecuteRequest, new: NewSession, settings: Settings, log: Logger
) -> Sequence[Session] | Suppressed | None:
    """Run the chain that begins with this tier; ``None``: the daemon runs it and has not come to its end in time."""
    # Only the daemon's sessions outlive the time: those of this process are stopped by their own bound.
    patience = order.timeout if await anyio.to_thread.run_sync(is_served, settings.places.database_url) else None
    with anyio.move_on_after(patience):
        return await run_anywhere(settings, new, lambda _: None, log, live=order.live)
    return None


def _leave(order: ExecuteRequest, new: NewSession, settings: Settings, *, as_json: bool) -> int:
    """Queue the tier for the daemon and return at once."""

    async def queue(_settings: Settings, store: Store) -> CommandResult:
        if not await anyio.to_thread.run_sync(is_served, settings.places.database_url):
            raise NoDaemonError(
                f"no daemon runs that would take {order.name}.",
                target=order.name,
                hint="Leave --no-wait away to run it here, or start `claudeops run`.",
            )
        rules = escalation_rules(settings)
        queued = await queue_unless_held(store, new, rules=rules, now=Clock().now())
        if isinstance(queued, Suppressed):
            return _answer(order, queued, settings)
        message = f"queued as session {queued.id}"
        body = {**_named(order, settings), "message": message, "queued": True, "session_id": str(queued.id)}
        return CommandResult(text=f"{order.name}: {message}", body=body)

    return run_on_store(NAME, queue, as_json=as_json, target=order.name)


# --- the answer -------------------------------------------------------------------------------------------


def _answer(order: ExecuteRequest, found: Sequence[Session] | Suppressed | None, settings: Settings) -> CommandResult:
    named = _named(order, settings)
    if isinstance(found, Suppressed):
        hint = "`claudeops list-actions` shows what is left of the limits, `claudeops status` what holds sessions."
        answer = _denied(order, found.message, hint, settings)
        return answer._replace(exit_code=exit_of_refusal(found.reason))
    if found is None:
        return _out_of_patience(order, named)
    first = found[0]
    if first.status is not Status.ENDED:
        return _not_begun(order, named, first)
    message = first.summary or first.error or _NOTHING_SAID
    body: dict[str, object] = {
        **named,
        "handled": first.outcome is Outcome.SUCCESS,
        "message": message,
        "turn": turn(first, order.prompt),
        "session_id": str(first.id),
        "path": first.log_path or "",
        "decision": first.decision_reason,
        "cost_usd": first.cost_usd,
        "sessions": [session_body(session) for session in found],
    }
    sysexit = exit_of(first)
    if first.outcome in TIMEOUTS:
        ended = {"stop_reason": StopReason.TIMEOUT.value, "cancel_observed": turn(first, "")["cancel_observed"]}
        return CommandResult(text=message, body={**body, **ended}, exit_code=sysexit, envelope_code=2)
    if sysexit is not Exit.OK:
        body |= error_of(first, order.name)
    return CommandResult(text=visible(message), body=body, exit_code=sysexit)


def _out_of_patience(order: ExecuteRequest, named: dict[str, object]) -> CommandResult:
    """Return the answer for a session that the daemon goes on with: nobody asked it to stop."""
    message = f"{order.name} has not ended within {order.timeout:g} s; the daemon goes on with it."
    stopped = {"stop_reason": StopReason.TIMEOUT.value, "cancel_observed": False}
    told = {"prompt": order.prompt, "output": message, **stopped}
    body = {**named, "message": message, **stopped, "turn": told}
    return CommandResult(text=message, body=body, exit_code=Exit.CANCELLED, envelope_code=2)


def _not_begun(order: ExecuteRequest, named: dict[str, object], session: Session) -> CommandResult:
    message = f"Session {session.id} waits in the queue: sessions are held, or nobody runs it any more."
    error = error_body(
        kind=ErrorKind.POLICY,
        operation="claim",
        target=order.name,
        retryable=True,
        message=message,
        hint="`claudeops status` shows what holds sessions.",
    )
    body = {**named, "message": message, "session_id": str(session.id), **error}
    return CommandResult(text=f"claudeops: {message}", body=body, exit_code=Exit.TRY_LATER)
