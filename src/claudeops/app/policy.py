"""What pages show of the policy: its text, and what the gate would say of a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from claudeops.domain.estate.model import Estate
from claudeops.domain.model import ToolCall, Verdict
from claudeops.domain.policy.document import in_force
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.gate.judging import JudgeProcess, NotJudgedError
from claudeops.engine.session.context import TierSetup
from claudeops.errors import ClaudeopsError
from claudeops.settings import Settings, policy_document

TRY_SECONDS: Final = 5.0
"""How long judging a command may take, the wait for those of others included."""

_EXAMPLE: Final = "example"
"""Stands for the session id in the paths of a session's own directories, as in `claudeops policy test`."""

_BUSY: Final = f"it could not be judged within {TRY_SECONDS:g} s: write it more plainly, or try again"


@dataclass(kw_only=True)
class PolicyInForce:
    """The policy as the daemon has read it."""

    settings: Settings
    setups: Mapping[int, TierSetup]
    estate: Callable[[], Estate]
    text: str  # as it was when the daemon has read it
    seconds: float = TRY_SECONDS
    _turn: anyio.Lock = field(default_factory=anyio.Lock)  # one command at a time

    @property
    def tiers(self) -> Sequence[int]:
        """The tiers that there are."""
        return tuple(sorted(self.setups))

    async def judged(self, command: str, tier: int) -> Verdict | str:
        """Return the verdict on a command at a tier, or why there is none.

        It is judged as the calls of sessions are, in a process that is killed when its time is over.
        """
        setup = self.setups[tier]
        workspace = Workspace(self.settings.state_dir / "sessions" / _EXAMPLE)
        process = JudgeProcess(judge=setup.judge_in(workspace, self.estate()), call_seconds=self.seconds)
        call = ToolCall(tool_use_id="test", tool_name="Bash", input={"command": command})
        try:
            with anyio.fail_after(self.seconds):
                async with self._turn:
                    return await process.judge_call(call)
        except (NotJudgedError, TimeoutError):
            return _BUSY
        finally:
            with anyio.CancelScope(shield=True):
                await process.end()


def policy_text(settings: Settings) -> str:
    """Return the policy as `claudeops policy show` prints it; reads its file, and says why where that fails."""
    try:
        path, document = policy_document({}, cwd=Path.cwd(), file=settings.policy_path)
    except ClaudeopsError as error:
        return f"# {error}\n"
    return in_force(document, str(path))
