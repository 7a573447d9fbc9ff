"""The process that judges the calls of one session, and the messages between it and the daemon.

Run as a program (``python -I -m claudeops.engine.gate.judge_process SECONDS``), with a socket as stdin. A message is
its length in eight bytes and a pickle: first the judge, then one call after another. Each call is answered by a
verdict, or by the reason why there is none, which is the last answer. The process ends at the end of its messages.

What it judges was written by a model, and the parsers that read it are written in C. So it holds no secret and has no
environment, and the daemon takes from it the values of a verdict or judgement and nothing else (`read_answer`).
"""

from __future__ import annotations

import io
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

import msgspec

from claudeops.domain.actions import Action
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.estate.strangers import Stranger
from claudeops.domain.gate.cluster_grants import ClusterGrant
from claudeops.domain.gate.docker_grants import Execution, Grant
from claudeops.domain.looks import Address, EvidenceLook, InRepository, LookCall
from claudeops.policy.tiers import PolicyJudgement
from claudeops.structs import built

HEADER_BYTES: Final = 8

MEMORY_BYTES: Final = 256 * 1024 * 1024
"""Address space of the process: 32 MiB with the default policy, and five times its size for a file that is written."""

_ANSWER_CLASSES: Final[Mapping[tuple[str, str], object]] = {
    (each.__module__, each.__qualname__): each
    for each in (
        *(
            Action,
            Address,
            ClusterGrant,
            Execution,
            Grant,
            InRepository,
            PolicyJudgement,
            EvidenceLook,
            LookCall,
            Stranger,
            Verdict,
        ),
        VerdictKind,
        built,
    )
}
_REASON_CHARACTERS: Final = 500
_GRACE: Final = 1.2  # times a call's bound: the daemon, which says why, comes first


def message(content: object) -> bytes:
    """Return a message; raises `pickle.PicklingError` or `AttributeError` for what has no name to be found by."""
    buffer = io.BytesIO(bytes(HEADER_BYTES))
    buffer.seek(HEADER_BYTES)
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(content)
    packed = buffer.getbuffer()
    packed[:HEADER_BYTES] = (len(packed) - HEADER_BYTES).to_bytes(HEADER_BYTES, "big")
    return bytes(packed)


def read_answer(body: bytes) -> Verdict | PolicyJudgement | str:
    """Return the verdict or judgement, or why there is none, which is what an unreadable answer becomes, too."""
    try:
        answer = _AnswerReader(io.BytesIO(body)).load()
    except Exception as error:  # noqa: BLE001 - a damaged pickle raises anything
        return f"its answer cannot be read: {_line(error)}"
    return answer if isinstance(answer, Verdict | PolicyJudgement | str) else f"its answer is a {type(answer).__name__}"


def main() -> None:
    """Judge until there are no more calls; a call that takes longer than the bound ends the process."""
    seconds = float(sys.argv[1]) * _GRACE
    with socket.socket(fileno=0) as connection, connection.makefile("rb") as messages:
        if (first := _next(messages)) is None:
            return
        judge: Callable[[ToolCall], Verdict | PolicyJudgement] = pickle.loads(first)  # noqa: S301 - the daemon wrote it
        _bind()  # not before: what has been imported may be compiled and cached
        while (body := _next(messages)) is not None:
            # The kernel ends a call that never ends even if the daemon has gone, and whatever the code is busy with.
            signal.setitimer(signal.ITIMER_REAL, seconds)
            answer = _answer(judge, pickle.loads(body))  # noqa: S301 - as above
            connection.sendall(message(answer))
            signal.setitimer(signal.ITIMER_REAL, 0)
            if isinstance(answer, str):
                return


def _bind() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the daemon may have been started with it ignored
    for limit, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (most, most))


def _next(messages: io.BufferedReader) -> bytes | None:
    header = messages.read(HEADER_BYTES)
    return messages.read(int.from_bytes(header, "big")) if len(header) == HEADER_BYTES else None


def _answer(judge: Callable[[ToolCall], Verdict | PolicyJudgement], call: ToolCall) -> Verdict | PolicyJudgement | str:
    try:
        return judge(call)
    except Exception as error:  # noqa: BLE001 - memory included: the daemon denies the call, and starts another process
        return f"judging failed: {_line(error)}"


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:_REASON_CHARACTERS]


class _Pickler(pickle.Pickler):
    """Pickles read-only mappings, too, a Struct as its class and fields, an enum's member as its class and value.

    A Struct would be a call of a private function of msgspec; and Python 3.11 to 3.11.3, which Debian 12 has, would
    pickle a member as a call of `getattr`. No answer may name either.
    """

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, MappingProxyType):
            return _read_only, (dict(value),)
        if isinstance(value, Enum):
            return type(value), (value.value,)
        if isinstance(value, msgspec.Struct):
            return built, (type(value), {name: getattr(value, name) for name in value.__struct_fields__})
        return NotImplemented


def _read_only(values: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(values)


class _AnswerReader(pickle.Unpickler):
    """Reads what a verdict consists of: a pickle may name any function, and has it called."""

    def find_class(self, module: str, name: str) -> object:
        try:
            return _ANSWER_CLASSES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it holds a {module}.{name}") from None


if __name__ == "__main__":
    main()
