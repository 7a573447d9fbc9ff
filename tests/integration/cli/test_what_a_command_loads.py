"""An operator waits for each command, and most of a quick command's time is what it imports: modules are counted.

A budget is never raised. Whoever wants a module on the way of a quick command splits it, or passes what is needed.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from claudeops.cli.commands import claudeops
from support.migrated import write_migrated

SLACK: Final = 3
"""By which a command may be below its budget; one that is further below has its budget lowered."""

QUICK: Final = {
    "--help": 26,
    "health": 25,
    "version": 17,
    "status": 37,
    "ping nightly": 144,
    "list-approvals": 130,
    "approve 3": 130,
    "deny 3": 130,
    "pause": 122,
    "resume": 122,
    "memories list": 85,
    "list-incidents": 66,
    "incident 3": 75,
    "ack 3": 148,
    "resolve 3": 148,
    'silence a="b" --preview': 148,
    "end-silence 3": 148,
    "list-silences": 65,
    "chain 3": 97,
    "diff-chains 3 4": 112,
    "why": 127,
    "list-events": 80,
    "list-checks": 80,
    "list-actions": 136,
    "list-sources": 69,
    "list-nodes": 59,
    "stats": 69,
    "spend": 69,
    "audit verify": 79,
    "bootstrap-graph": 31,
    "list-sessions": 76,
    "load-session 3": 76,
    "backup copy.db": 121,
    "copy-database": 108,
    "migrate": 108,
    "user list": 114,
    "token list": 115,
    "completion bash": 13,
}
"""How many modules of ours a command may load that needs neither the settings as a whole nor a heavy library."""

THOROUGH: Final = {
    "stop 3": 317,
    "alerts replay nothing.json": 278,
    "probe": 386,
    "policy show": 264,
    "policy replay nothing.toml": 285,
    "show-tool Bash": 264,
    "remote-commands": 264,
    "exec-command tier1 look": 480,
    "exec-tool check:clock": 490,
    "show-command tier1": 311,
    "route look": 389,
    "command-graph": 323,
    "tool-pool": 311,
    "delete-session 3": 317,
    "flush-transcript 3": 400,
    "replay nothing.log": 400,
    "doctor": 493,
    "config": 143,
    "notify test ops": 137,
    "rehearse": 482,
    "migrate-from nothing.db": 309,
    "login-link": 306,
    "tail --no-follow": 329,
    "run": 199,  # before the trial of isolation begins, beside which the rest is loaded
    "bootstrap": 477,
}
"""The same of commands that read all settings, run something, or judge; those that open the store load all of it: also
leases, services under repair and failures of probes that wait for a decision."""

HEAVY: Final = frozenset(
    {
        *("alembic", "apprise", "jinja2", "jsonschema"),
        *("psycopg", "rich", "structlog", "yaml"),
    }
)
"""Libraries that each take as long to import as a quick command may run."""

DEFERRED: Final = frozenset({"asyncio.events", "email", "csv", "ssl"})
"""What SQLAlchemy's imports of asyncio and importlib.metadata load, for a use that no list makes of them."""

LONG: Final = frozenset({"run", "bootstrap", "exec-command tier1 look", "doctor", "rehearse"})
"""Commands that would work for long: they are called where the settings are invalid."""

