"""Runs the checks of ``claudeops doctor`` and prints their findings, as lines or as one document.

Settings may be wrong in several places: every fault is reported, and the checks run on whatever can be read.
"""

from __future__ import annotations

import fnmatch
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import click

from claudeops import logs
from claudeops.cli import reply
from claudeops.cli.doctor import access, machine, people, sessions
from claudeops.cli.doctor.docker import docker
from claudeops.cli.doctor.estate import estate
from claudeops.cli.doctor.finding import (
    Check,
    DoctorContext,
    Finding,
    FindingStatus,
    doubtful,
    failed,
    failed_with,
    fine,
    skipped,
)
from claudeops.cli.doctor.kubernetes import kubernetes
from claudeops.cli.doctor.login_provider import login_provider
from claudeops.cli.doctor.network import headers, network
from claudeops.cli.doctor.probes import probes
from claudeops.cli.doctor.ssh_keys import ssh_keys
from claudeops.cli.reply import Exit, exit_for, print_document
from claudeops.cli.text.screen import progress
from claudeops.errors import ClaudeopsError, ConfigurationError
from claudeops.settings import Settings, load_settings
from claudeops.structs import replace
from claudeops.text.redact import Redactor

_NAME: Final = "doctor"
_SECONDS: Final = 60.0  # for one check
_SAID: Final = "The message says what to mend."

_OURS: Final = ("CLAUDEOPS_", "ANTHROPIC_", "CLAUDE_", "BROWSER_CRED_", "WATCHDOG_")

_TOGETHER: Final = ("CLAUDEOPS_OIDC_",)
"""How variables begin that mean something only together: where one is wrong, the others alone are no second fault."""

_WORST_FIRST: Final = (Exit.CONFIGURATION, Exit.UNAVAILABLE, Exit.TRY_LATER)

_STATUS_WORDS: Final[Mapping[FindingStatus, str]] = {
    FindingStatus.OK: "ok",
    FindingStatus.WARNING: "warning",
    FindingStatus.FAILED: "FAILED",
    FindingStatus.SKIPPED: "skipped",
}


async def _settings(case: DoctorContext, settings: Settings) -> Finding:
    elsewhere = machine.nothing_to_watch(settings.places.repos_dir)  # the check of the repositories reports it
    if warnings := [sentence for sentence in case.warnings if sentence != elsewhere]:
        return doubtful(" ".join(warnings), "Correct or unset what has no effect.")
    return fine("Valid, and free of contradictions.")


CHECKS: Final = (
    Check("settings", _settings),
    Check("directories", machine.directories, ("CLAUDEOPS_STATE_DIR", "CLAUDEOPS_RESULTS_DIR")),
    Check("repositories", machine.repositories, ("CLAUDEOPS_REPOS_DIR",)),
    Check("estate", estate),
    Check("disk space", machine.disk_space),
    Check("clock", machine.clock),
    Check("time zones", machine.time_zones, ("CLAUDEOPS_TIMEZONE",)),
    Check("tools", machine.tools),
    Check("prompts", sessions.prompts, ("CLAUDEOPS_PROMPT", "CLAUDEOPS_TIER?_PROMPT")),
    Check("library", sessions.library),
    Check("schedules", sessions.schedules, ("CLAUDEOPS_SCHEDULES_PATH",)),
    Check("policy", sessions.policy, ("CLAUDEOPS_POLICY_PATH", "CLAUDEOPS_*ALLOWED_TOOLS")),
    Check("schema", sessions.schema, ("CLAUDEOPS_SCHEMA_PATH",)),
    Check("probes", probes, ("CLAUDEOPS_PROBES_PATH",)),
    Check("alerts", people.alerts, ("CLAUDEOPS_ALERTS_PATH",)),
    Check("notify", people.notify, ("CLAUDEOPS_NOTIFY_PATH", "CLAUDEOPS_APPRISE_URLS*", "CLAUDEOPS_DIGEST_CRON")),
    Check("heartbeat", people.heartbeat, ("CLAUDEOPS_HEARTBEAT_URL*",)),
    Check("database", access.database, ("CLAUDEOPS_DATABASE_URL*",)),
    Check("daemon", access.daemon),
    Check(
        "listener",
        access.listener,
        (
            "CLAUDEOPS_APPROVAL_PASSKEY",
            "CLAUDEOPS_LISTENER",
            "CLAUDEOPS_DASHBOARD*",
            "CLAUDEOPS_PUBLIC_URL",
            "CLAUDEOPS_CHAT_API_KEY*",
            "CLAUDEOPS_TRUSTED_PROXY_SECRET*",
        ),
    ),
    Check("login provider", login_provider, ("CLAUDEOPS_OIDC_*",)),
    Check("isolation", sessions.isolation, ("CLAUDEOPS_ISOLATION", "CLAUDEOPS_CELL_NETWORK")),
    Check("network", network),
    Check("docker", docker),
    Check("kubernetes", kubernetes),
    Check("headers", headers, ("CLAUDEOPS_HEADERS_PATH",)),
    Check("access", sessions.access, ("CLAUDEOPS_TIER?_HOME", "CLAUDEOPS_TIER?_ENV")),
    Check("ssh keys", ssh_keys),
    Check("bounds", sessions.bounds, ("CLAUDEOPS_SESSION_*",)),
    Check("cli", sessions.cli, ("CLAUDEOPS_*_BIN", "CLAUDEOPS_HARNESS", "CLAUDEOPS_TIER?_HARNESS")),
    Check("gate", sessions.gate, ("CLAUDEOPS_CLI_SELF_TEST",)),
    Check("meter", access.meter, ("CLAUDEOPS_METER", "CLAUDEOPS_*BUDGET_USD")),
    Check("credentials", access.credentials, ("ANTHROPIC_*", "CLAUDE_CODE_OAUTH_TOKEN*")),
)
"""Every precondition; what others depend on comes first."""
_WIDTH: Final = max(len(check.name) for check in CHECKS)


