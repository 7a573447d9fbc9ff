"""``exec-command`` as a stream: the passes that an input asks for, and frames in their order whatever happens."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import anyio
import pytest

from claudeops.cli.tiers.stream import Exchange, FramePrinter, Queued, read_frames, run_exchange
from claudeops.domain.sessions import DecisionReason, Outcome, Session, Status, Suppressed
from claudeops.formats.stream.exchange import INPUT_BYTES, ExchangeVerdict
from support.store_values import running
from support.streams import vectors
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

VECTORS: Final = [vector for vector in vectors("caliban") if "stdin" in vector]
USER: Final = b'{"type":"user","content":"%s"}\n'
INTERRUPT: Final = b'{"type":"control","subtype":"interrupt"}\n'


class Passes:
    """Runs nothing; a pass ends at once, or when it is interrupted."""

    def __init__(self, *, hangs: bool = False, suppressed: Suppressed | None = None) -> None:
        self.texts: list[str] = []
        self.started = anyio.Event()
        self._hangs, self._suppressed = hangs, suppressed
        self._stopped = anyio.Event()

    async def run(self, text: str, queued: Queued) -> Sequence[Session] | Suppressed:
        self.texts.append(text)
        self._stopped = anyio.Event()
        self.started.set()
        if self._suppressed is not None:
            return self._suppressed
        queued(running(id=len(self.texts)))
        if self._hangs:
            await self._stopped.wait()
        outcome = Outcome.CANCELLED if self._hangs else Outcome.SUCCESS
        return [running(id=len(self.texts), status=Status.ENDED, outcome=outcome, summary=f"did {text}")]

    async def interrupt(self) -> None:
        self._stopped.set()


async def nothing_to_print(_: Session) -> None:
    return


async def chunks(*given: bytes) -> AsyncIterator[bytes]:
    for chunk in given:
        yield chunk


async def exchanged(
    passes: Passes, *given: bytes, timeout_seconds: float = 30, stopped: anyio.Event | None = None
) -> tuple[ExchangeVerdict, list[dict[str, Any]]]:
    """Run an input; return how it ended, and the frames that were printed."""
    out = io.StringIO()
    printer = FramePrinter(as_frames=True, tier=1, out=out)
    exchange = Exchange(
        runner=passes,
        printer=printer,
        print_chain=nothing_to_print,
        timeout_seconds=timeout_seconds,
        stopped=stopped or anyio.Event(),
    )
    with anyio.fail_after(PATIENCE_SECONDS):
        verdict = await exchange.run(read_frames(chunks(*given)))
    printer.end(verdict, duration_ms=1)
    return verdict, [json.loads(line) for line in out.getvalue().splitlines()]


def stdin(vector: dict[str, Any]) -> bytes:
    lines = vector["stdin"]
    if lines == ["<10485761 bytes>"]:
        return b" " * (INPUT_BYTES + 1)
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["id"] for vector in VECTORS])
async def test_vectors_of_the_input(vector: dict[str, Any]) -> None:
    passes, expect = Passes(), vector["expect"]
    verdict, frames = await exchanged(passes, stdin(vector))

    assert verdict.exit_status == expect["exit"]
    assert passes.texts == expect.get("passes", passes.texts)
    assert frames[0]["subtype"] == "init"
    assert frames[-1].items() >= expect.get("last", {"type": "result"}).items()
    assert [frame["type"] for frame in frames].count("result") == 1


async def test_every_user_frame_is_a_pass_and_the_last_one_ends_it() -> None:
    passes = Passes()
    verdict, frames = await exchanged(passes, USER % b"a", USER % b"b")
    assert passes.texts == ["a", "b"]
    assert (verdict.exit_status, frames[-1]["result"], frames[-1]["session_id"]) == (0, "did b", "2")
    assert [frame["type"] for frame in frames] == ["system", "result"]
    assert frames[0]["session_id"] == "1"


async def test_an_interrupt_stops_what_runs_and_the_next_frame_is_done_all_the_same() -> None:
    passes = Passes(hangs=True)

    async def typed() -> AsyncIterator[bytes]:
        yield USER % b"a"
        await passes.started.wait()
        yield INTERRUPT
        yield USER % b"b"
        yield INTERRUPT

    printer = FramePrinter(as_frames=True, tier=1, out=io.StringIO())
    with anyio.fail_after(PATIENCE_SECONDS):
        exchange = Exchange(runner=passes, printer=printer, print_chain=nothing_to_print)
        verdict = await exchange.run(read_frames(typed()))
    assert passes.texts[0] == "a"
    assert (verdict.subtype, verdict.exit_status) == ("cancelled", 124)


async def test_what_was_interrupted_before_it_began_is_not_run() -> None:
    passes = Passes(hangs=True)
    verdict, frames = await exchanged(passes, (USER % b"a") + INTERRUPT)
    assert verdict.exit_status == 124
    assert (frames[0]["subtype"], frames[-1]["subtype"]) == ("init", "cancelled")


async def test_a_pass_that_takes_too_long_is_stopped() -> None:
    verdict, _ = await exchanged(Passes(hangs=True), USER % b"a", timeout_seconds=0.05)
    assert (verdict.subtype, verdict.exit_status) == ("cancelled", 124)


async def test_after_a_signal_nothing_further_begins_even_though_stdin_stays_open() -> None:
    passes, stopped = Passes(hangs=True), anyio.Event()

    async def typed() -> AsyncIterator[bytes]:
        yield (USER % b"a") + (USER % b"b")
        await passes.started.wait()
        stopped.set()
        await anyio.sleep_forever()

    printer = FramePrinter(as_frames=True, tier=1, out=io.StringIO())
    with anyio.fail_after(PATIENCE_SECONDS):
        exchange = Exchange(runner=passes, printer=printer, print_chain=nothing_to_print, stopped=stopped)
        verdict = await exchange.run(read_frames(typed()))
    assert passes.texts == ["a"]
    assert verdict.exit_status == 124


@pytest.mark.parametrize(
    ("reason", "exit_status"), [(DecisionReason.PAUSED, 75), (DecisionReason.BUDGET, 75), (DecisionReason.MAX_TIER, 1)]
)
async def test_what_may_not_start_is_an_error_with_its_reason(reason: DecisionReason, exit_status: int) -> None:
    passes = Passes(suppressed=Suppressed(reason=reason, message="it may not."))
    verdict, frames = await exchanged(passes, USER % b"a")
    assert (verdict.exit_status, frames[-1]["error"]) == (exit_status, "it may not.")
    assert frames[0]["subtype"] == "init"


def test_a_prompt_on_the_command_line_excludes_frames_on_stdin(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_exchange(1, "Look.", input_format="stream-json") == 64
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["subtype"], last["type"], last["subtype"]) == ("init", "result", "error")


def test_settings_that_cannot_be_read_end_in_a_result_frame(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDEOPS_INTERVAL", "soon")
    assert run_exchange(1, "Look.") == 78
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["type"], first["subtype"], last["subtype"]) == ("system", "init", "error")
    assert "CLAUDEOPS_INTERVAL" in last["error"]