# One process that has what all commands load of others, and forks for each: that makes seventy of them quick.
COUNTING: Final = """
import json, os, sys

def load(*names):
    for name in names:
        __import__(name)

def call(command, arguments, environment, outlet):
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.environ.update(environment)
    status = "ended otherwise"
    try:
        from claudeops.cli.main import main
        main(arguments)
    except SystemExit as end:
        status = end.code or 0
    finally:
        ours = sum(name.partition(".")[0] == "claudeops" for name in sys.modules)
        others = sorted({name.partition(".")[0] for name in sys.modules})
        with open(outlet, "w") as answer:
            json.dump({"command": command, "status": status, "ours": ours, "others": others}, answer)
        os._exit(0)

load("click", "msgspec", "sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql", "anyio._backends._asyncio")
for line in sys.stdin:
    if line == "\\n":
        load("jsonschema", "yaml", "structlog.dev", "tree_sitter_bash", "starlette.routing", "markdown_it")
        continue
    inlet, outlet = os.pipe()
    child = os.fork()
    if not child:
        call(*json.loads(line), outlet)
    os.close(outlet)
    with open(inlet) as answer:
        print(answer.read(), flush=True)
    os.waitpid(child, 0)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """What a command has loaded when it ends."""

    command: str
    status: int | str
    ours: int  # modules
    others: tuple[str, ...]  # packages


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Loaded]:
    """Call every command once, on a database that is set up and an estate of one service."""
    root = tmp_path_factory.mktemp("place")
    for name in ("state", "results", "repos/web"):
        (root / name).mkdir(parents=True)
    (root / "repos" / "web" / "README.md").write_text("# web\n", encoding="utf-8")
    write_migrated(root / "state" / "claudeops.db")
    (root / "state" / "approval.key").write_bytes(b"k" * 32)
    (root / "state" / "approval.key").chmod(0o600)
    places = {f"CLAUDEOPS_{name.upper()}_DIR": str(root / name) for name in ("state", "results", "repos")}

    def request(command: str) -> str:
        environment = {**places, "CLAUDEOPS_TIMEZONE": "nowhere"} if command in LONG else places
        return json.dumps([command, shlex.split(command), environment])

    lines = [*map(request, QUICK), "", *map(request, THOROUGH), ""]
    done = subprocess.run(
        [sys.executable, "-c", COUNTING],
        input="\n".join(lines),
        cwd=root,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = [
        Loaded(**{**answer, "others": tuple(answer["others"])}) for answer in map(json.loads, done.stdout.splitlines())
    ]
    return {each.command: each for each in found}


@pytest.mark.parametrize(("command", "budget"), [*QUICK.items(), *THOROUGH.items()])
def test_a_command_stays_within_its_budget_of_modules(command: str, budget: int, loaded: dict[str, Loaded]) -> None:
    found = loaded[command]
    assert isinstance(found.status, int), found.status
    assert budget - SLACK <= found.ours <= budget


@pytest.mark.parametrize("command", QUICK)
def test_a_quick_command_loads_no_heavy_library(command: str, loaded: dict[str, Loaded]) -> None:
    assert sorted(HEAVY & set(loaded[command].others)) == []


@pytest.mark.parametrize("command", ["list-events", "list-actions", "why", "chain 1", "audit verify"])
def test_a_command_that_reads_loads_nothing_that_sqlalchemy_alone_names(command: str, tmp_path: Path) -> None:
    """`audit verify` reads in a thread, and so needs asyncio after all: it gets it."""
    (tmp_path / "state").mkdir()
    write_migrated(tmp_path / "state" / "claudeops.db")
    program = "import atexit, sys; from claudeops.cli.main import main; atexit.register(lambda: print(*sys.modules)); "
    done = subprocess.run(
        [sys.executable, "-c", f"{program}main({command.split()})"],
        cwd=tmp_path,
        env={"CLAUDEOPS_STATE_DIR": "state"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    loaded = DEFERRED.intersection(done.stdout.splitlines()[-1].split())
    assert sorted(loaded) == (["asyncio.events", "ssl"] if command == "audit verify" else [])


@pytest.mark.parametrize("command", ["--help", "version", "completion bash"])
def test_a_command_without_a_database_loads_nothing_that_click_alone_names(command: str) -> None:
    program = "import atexit, sys; from claudeops.cli.main import main; atexit.register(lambda: print(*sys.modules)); "
    done = subprocess.run(
        [sys.executable, "-c", f"{program}main({command.split()})"], capture_output=True, text=True, check=True
    )
    assert sorted({"ast", "dis", "tokenize"}.intersection(done.stdout.splitlines()[-1].split())) == []


@pytest.mark.parametrize("command", ["--help", "list-events"])
def test_the_exit_searches_nothing_of_what_was_imported_for_circles(command: str, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    write_migrated(tmp_path / "state" / "claudeops.db")
    search = "lambda phase, _: os.write(2, b'%d\\n' % len(gc.get_objects())) if phase == 'start' else None"
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            f"import gc, os; from claudeops.cli.main import main; gc.callbacks.append({search}); main(['{command}'])",
        ],
        cwd=tmp_path,
        env={"CLAUDEOPS_STATE_DIR": "state"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    (searched,) = map(int, done.stderr.splitlines())
    assert searched < 1_000


def test_every_command_has_a_budget() -> None:
    """Of a group whose commands are one module, the budget of one is that of all."""
    assert {command.partition(" ")[0] for command in (*QUICK, *THOROUGH)} == {"--help", *claudeops.commands}


def test_sessions_are_paused_whatever_else_is_wrong_with_the_settings(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    write_migrated(tmp_path / "state" / "claudeops.db")
    done = subprocess.run(
        [sys.executable, "-m", "claudeops", "pause", "--reason", "a wrong setting"],
        cwd=tmp_path,
        env={"CLAUDEOPS_STATE_DIR": "state", "CLAUDEOPS_TIMEZONE": "nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "a wrong setting; no daemon runs" in done.stdout
