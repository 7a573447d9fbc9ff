"""``exec-tool``: runs one declared probe, or one check of the doctor's, and says what it found."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.app.limits import tools_by_tier
from claudeops.cli.doctor.access import SharedRequest
from claudeops.cli.doctor.command import CHECKS, gather, run_check
from claudeops.cli.probe import declared_probes, look_once
from claudeops.cli.reply import CommandResult, Exit, not_found, refused
from claudeops.cli.with_settings import run_with_settings
from claudeops.domain.probes.probe import Probe
from claudeops.settings import Settings
from claudeops.structs import replace
from claudeops.text.escapes import visible
from claudeops.text.redact import Redactor

_NAME: Final = "exec-tool"
_PROBE: Final = "probe:"
_CHECK: Final = "check:"
_DOCTOR: Final = "claudeops doctor"


def execute_tool(name: str, payload: str, *, as_json: bool) -> int:
    """Run a probe or a check by name, print what it found, and return the exit status."""
    return run_with_settings(_NAME, partial(_executed, name, payload), as_json=as_json, target=name)


async def _executed(name: str, payload: str, settings: Settings) -> CommandResult:
    probes, _fault = await declared_probes(settings)
    probe = next((one for one in probes if name in {one.name, f"{_PROBE}{one.name}"}), None)
    if probe is not None:
        return await _looked(name, payload, probe, settings)
    wanted = name.removeprefix(_CHECK).replace("-", " ")
    if wanted in {check.name for check in CHECKS}:
        return await _checked(name, payload, wanted)
    if any(name in tools for tools in tools_by_tier(settings).values()):
        message = f"{visible(name)} is a tool of sessions, which the gate judges; nobody else runs it."
        hint = f"`claudeops policy test --tool {visible(name)}` asks the gate; `claudeops exec-command` runs a tier."
        answer = refused(_NAME, name, message, hint=hint)
        return answer._replace(body={"name": name, "payload": payload, **answer.body})
    return not_found("tool_not_found", name, f"There is no probe or check {visible(name)!r}; {_there_are(probes)}.")


def _there_are(probes: Sequence[Probe]) -> str:
    checks = ", ".join(check.name.replace(" ", "-") for check in CHECKS)
    declared = ", ".join(sorted(probe.name for probe in probes)) or "none declared"
    return f"probes: {declared}; checks: {checks}"


async def _looked(name: str, payload: str, probe: Probe, settings: Settings) -> CommandResult:
    seen = await look_once(probe, settings)
    message = f"{seen.saw.value}: {visible(seen.detail)}" if seen.detail else seen.saw.value
    more = {"what": "probe", "status": seen.saw.value, "latency_ms": seen.latency_ms}
    return _answer(name, payload, message, source_hint=probe.origin, more=more)


async def _checked(name: str, payload: str, wanted: str) -> CommandResult:
    case = gather(os.environ, cwd=Path.cwd(), now=datetime.now(UTC))
    redact = Redactor(case.settings.secrets if case.settings else ()).text
    if case.settings is not None:
        case = replace(case, answer=SharedRequest(case.settings))
    check = next(one for one in CHECKS if one.name == wanted)
    found = await run_check(check, case)
    message = redact(found.sentence)
    more = {"what": "check", "status": found.status.value, "latency_ms": None}
    return _answer(name, payload, message, source_hint=_DOCTOR, more=more)


def _answer(name: str, payload: str, message: str, *, source_hint: str, more: Mapping[str, object]) -> CommandResult:
    """Return what was found; finding something wrong is an answer, not a failure."""
    body = {"name": name, "payload": payload, "handled": True, "message": message, "source_hint": source_hint, **more}
    return CommandResult(text=f"{name}: {message}", body=body, exit_code=Exit.OK)