def examine(*, as_json: bool) -> int:
    """Run all checks, print the findings, and return the exit status."""
    now = datetime.now(UTC)
    case = gather(os.environ, cwd=Path.cwd(), now=now)
    redact = Redactor(case.settings.secrets if case.settings else ()).text
    logs.configure(level="critical", fmt="auto", stream=sys.stderr, redact=redact)

    def print_finding(check: Check, finding: Finding) -> None:
        if not as_json:
            click.echo(_line(check, finding, redact))

    found = anyio.run(partial(_examine, case, print_finding))
    sysexit = next((code for code in _WORST_FIRST if code in {finding.sysexit for finding in found.values()}), Exit.OK)
    if not as_json:
        click.echo(f"\n{_summary(found)}")
        return sysexit
    return print_document(_NAME, _body(found, redact), sysexit, at=now)


def gather(environ: Mapping[str, str], *, cwd: Path, now: datetime) -> DoctorContext:
    """Return the settings, without the variables that make them invalid.

    The settings report only the first fault. To find the variable behind it, each one is left out in turn until the
    message changes.
    """
    left = dict(environ)
    refused: dict[str, str] = {}
    while True:
        try:
            loaded = load_settings(left, cwd=cwd)
        except ConfigurationError as error:
            culprit = _culprit(left, str(error), cwd=cwd)
            if culprit is None:
                return DoctorContext(settings=None, fault=str(error), refused=refused, warnings=(), now=now)
            refused[culprit] = str(error)
            del left[culprit]
            together = tuple(begin for begin in _TOGETHER if culprit.startswith(begin))
            left = {name: value for name, value in left.items() if not name.startswith(together)}
        else:
            return DoctorContext(
                settings=loaded.settings, fault=None, refused=refused, warnings=loaded.warnings, now=now
            )


def _culprit(environ: Mapping[str, str], sentence: str, *, cwd: Path) -> str | None:
    """Return the variable whose absence changes the message; those that the message names are tried first."""
    ours = [name for name in sorted(environ) if name.startswith(_OURS)]
    for name in sorted(ours, key=lambda name: name not in sentence):
        without = {other: value for other, value in environ.items() if other != name}
        try:
            load_settings(without, cwd=cwd)
        except ConfigurationError as error:
            if str(error) == sentence:
                continue
        return name
    return None


# --- running the checks ------------------------------------------------------------------------------


