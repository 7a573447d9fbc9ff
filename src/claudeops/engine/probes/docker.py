"""The kind `docker`: state, health and restarts of a container, asked of the engine's socket.

An engine that does not answer says nothing about the container. What it tells of one holds its environment, so nothing
of an answer is quoted but what is read from it by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote as percent

from claudeops.domain.probes.probe import DockerLook, Saw
from claudeops.engine.probes.exchange import ProbeQuestion, exchange
from claudeops.engine.probes.results import Attempt, LookFailedError, LookResult, blind, quote
from claudeops.engine.probes.stream import Means

_FOUND, _UNKNOWN = 200, 404
_DEGRADED: Final = frozenset({"starting"})


async def look_docker(look: DockerLook, means: Means, attempt: Attempt) -> LookResult:
    """Ask the engine about one container; raises `LookFailedError`."""
    attempt.asks_other = True
    question = ProbeQuestion(target=f"/containers/{percent(look.container, safe='')}/json", authority="docker")
    try:
        async with means.unix_connection(look.socket, attempt) as stream:
            answer = await exchange(stream, question, attempt)
    except LookFailedError as error:
        if _was_connecting(attempt):
            raise _unusable(error) from None
        raise
    if answer.status == _UNKNOWN:
        return LookResult(Saw.DOWN, f"there is no container {quote(look.container)}")
    if answer.status != _FOUND:
        raise blind(f"the container engine answers {answer.status}")
    document = answer.json(attempt, quotes=False)
    state = document.get("State") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(state, dict):
        raise blind("the container engine answers with something that is not a container")
    return _judged(state, document.get("RestartCount"))


async def reach_engine(look: DockerLook, means: Means, attempt: Attempt) -> None:
    """Connect to the engine's socket and ask nothing; raises `LookFailedError`."""
    try:
        async with means.unix_connection(look.socket, attempt):
            pass
    except LookFailedError as error:
        raise _unusable(error) from None


def _unusable(error: LookFailedError) -> LookFailedError:
    remedy = "mount it into the daemon's view, and give the daemon's group the right to use it"
    return blind(f"the socket of the container engine cannot be used: {error.detail}; {remedy}")


def _was_connecting(attempt: Attempt) -> bool:
    """Whether a look ended while it connected."""
    return attempt.doing.startswith("connecting")


def _judged(state: Mapping[str, object], restarts: object) -> LookResult:
    status = state.get("Status")
    told = f"it is {quote(status)}" if isinstance(status, str) else "it has no state"
    if isinstance(restarts, int) and restarts:
        told += f", restarted {restarts} times"
    if status != "running":
        code = state.get("ExitCode")
        told += f", exit code {code}" if status in {"exited", "dead"} and isinstance(code, int) else ""
        told += ", out of memory" if state.get("OOMKilled") is True else ""
        return LookResult(Saw.DOWN, told)
    health = state.get("Health")
    tested = health.get("Status") if isinstance(health, dict) else None
    if not isinstance(tested, str) or tested in {"", "none"}:
        return LookResult(Saw.UP, told)
    told += f" and {quote(tested)}"
    if tested == "healthy":
        return LookResult(Saw.UP, told)
    return LookResult(Saw.DEGRADED if tested in _DEGRADED else Saw.DOWN, told)
