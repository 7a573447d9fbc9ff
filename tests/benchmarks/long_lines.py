"""What the installed daemon holds at most while its CLI prints long lines, of every kind that takes memory.

The stand-in prints each line twice; its session has called a tool before, and delivers a report after.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import psutil

from benchmarks import frames
from benchmarks.stream_daemon import BACK_WITHIN_MIB, MOST_MIB, PLAYED, QUIET_SECONDS, peak_mib, sessions_ended
from benchmarks.table import Setup, Table, shown, verdict
from support.estate import deliver, look, report
from support.held import held_mib
from support.stand_in_daemon import StandInNode, stand_in_node, told

_LINE: Final = "2026-11-21T08:48:33.098Z postgres-main[5432]: INFO checked the certificate, valid until March\n"
_SECRET: Final = "password=hunter2hunter2 "
_LOOK_SECONDS: Final = 0.02
_MEGABYTES: Final[tuple[float, ...]] = (1, 4, 10, 60, 200)
_USAGE: Final = {"input_tokens": 1000, "output_tokens": 50}


def _of(unit: str, size: int) -> str:
    return unit * (size // len(unit.encode()))


def _answered(content: object, **more: object) -> dict[str, object]:
    block = {"type": "tool_result", "tool_use_id": frames.FIRST_CALL, "content": content}
    return {"type": "user", "message": {"role": "user", "content": [block]}, **more}


def _said(text: str) -> dict[str, object]:
    block = {"type": "text", "text": text}
    message = {"id": "msg_1", "model": "claude-haiku-5-5", "usage": _USAGE, "content": [block]}
    return {"type": "assistant", "message": message}


def _question(size: int) -> dict[str, object]:
    asked = {"tool_name": "Write", "tool_input": {"file_path": "notes", "content": _of(_LINE, size)}}
    request = {"subtype": "hook_callback", "callback_id": "gate", "tool_use_id": "toolu_1", "input": asked}
    return {"type": "control_request", "request_id": "1", "request": request}


def _result(**more: object) -> dict[str, object]:
    return {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, **more}


def _not_quite(frame: dict[str, object]) -> bytes:
    """Return a line with a byte that is no UTF-8, where the frame has U+E000."""
    return json.dumps(frame, ensure_ascii=False).encode().replace("\ue000".encode(), b"\xe9")


_FRAMES: Final[Mapping[str, Callable[[int], dict[str, object]]]] = {
    "a tool's result": lambda size: _answered(_of(_LINE, size)),
    "the same, printed twice": lambda size: _answered(
        _of(_LINE, size // 2), tool_use_result={"stdout": _of(_LINE, size // 2)}
    ),
    "a result in parts": lambda size: _answered([{"type": "text", "text": _of(_LINE, size)}]),
    "a text": lambda size: _said(_of(_LINE, size)),
    "a text of one line": lambda size: _said("x" * size),
    "a text, 2 bytes a character": lambda size: _said(_of("знаки " * 12, size)),
    "a text, 4 bytes a character": lambda size: _said(_of("😀", size)),
    "escapes": lambda size: _said(_of('"', size // 2)),
    "the input of a tool": lambda size: {
        "type": "assistant",
        "message": {
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {"content": "x" * size}}]
        },
    },
    "many fields": lambda size: {"type": "noise", "fields": {f"f{number:08d}": 1 for number in range(size // 14)}},
    "a question about a call of 4 MB": lambda size: _question(min(size, 4_000_000)),
    "a question about a longer call": _question,
    "a text with a report": lambda size: _said(_of(_LINE, size - 4000) + json.dumps(report())),
    "the text of a result line": lambda size: _result(result=_of(_LINE, size)),
    "a report": lambda size: _result(structured_output={**report(), "summary": _of(_LINE, size)}),
}
_RAW: Final[Mapping[str, Callable[[int], bytes]]] = {
    "deeply nested": lambda size: b'{"type":"noise","fields":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}",
    "no JSON": lambda size: b"x" * size,
    "no JSON after an object": lambda size: b'{"level":"info"} ' + b"x" * (size - 17),
    "a secret": lambda size: json.dumps(_answered(_SECRET + _of(_LINE, size))).encode(),
    "a byte that is no letter": lambda size: _not_quite(_answered(_of(_LINE, size - 9) + "\ue000")),
    "the same, and a secret": lambda size: _not_quite(_answered(_SECRET + _of(_LINE, size - 9) + "\ue000")),
    "many blocks": lambda size: json.dumps({"type": "user", "message": {"content": [{}] * (size // 4)}}).encode(),
}
_EVERY_LENGTH: Final = ("a tool's result",)
_USUAL_MEGABYTES: Final = 16.4


def held(setup: Setup) -> Table:
    """Measure."""
    wanted = [(kind, megabytes) for kind in _EVERY_LENGTH for megabytes in (*_MEGABYTES, _USUAL_MEGABYTES)]
    wanted += [(kind, _USUAL_MEGABYTES) for kind in (*_FRAMES, *_RAW) if kind not in _EVERY_LENGTH]
    return Table(
        title="Long lines: a CLI of the installed daemon prints two of them → what all of the daemon's processes hold",
        columns=("line", "MB", "before", "resident at most", "all, PSS, at most", "after", "CPU s", "target"),
        rows=[anyio.run(_row, setup, kind, megabytes) for kind, megabytes in wanted],
        notes=(
            "MiB. Resident is the daemon's own process, as the kernel counted its peak; the sum of all (the CLI and",
            f"its cell are none of them) was looked at every {_LOOK_SECONDS * 1000:.0f} ms.",
            f"Target: {MOST_MIB:g} MiB at most, and within {BACK_WITHIN_MIB:g} MiB of before when it is over.",
        ),
    )


def line_of(kind: str, megabytes: float) -> bytes:
    """Return a line of a kind."""
    size = round(megabytes * 1e6)
    if kind in _RAW:
        return _RAW[kind](size)
    return json.dumps(_FRAMES[kind](size - 400), ensure_ascii=False, separators=(",", ":")).encode()


async def _row(setup: Setup, kind: str, megabytes: float) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        path = Path(name) / "played"
        path.write_bytes((line_of(kind, megabytes) + b"\n") * 2)
        path.chmod(0o644)
        async with stand_in_node(Path(name)) as node:
            before, most, together, after, cpu = await _through(node, path)
    met = max(most, together) <= MOST_MIB and after - before <= BACK_WITHIN_MIB
    return (
        *(kind, f"{megabytes:g}"),
        *(shown([value]) for value in (before, most, together, after)),
        f"{cpu:.1f}",
        verdict(met=met),
    )


async def _through(node: StandInNode, path: Path) -> tuple[float, float, float, float, float]:
    node.script(look(), deliver(report()))
    async with node.daemon(
        CLAUDEOPS_TIER1_ENV=f"STAND_IN_STEPS,{PLAYED}", CLAUDEOPS_REPAIR_TURN="false", **{PLAYED: str(path)}
    ) as daemon:
        await sessions_ended(daemon, 1)
        process = psutil.Process(daemon.process.pid)
        node.script(look(frames.FIRST_CALL), {"play": PLAYED}, deliver(report()))
        before, used = held_mib(process.pid)[0], sum(process.cpu_times()[:2])
        Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")
        together = 0.0
        await node.queue(1)
        while len(told(daemon, "session_ended")) < 2:
            together = max(together, _together_mib(process))
            await anyio.sleep(_LOOK_SECONDS)
        most, cpu = peak_mib(process.pid), sum(process.cpu_times()[:2]) - used
        await anyio.sleep(QUIET_SECONDS)
        return before, most, together, held_mib(process.pid)[0], cpu


def _together_mib(process: psutil.Process) -> float:
    """Return what a daemon and its own processes hold, each with its share of what it shares."""
    total = 0.0
    for each in (process, *_own(process)):
        with suppress(OSError):  # it has ended
            total += held_mib(each.pid)[1]
    return total


def _own(process: psutil.Process) -> list[psutil.Process]:
    """Return the processes below one, without those of a cell."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in process.children():
            if not child.name().startswith("bwrap") and "stand_in_cli" not in " ".join(child.cmdline()):
                found += [child, *_own(child)]
    return found