async def _examine(case: DoctorContext, on_finding: Callable[[Check, Finding], None]) -> dict[str, Finding]:
    """Run the checks concurrently; report each in order, as soon as it and those before it are done."""
    found: dict[str, Finding] = {}
    done = {check.name: anyio.Event() for check in CHECKS}

    async def look(check: Check, case: DoctorContext) -> None:
        found[check.name] = await run_check(check, case)
        done[check.name].set()

    async with anyio.create_task_group() as tasks:
        if case.settings is not None:
            case = replace(case, answer=access.SharedRequest(case.settings))
        for check in CHECKS:
            tasks.start_soon(look, check, case)
        for check in CHECKS:
            with progress(f"checking {check.name}"):
                await done[check.name].wait()
            on_finding(check, found[check.name])
    return {check.name: found[check.name] for check in CHECKS}


async def run_check(check: Check, case: DoctorContext) -> Finding:
    """Run one check; its faults, and a look that takes too long, are findings."""
    refused = _refused(check, case)
    if refused:
        return failed_with(" ".join(refused))
    if case.settings is None:
        if check.name == CHECKS[0].name:
            return failed_with(case.fault or "The settings cannot be read.")
        return skipped("Not checked: the settings must be valid first.")
    try:
        with anyio.fail_after(_SECONDS):
            return await check.look(case, case.settings)
    except TimeoutError:
        return failed(f"There was no answer within {_SECONDS:.0f} s.", "See what keeps this machine busy.")
    except ClaudeopsError as error:
        found = failed_with(error, sysexit=exit_for(error), kind=error.kind)
    except OSError as error:
        found = failed(f"This could not be checked ({error}).", "Let this user read what is named.")
    return found


def _refused(check: Check, case: DoctorContext) -> list[str]:
    """Return the faults of a check's variables; the first check gets those that no other one claims."""
    if check is not CHECKS[0]:
        return [sentence for name, sentence in case.refused.items() if _claims(check, name)]
    return [
        sentence for name, sentence in case.refused.items() if not any(_claims(other, name) for other in CHECKS[1:])
    ]


def _claims(check: Check, variable: str) -> bool:
    return any(fnmatch.fnmatchcase(variable, pattern) for pattern in check.variables)


# --- output ------------------------------------------------------------------------------------------


def _line(check: Check, finding: Finding, redact: Callable[[str], str]) -> str:
    line = f"{_STATUS_WORDS[finding.status]:<8} {check.name:<{_WIDTH}}  {redact(finding.text)}"
    below = [redact(text) for text in finding.lines]
    below += [f"→ {redact(finding.remedy)}"] if finding.remedy is not None else []
    return "\n".join([line, *(f"{'':<8} {'':<{_WIDTH}}  {text}" for text in below)])


def _summary(found: Mapping[str, Finding]) -> str:
    count = Counter(finding.status for finding in found.values())
    wrong = [f"{count[status]} {status}" for status in list(FindingStatus)[1:] if count[status]]
    return f"{count[FindingStatus.OK]} of {len(found)} checks are fine{': ' + ', '.join(wrong) if wrong else ''}."


def _body(found: Mapping[str, Finding], redact: Callable[[str], str]) -> dict[str, object]:
    checks = [
        {
            "name": name,
            "status": finding.status.value,
            "message": redact(finding.text),
            "remedy": None if finding.remedy is None else redact(finding.remedy),
        }
        for name, finding in found.items()
    ]
    body: dict[str, object] = {"healthy": True, "checks_count": len(checks), "checks": checks}
    body |= {
        name: _redacted(finding.document, redact) for name, finding in found.items() if finding.document is not None
    }
    first = next(((name, finding) for name, finding in found.items() if finding.status is FindingStatus.FAILED), None)
    if first is None:
        return body
    name, finding = first
    error = reply.error_body(
        kind=finding.kind,
        operation=_NAME,
        target=name,
        retryable=finding.sysexit in {Exit.UNAVAILABLE, Exit.TRY_LATER},
        message=redact(finding.text),
        hint=redact(finding.remedy or _SAID),
    )
    return {**body, "healthy": False, **error}


def _redacted(value: object, redact: Callable[[str], str]) -> object:
    """Return plain values without secrets."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(inner, redact) for inner in value]
    if isinstance(value, Mapping):
        return {redact(str(key)): _redacted(inner, redact) for key, inner in value.items()}
    return value
