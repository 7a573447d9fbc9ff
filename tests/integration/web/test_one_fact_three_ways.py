"""What pages show, the API answers with, and commands print: none of the three knows what the others do not.

What each answers with is compared in test_api.py and test_acts.py; here is which belongs to which, so that nobody adds
a page, or a command that reads, without its operation of the API, or the reason why it has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
import pytest

from claudeops.cli.commands import claudeops
from claudeops.web.acting import ACTS
from claudeops.web.endpoints import Endpoint
from support.paged import site_door

PAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "/": ("/status", "/schedule"),
    "/incidents": ("/incidents", "/silences"),
    "/incidents/{number}": ("/incidents/{number}",),
    "/sessions": ("/sessions",),
    "/sessions/{id}": ("/sessions/{id}", "/sessions/{id}/lines", "/sessions/{id}/calls"),
    "/sessions/{id}/film": ("/sessions/{id}/film",),
    "/sessions/{id}/film.html": ("/sessions/{id}/film",),
    "/chains/{root}": ("/chains/{root}",),
    "/chains/{a}/diff/{b}": ("/chains/{a}/diff/{b}",),
    "/services": ("/services",),
    "/services/{name}": ("/services/{name}", "/services/{name}/checks"),
    "/events": ("/events",),
    "/approvals": ("/approvals",),
    "/approvals/{id}": ("/approvals/{id}",),
    "/spend": ("/spend",),
    "/why": ("/why",),
    "/actions": ("/actions", "/cooldowns"),
    "/memories": ("/memories",),
    "/memories/{id}": ("/memories/{id}",),
    "/silences": ("/silences",),
    "/silences/{id}": ("/silences/{id}",),
    "/schedule": ("/schedule",),
    "/notifications": ("/notifications",),
    "/settings": ("/settings",),
    "/audit": ("/audit", "/sessions/{id}/audit"),
    "/policy": ("/policy",),
    "/passkeys": ("/passkeys",),
    "/api": ("/openapi.json",),
}
"""Pages, and what answers programs with the same, below /api/v1."""

FOR_BROWSERS: Final = {
    "/more": "links to other pages",
    "/login": "a program has a token",
    "/login/oidc": "a program has a token",
    "/login/oidc/callback": "a program has a token",
    "/setup/{once}": "a program has a token",
    "/logout": "a program has a token",
}
"""Pages without an operation, and why."""

COMMANDS: Final[Mapping[str, str]] = {
    "status": "/status",
    "list-approvals": "/approvals",
    "list-incidents": "/incidents",
    "incident": "/incidents/{number}",
    "list-silences": "/silences",
    "list-sources": "/sources",
    "list-nodes": "/nodes",
    "chain": "/chains/{root}",
    "diff-chains": "/chains/{a}/diff/{b}",
    "why": "/why",
    "list-events": "/events",
    "list-checks": "/services/{name}/checks",
    "list-actions": "/actions",
    "spend": "/spend",
    "stats": "/figures",
    "probe": "/services/{name}",
    "audit verify": "/sessions/{id}/audit",
    "policy show": "/policy",
    "policy test": "/policy",
    "policy replay": "/policy/replay",
    "list-sessions": "/sessions",
    "load-session": "/sessions/{id}",
    "tail": "/sessions/{id}/lines",
    "config": "/settings",
    "memories list": "/memories",
    "token list": "/tokens",
    "stop": "/sessions/{id}/stop",
    "approve": "/approvals/{id}/answer",
    "deny": "/approvals/{id}/answer",
    "pause": "/pause",
    "resume": "/pause",
    "ack": "/incidents/{number}/ack",
    "resolve": "/incidents/{number}/resolve",
    "silence": "/silences",
    "end-silence": "/silences/{id}",
    "memories add": "/memories",
    "memories forget": "/memories/{id}",
    "memories restore": "/memories/{id}/restore",
    "memories confirm": "/memories/{id}/confirm",
    "token create": "/tokens",
    "token revoke": "/tokens/{id}",
    "bootstrap": "/sessions",
    "exec-command": "/sessions",
    "ping": "/heartbeats/{name}",
    "health": "/health",
}
"""Commands, and the operation that does the same or answers with the same."""

AT_THE_SHELL: Final[Mapping[str, str]] = {
    "run": "is the daemon",
    "doctor": "looks at the machine before a daemon runs",
    "rehearse": "starts a daemon of its own",
    "backup": "writes a file on the daemon's machine",
    "migrate": "brings the database to the release that is installed where it is called",
    "migrate-from": "runs while no daemon does",
    "copy-database": "runs while no daemon does",
    "delete-session": "there is no way back: whoever has the database file may",
    "flush-transcript": "repairs a record from a file",
    "replay": "tries a file of the operator's",
    "alerts replay": "tries a file of the operator's",
    "policy fragments": "is about the package, not the daemon",
    "policy migrate": "rewrites a file",
    "policy show-tool": "explains the rules of `policy show`",
    "remote-commands": "prints a script for another machine",
    "show-command": "is about files beside the daemon",
    "route": "is about files beside the daemon",
    "exec-tool": "looks from the machine at which it is called",
    "show-tool": "explains the rules of `policy show`",
    "command-graph": "is about the package",
    "tool-pool": "is about the package and the settings",
    "bootstrap-graph": "reads the daemon's own log",
    "notify test": "sends from the machine at which it is called",
    "login-link": "gives access: whoever has the database file may",
    "user add": "gives access: whoever has the database file may",
    "user list": "gives access: whoever has the database file may",
    "user set": "gives access: whoever has the database file may",
    "user remove": "gives access: whoever has the database file may",
    "version": "is about the package",
    "completion": "is about the shell",
}
"""Commands without an operation, and why."""


@pytest.fixture
async def rows(tmp_path: Path) -> list[Endpoint]:
    async with site_door(tmp_path) as site:
        return list(site.door.listener.table.rows)


def paths_of(rows: list[Endpoint]) -> set[str]:
    return {row.path.removeprefix("/api/v1") for row in rows if row.path.startswith("/api/v1/") and not row.page}


async def test_every_page_has_its_operation_or_the_reason_why_not(rows: list[Endpoint]) -> None:
    shown = {row.path for row in rows if row.page and row.method == "GET"}
    assert shown - FOR_BROWSERS.keys() == PAGES.keys()
    named = {path for paths in PAGES.values() for path in paths}
    assert named <= paths_of(rows)


async def test_every_form_has_its_operation(rows: list[Endpoint]) -> None:
    forms = {row.path for row in rows if row.page and row.method == "POST"}
    acts = {act.page for act in ACTS if act.page and act.api}
    assert forms - acts - FOR_BROWSERS.keys() == {"/policy/replay"}
    assert {path for act in ACTS for path in act.api} | {"/policy/replay"} <= paths_of(rows)


async def test_every_command_has_its_operation_or_the_reason_why_not(rows: list[Endpoint]) -> None:
    assert not COMMANDS.keys() & AT_THE_SHELL.keys()
    assert set(commands()) == COMMANDS.keys() | AT_THE_SHELL.keys()
    assert set(COMMANDS.values()) <= paths_of(rows)


def commands() -> Iterator[str]:
    for name, command in claudeops.commands.items():
        if isinstance(command, click.Group):
            yield from (f"{name} {own}" for own in command.commands)
        else:
            yield name
