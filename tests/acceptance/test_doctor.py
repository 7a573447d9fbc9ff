"""Each precondition is broken once, for real; the doctor names that one, says the remedy, and goes on with the rest."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import anyio
import pytest

from claudeops.engine.cell import cell
from claudeops.engine.cell.cell import USER_HOMES
from claudeops.scripted_api.script import Script
from claudeops.scripted_api.server import serve
from support.checkout import TESTS
from support.doses import drawn
from support.forks import can_fork, run_forked
from support.operating import COMMAND, DUMMY_KEY, Operator, conclude, look, operator
from support.ports import kept_port
from support.senders import starts_nothing
from support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")]

LEAKY = TESTS / "support" / "leaky_cli.py"
TOOLS = ("bash", "bwrap", "curl", "df", "free", "grep", "head", "jq", "ping", "ps", "sort", "ss", "ssh", "tail", "wc")
MACHINE = {
    "clock",
    "isolation",
    "bounds",
}  # whether somebody keeps the clock, and allows namespaces, is this machine's affair
DAY_SECONDS = 86400


@dataclass(frozen=True)
class Patient:
    """What the doctor said."""

    code: int
    document: dict[str, object]

    @property
    def checks(self) -> dict[str, dict[str, str]]:
        found = self.document["checks"]
        assert isinstance(found, list)
        return {check["name"]: check for check in found}

    def of(self, status: str) -> set[str]:
        return {name for name, check in self.checks.items() if check["status"] == status}

    def told(self, name: str) -> str:
        check = self.checks[name]
        assert check["status"] in {"failed", "warning"}, check
        assert check["remedy"], check
        return f"{check['message']} {check['remedy']}"

    def only(self, name: str, *words: str, code: int = 1, sysexit: int = 78) -> None:
        """Assert that this check failed and no other one, and that the sentence holds these words."""
        assert self.of("failed") == {name}, self.checks
        told = self.told(name)
        assert [word for word in words if word not in told] == [], told
        assert (self.code, self.document["sysexit"], self.document["healthy"]) == (code, sysexit, False)
        error = self.document["error"]
        assert isinstance(error, dict)
        assert (error["operation"], error["target"]) == ("doctor", name)


@asynccontextmanager
async def patient(root: Path, *, script_tools: Sequence[str] = TOOLS, is_new: bool = True) -> AsyncIterator[Operator]:
    """Give an operator with whom nothing is wrong, on whatever machine: its tools are all there."""
    async with operator(root, haiku=[look(), conclude()]) as node:
        if is_new:
            node.forget_database()
        for name in ("state", "results", "bin"):
            (root / name).mkdir(mode=0o700, exist_ok=True)
        for name in script_tools:
            (root / "bin" / name).symlink_to(shutil.which(name) or "/bin/true")
        yield node


async def examine(node: Operator, *before: str, without: Sequence[str] = (), **environment: str) -> Patient:
    """Run the doctor; ``before`` is what it is started by."""
    surroundings = node.environment(**{"PATH": str(node.root / "bin"), **environment})
    for name in without:
        del surroundings[name]
    arguments = ("doctor", "--output-format", "json")
    with anyio.fail_after(PATIENCE_SECONDS):
        if before or not can_fork(surroundings):
            command = [*before, *COMMAND, *arguments]
            done = await anyio.run_process(command, env=surroundings, cwd=node.root, check=False)
        else:
            done = await run_forked(arguments, env=surroundings, cwd=node.root)
    assert DUMMY_KEY.encode() not in done.stdout + done.stderr
    assert done.stderr == b"", done.stderr
    return Patient(done.returncode, json.loads(done.stdout))


def inside(*arguments: str) -> tuple[str, ...]:
    """Return how to start something that sees this machine with some change."""
    return (shutil.which("bwrap") or "bwrap", "--dev-bind", "/", "/", "--die-with-parent", *arguments, "--")


async def test_a_broken_text_is_named_and_so_is_what_a_tier_cannot_reach(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        texts = tmp_path / "repos" / "media" / ".claude-ops" / "checks"
        texts.mkdir(parents=True)
        (texts / "film.md").write_text("no front matter\n", encoding="utf-8")
        found = await examine(node)
    assert found.of("failed") == set(), found.checks
    assert "media/.claude-ops/checks/film.md:1: it does not begin with a line +++" in found.told("library")
    access = found.checks["access"]
    assert access["status"] == "ok"
    assert "Tier 1, 2, 3: docker: it is not installed where this tier runs;" in access["message"]
    assert "kubectl: it is not installed where this tier runs;" in access["message"]


async def test_with_nothing_wrong_nothing_is_wrong(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        found = await examine(node, CLAUDEOPS_CLI_SELF_TEST="true")
        text = await node.run("doctor", PATH=str(tmp_path / "bin"))
        left = sorted(path.name for path in (tmp_path / "state").iterdir())
    assert found.of("failed") | found.of("skipped") | (found.of("warning") - MACHINE) == set(), found.checks
    assert (found.code, found.document["healthy"], found.document["command"]) == (0, True, "doctor")
    assert "error" not in found.document
    assert text.code == 0
    assert len([line for line in text.stdout.splitlines() if line.startswith(("ok ", "warning "))]) == len(found.checks)
    assert left == []


# --- the estate -----------------------------------------------------------------------------------------


async def test_the_estate_is_shown_as_it_is_understood_with_file_and_line_of_what_is_not(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        (tmp_path / "repos" / "shop").mkdir()
        (tmp_path / "repos" / "shop" / "CLAUDE-OPS.md").write_text(
            "# Services\n\n- shop (web1, aka store): https://shop.example.org/, needs db; Sun 03:00-05:00\n"
            "- db (web1)\n- cache: Sun whenever\n\n## Maintenance\n\n- db: Sun 03:00-05:00 UTC\n\n"
            "# Rules\n\n- never restart the database\n"
        )
        (tmp_path / "repos" / "broken").mkdir()
        (tmp_path / "repos" / "broken" / "CLAUDE-OPS.md").write_bytes(b"\xff\xfe\n")
        found = await examine(node)
        text = await node.run("doctor", PATH=str(tmp_path / "bin"))
    told = found.told("estate")
    assert "2 things could not be used" in told
    estate = found.document["estate"]
    assert isinstance(estate, dict)
    assert estate["other_names"] == {
        "store": "shop", "web1/shop": "shop", "web1/store": "shop", "web1/db": "db",
    }  # fmt: skip
    assert [(fault["path"], fault["line"]) for fault in estate["faults"]] == [
        ("broken/CLAUDE-OPS.md", 1),
        ("shop/CLAUDE-OPS.md", 9),
    ]
    shop = next(one for one in estate["repositories"] if one["repository"] == "shop")
    assert shop["services"][0]["maintenance"] == ["Sun 03:00-05:00"]
    assert [rule["services"] for rule in shop["forbidden"]] == [["db"]]
    assert (
        "shop: on web1; at https://shop.example.org/; also called store; needs db; away Sun 03:00-05:00" in text.stdout
    )
    assert "! shop/CLAUDE-OPS.md:9: " in text.stdout
    assert "forbidden: every action on db (shop/CLAUDE-OPS.md:13: never restart the database)" in text.stdout


# --- settings and files ---------------------------------------------------------------------------------

SETTINGS = {
    "a bad value": ({"CLAUDEOPS_INTERVAL": "soon"}, "settings", "CLAUDEOPS_INTERVAL"),
    "an unknown name": ({"CLAUDEOPS_INTERVALL": "5"}, "settings", "CLAUDEOPS_INTERVALL"),
    "no repositories": ({"CLAUDEOPS_REPOS_DIR": "/no/such/repos"}, "repositories", "/no/such/repos"),
    "no prompt": ({"CLAUDEOPS_TIER2_PROMPT": "/no/such/prompt.md"}, "prompts", "/no/such/prompt.md"),
    "no policy": ({"CLAUDEOPS_POLICY_PATH": "/no/such/policy.toml"}, "policy", "/no/such/policy.toml"),
    "no schema": ({"CLAUDEOPS_SCHEMA_PATH": "/no/such/schema.json"}, "schema", "/no/such/schema.json"),
    "no CLI": ({"CLAUDEOPS_CLAUDE_BIN": "/no/such/claude"}, "cli", "/no/such/claude"),
    "no such time zone": ({"CLAUDEOPS_TIMEZONE": "Mars/Olympus"}, "time zones", "Mars/Olympus"),
    "a gate that nobody asks": ({"CLAUDEOPS_HARNESS": "codex"}, "cli", "codex"),
    "no database address": ({"CLAUDEOPS_DATABASE_URL": "mysql://db/x"}, "database", "CLAUDEOPS_DATABASE_URL"),
    "no budget": ({"CLAUDEOPS_DAILY_BUDGET_USD": "-1"}, "meter", "CLAUDEOPS_DAILY_BUDGET_USD"),
    "two accounts": ({"CLAUDE_CODE_OAUTH_TOKEN": "oauth-dummy"}, "credentials", "CLAUDE_CODE_OAUTH_TOKEN"),
}


@pytest.mark.parametrize(
    ("changes", "check", "word"), drawn((pytest.param(*case, id=name) for name, case in SETTINGS.items()), count=2)
)
async def test_a_setting_that_is_wrong(changes: dict[str, str], check: str, word: str, tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        (await examine(node, **changes)).only(check, word)


async def test_a_fault_hides_no_other_one_and_each_is_named_with_its_remedy(tmp_path: Path) -> None:
    written = tmp_path / "results" / "session-000001.ndjson"
    words = {
        "settings": ("CLAUDEOPS_INTERVAL",),
        "prompts": ("prompt.md",),
        "policy": ("policy.toml",),
        "schema": ("draft-07",),
        "cli": ("2.1.100", "2.1.236"),
        "tools": ("curl", "apt-get install curl"),
        "clock": (written.name, "set back"),
        "credentials": ("ANTHROPIC_API_KEY",),
    }
    async with patient(tmp_path, script_tools=[name for name in TOOLS if name != "curl"]) as node:
        (tmp_path / "prompt.md").write_text("/model opus", encoding="utf-8")  # which the CLI would take for a command
        (tmp_path / "policy.toml").write_text("version = 1\n[tiers.1]\ntools = 5\n", encoding="utf-8")
        (tmp_path / "schema.json").write_text('{"type": "objekt"}', encoding="utf-8")
        (tmp_path / "claude").write_text("#!/bin/sh\necho 2.1.100\n")
        (tmp_path / "claude").chmod(0o755)
        written.write_text("{}\n", encoding="utf-8")
        tomorrow = time.time() + DAY_SECONDS
        os.utime(written, (tomorrow, tomorrow))
        found = await examine(
            node,
            without=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
            CLAUDEOPS_INTERVAL="soon",
            CLAUDEOPS_PROMPT=str(tmp_path / "prompt.md"),
            CLAUDEOPS_POLICY_PATH=str(tmp_path / "policy.toml"),
            CLAUDEOPS_SCHEMA_PATH=str(tmp_path / "schema.json"),
            CLAUDEOPS_CLAUDE_BIN=str(tmp_path / "claude"),
        )
    assert found.of("failed") == set(words), found.checks
    assert found.of("skipped") == set()
    for name, wanted in words.items():
        told = found.told(name)
        assert [word for word in wanted if word not in told] == [], told


async def test_no_bubblewrap_where_it_is_demanded(tmp_path: Path) -> None:
    async with patient(tmp_path, script_tools=[name for name in TOOLS if name != "bwrap"]) as node:
        (await examine(node, CLAUDEOPS_ISOLATION="bubblewrap")).only("isolation", "bwrap", "apt-get install bubblewrap")


async def test_a_weaker_level_is_no_failure_and_says_what_is_in_the_way(tmp_path: Path) -> None:
    async with patient(tmp_path, script_tools=[name for name in TOOLS if name != "bwrap"]) as node:
        found = await examine(node)
    assert found.checks["isolation"]["status"] == "warning"
    assert "apt-get install bubblewrap" in found.checks["isolation"]["remedy"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give sessions another user")
async def test_users_of_sessions_that_ssh_would_look_for_in_vain(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        found = await examine(node, CLAUDEOPS_ISOLATION="user")
    # On a machine where somebody has listed them there is nothing to say.
    missing = cell.unlisted(USER_HOMES)
    assert (f"Of 64 such users {missing} are on no list" in found.checks["isolation"]["message"]) is (missing > 0)
    assert ("systemd-sysusers" in found.checks["isolation"]["remedy"]) is (missing > 0)


async def test_a_header_whose_key_is_not_set_and_one_that_cannot_be_added(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        file = tmp_path / "headers.toml"
        file.write_text('[[headers]]\nhost = "127.0.0.1"\nport = 9\nname = "X-Key"\nvalue = "${WANTED_KEY}"\n')
        (await examine(node, CLAUDEOPS_HEADERS_PATH=str(file))).only("headers", "WANTED_KEY, which is not set")
        given = {"CLAUDEOPS_HEADERS_PATH": str(file), "WANTED_KEY": "hush-hush-hush"}
        shared = await examine(node, CLAUDEOPS_ISOLATION="none", **given)
    assert shared.checks["headers"]["status"] == "warning"
    assert "No header is added for https://127.0.0.1:9 (X-Key)" in shared.checks["headers"]["message"]
    assert "hush" not in str(shared.checks)


# --- the machine ----------------------------------------------------------------------------------------


async def test_a_directory_that_belongs_to_somebody_else(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        state = tmp_path / "state"
        if os.geteuid() == 0:
            os.chown(state, 12345, 12345)
        else:
            state.chmod(0o500)
        found = await examine(node, *inside("--unshare-user", "--uid", "4711", "--gid", "4711"))
        state.chmod(0o700)
    assert "directories" in found.of("failed")
    told = found.told("directories")
    assert "user 4711 may not write" in told
    assert f"chown -R 4711 {state}" in told.replace("Run ", "run ")


async def test_a_directory_on_a_read_only_file_system_and_another_one_on_a_disk_that_is_full(tmp_path: Path) -> None:
    state, results = str(tmp_path / "state"), str(tmp_path / "results")
    async with patient(tmp_path) as node:
        small = ("--size", str(20 * 1024 * 1024), "--tmpfs", state)
        found = await examine(node, *inside("--ro-bind", results, results, *small))
    assert found.of("failed") == {"directories", "disk space"}, found.checks
    assert [word for word in ("read-only", results) if word not in found.told("directories")] == []
    assert [word for word in ("MiB are left", state) if word not in found.told("disk space")] == []


# --- the database ---------------------------------------------------------------------------------------


async def test_a_database_that_somebody_else_has_locked(tmp_path: Path) -> None:
    async with patient(tmp_path, is_new=False) as node:
        with node.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            (await examine(node)).only("database", "locked", sysexit=69)


async def test_a_database_that_is_none(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        node.database.write_bytes(b"not a database at all" * 1000)
        found = await examine(node)
    assert found.of("failed") == {"database"}


async def test_a_database_of_a_newer_version(tmp_path: Path) -> None:
    async with patient(tmp_path, is_new=False) as node:
        with node.connect() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        (await examine(node)).only("database", "9999")


async def test_a_database_server_that_is_away(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        with kept_port() as nobody:
            url = f"postgresql://ops:hush-hush-hush@127.0.0.1:{nobody}/watch"
            found = await examine(node, CLAUDEOPS_DATABASE_URL=url)
        found.only("database", str(nobody), sysexit=69)
        assert "hush" not in json.dumps(found.document)


async def test_a_daemon_from_elsewhere_that_holds_the_database(tmp_path: Path) -> None:
    async with patient(tmp_path) as node, node.daemon(**starts_nothing(tmp_path)) as daemon:
        await daemon.until_logged("daemon_ready")
        assert str(daemon.process.pid) in (await examine(node)).checks["daemon"]["message"]
        other = await examine(
            node,
            CLAUDEOPS_STATE_DIR=str(tmp_path / "other"),
            CLAUDEOPS_DATABASE_URL=f"sqlite:///{node.database}",
        )
        other.only("daemon", "CLAUDEOPS_DATABASE_URL", sysexit=75)


# --- the CLI and the model API --------------------------------------------------------------------------


async def test_a_cli_whose_gate_has_a_hole(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        (tmp_path / "bin" / "python3").symlink_to(os.path.realpath("/usr/bin/python3"))
        shutil.copy(LEAKY, tmp_path / "cli-denied")
        found = await examine(
            node,
            CLAUDEOPS_CLAUDE_BIN=str(tmp_path / "cli-denied"),
            CLAUDEOPS_CLI_SELF_TEST="true",
            PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin",
        )
    found.only("gate", "a call that was denied ran")


async def test_a_meter_that_is_switched_off_or_knows_no_price(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        off = await examine(node, CLAUDEOPS_METER="off")
        unknown = await examine(node, CLAUDEOPS_TIER2_MODEL="claude-novel-9")
    assert {"meter"} <= off.of("warning") & unknown.of("warning")
    assert "not counted one by one" in off.told("meter")
    assert "There is no price for claude-novel-9" in unknown.told("meter")


async def test_credentials_that_are_refused(tmp_path: Path) -> None:
    script = Script.from_mapping({"tiers": {"haiku": {"steps": [conclude()]}}})
    async with patient(tmp_path) as node, serve(script, expected_key="another") as api:
        found = await examine(node, ANTHROPIC_BASE_URL=api.url)
        asked = [(seen.method, seen.path) for seen in api.requests]
    found.only("credentials", "refuses", "401", "ANTHROPIC_API_KEY")
    assert asked == [("GET", "/v1/models?limit=1"), ("POST", "/v1/messages/count_tokens")]


async def test_a_model_api_that_is_away(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        with kept_port() as nobody:
            found = await examine(node, ANTHROPIC_BASE_URL=f"http://127.0.0.1:{nobody}")
    found.only("credentials", "cannot be reached", sysexit=69)


class Gateway(BaseHTTPRequestHandler):
    """Answers every request with one status, at one time of day, and keeps what it was sent."""

    status: ClassVar[int] = 200
    behind_seconds: ClassVar[int] = 0
    seen: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers.get("x-api-key")))
        self.send_response_only(self.status)
        self.send_header("Date", self.date_time_string(time.time() - self.behind_seconds))
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
        """Say nothing."""


@contextmanager
def gateway(*, status: int = 200, behind_seconds: int = 0) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    handler = type("ThisGateway", (Gateway,), {"status": status, "behind_seconds": behind_seconds, "seen": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", handler.seen  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            thread.join()


async def test_a_redirect_gets_no_key(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        with gateway(status=302) as (url, seen):
            (await examine(node, ANTHROPIC_BASE_URL=url)).only("credentials", "redirect")
    assert seen == [("/v1/models?limit=1", DUMMY_KEY)]


async def test_a_clock_that_differs_from_the_model_apis(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        with gateway(behind_seconds=3600) as (url, _):
            (await examine(node, ANTHROPIC_BASE_URL=url)).only("clock", "ahead of the model API")


async def test_an_overloaded_api_is_no_judgement_of_the_key(tmp_path: Path) -> None:
    async with patient(tmp_path) as node:
        with gateway(status=529) as (url, _):
            found = await examine(node, ANTHROPIC_BASE_URL=url)
    assert found.checks["credentials"]["status"] == "warning"
    assert found.code == 0
