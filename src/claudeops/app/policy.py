"""What pages show of the policy: its text, verdicts on a command, and what another policy says to calls on record."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from claudeops.app.limits import tier_policies
from claudeops.app.wiring import SESSIONS
from claudeops.domain.calls import ToolCall, Verdict
from claudeops.domain.estate.estate import Estate
from claudeops.engine.cell.cell import workspace_places
from claudeops.engine.cell.workspace import Workspace, workspace_name
from claudeops.engine.gate.judging import JudgeProcess, NotJudgedError
from claudeops.engine.session.context import TierSetup
from claudeops.errors import ClaudeopsError
from claudeops.policy.judge import TierVerdict, tier_verdict
from claudeops.policy.policy_file import in_force
from claudeops.policy.replay import MOST_CALLS, RecordedCall, ReplayBound, ReplayCount
from claudeops.policy.tiers import PolicyJudgement
from claudeops.settings import Settings, policy_document, policy_of
from claudeops.structs import replace
from claudeops.tasks import Threads

TRY_SECONDS: Final = 5.0
"""How long judging a command may take, the wait for those of others included."""

REPLAY_SECONDS: Final = 20.0
"""How long a replay may take."""

_CALL_SECONDS: Final = 2.0  # of a replay, for one call
_READ_SECONDS: Final = 5.0  # for reading a policy file
_READING: Final = Threads(most=1)

_EXAMPLE: Final = "example"
"""Stands for the session id in the paths of a session's own directories, as in `claudeops policy test`."""

_BUSY: Final = f"it could not be judged within {TRY_SECONDS:g} s: write it more plainly, or try again"


@dataclass(kw_only=True)
class LoadedPolicy:
    """The policy as the daemon has read it."""

    settings: Settings
    tiers: Sequence[int]  # in order
    setups: Callable[[], Awaitable[Mapping[int, TierSetup]]]  # a daemon that has just begun waits for its looks
    estate: Callable[[], Estate]
    text: str  # as it was when the daemon has read it
    seconds: float = TRY_SECONDS
    replay_seconds: float = REPLAY_SECONDS
    call_seconds: float = _CALL_SECONDS
    _turn: anyio.Lock = field(default_factory=anyio.Lock)  # one command at a time

    async def judged(self, command: str, tier: int) -> TierVerdict | str:
        """Return the verdict on a command at a tier, with what it is based on, or why there is none.

        It is judged as the calls of sessions are, in a process that is killed when its time is over.
        """
        call = ToolCall(tool_use_id="test", tool_name="Bash", input={"command": command})
        with anyio.move_on_after(self.seconds):
            setup = (await self.setups())[tier]
            workspace = Workspace(self.settings.places.state_dir / "sessions" / _EXAMPLE)
            process = JudgeProcess(
                judge=setup.explain_in(workspace, self.estate()), answers=PolicyJudgement, call_seconds=self.seconds
            )
            try:
                async with self._turn:
                    return tier_verdict(tier, await process.judge_call(call))
            except NotJudgedError:
                return _BUSY
            finally:
                with anyio.CancelScope(shield=True):
                    await process.end()
        return _BUSY

    async def replay(
        self, text: str, calls: Callable[[int | None], Awaitable[Sequence[RecordedCall]]], count: ReplayCount
    ) -> ReplayBound | None:
        """Count what the policy of another file says to calls on record; return the bound that has ended it, if any.

        The calls are judged in processes, which are killed when time is over. Raises `ConfigurationError`.
        """
        policy = await _READING.run(partial(policy_of, text), seconds=_READ_SECONDS, what="reading a policy")
        policies, setups = tier_policies(replace(self.settings, policy=policy)), await self.setups()
        edited = {number: replace(setup, policy=policies[number]) for number, setup in setups.items()}
        async with _judging(self, edited) as judge_edited, _judging(self, setups) as judge_in_force:
            with anyio.move_on_after(self.replay_seconds):
                return await _replay(calls, count, edited=judge_edited, in_force=judge_in_force)
        return ReplayBound.TIME


_Judge = Callable[[RecordedCall], Awaitable[Verdict | None]]
"""Returns the verdict on a call; None: it cannot be judged, or not in time."""


async def _replay(
    calls: Callable[[int | None], Awaitable[Sequence[RecordedCall]]],
    count: ReplayCount,
    *,
    edited: _Judge,
    in_force: _Judge,
) -> ReplayBound | None:
    before: int | None = None
    while found := await calls(before):
        for call in found:
            if count.replayed >= MOST_CALLS:
                return ReplayBound.COUNT
            verdict = await edited(call)
            if verdict is None:
                count.skip()
            elif verdict.kind is call.verdict:
                count.keep()
            else:
                today = await in_force(call)
                count.change(call, verdict.kind, verdict.reason, in_force=None if today is None else today.kind)
        before = found[-1].call_id
    return None


@asynccontextmanager
async def _judging(policy: LoadedPolicy, setups: Mapping[int, TierSetup]) -> AsyncIterator[_Judge]:
    """Judge calls on record for the length of the block, in a process for each tier; leaves no process."""
    sessions, estate = policy.settings.places.state_dir / SESSIONS, policy.estate()
    example = Workspace(sessions / _EXAMPLE)
    places = await _READING.run(partial(_places, sessions), seconds=_READ_SECONDS, what="looking for workspaces")
    processes = {
        number: JudgeProcess(
            judge=setup.judge_in(example, estate),
            answers=Verdict,
            call_seconds=policy.call_seconds,
            session_seconds=policy.replay_seconds,
        )
        for number, setup in setups.items()
    }

    async def judge_recorded(call: RecordedCall) -> Verdict | None:
        process = processes.get(call.tier)
        if process is None or call.input is None:
            return None
        own = [f"{place}/{workspace_name(call.session_id)}" for place in places]
        given = {name: _moved(value, own, str(example.root)) for name, value in call.input.items()}
        try:
            return await process.judge_call(ToolCall(tool_use_id="replay", tool_name=call.tool_name, input=given))
        except NotJudgedError:
            return None

    try:
        yield judge_recorded
    finally:
        with anyio.CancelScope(shield=True):
            for process in processes.values():
                await process.end()


def _places(sessions: Path) -> Sequence[str]:
    """Return the directories below which sessions may have lived, in any cell; paths in workspaces hold no links."""
    return tuple(
        dict.fromkeys(path for place in workspace_places(sessions) for path in (os.path.realpath(place), str(place)))
    )


def _moved(value: object, own: Sequence[str], example: str) -> object:
    """Return a value of a call's input as if its session had lived in another directory than one of its ``own``."""
    if not isinstance(value, str):
        return value
    for directory in own:
        value = value.replace(directory, example)
    return value


async def read_policy_text(settings: Settings) -> str:
    """Return the same off the event loop, for which it takes too long; bounded."""
    try:
        return await _READING.run(partial(policy_text, settings), seconds=_READ_SECONDS, what="reading the policy")
    except TimeoutError as error:
        return f"# {error.strerror}: its disk does not answer.\n"


def policy_text(settings: Settings) -> str:
    """Return the policy as `claudeops policy show` prints it; reads its file, and says why where that fails."""
    try:
        path, document = policy_document({}, cwd=Path.cwd(), file=settings.policy_path)
    except ClaudeopsError as error:
        return f"# {error}\n"
    return in_force(document, str(path))
