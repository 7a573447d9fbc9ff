"""A start waits for every module that a daemon loads, and the daemon holds it while it lives: they are counted.

The budget is never raised. Whoever wants a module or a library on this way imports it where it is first needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from claudeops.app.migration import as_answer, as_error
from claudeops.cli.reply import Exit
from claudeops.errors import ClaudeopsError, ConfigurationError, DatabaseUnavailableError, ErrorKind, StoreError
from claudeops.store.tables import HEAD
from support.estate import STAND_IN, deliver, look, report
from support.stand_in_daemon import stand_in_node, told

OURS: Final = 505
"""Modules of a daemon that does not listen, on a database that is there, after its first session."""

SLACK: Final = 3
"""By which a daemon may be below its budget; one that is further below has it lowered."""

NOT_LOADED: Final = frozenset(
    {
        *("alembic", "apprise", "cryptography", "dns", "jinja2", "jsonschema", "mako", "prometheus_client", "psycopg"),
        *("python_multipart", "referencing", "rich", "rpds", "wsgiref"),
        *("slack_sdk", "sqlalchemy.dialects.postgresql", "starlette.routing", "structlog", "urllib.request", "yaml"),
    }
)
"""What is needed once, for some settings, or by processes of their own."""

COUNTING: Final = """
import atexit, os, sys
def write():
    with open(os.environ["LOADED"], "w") as file:
        file.write("\\n".join(sys.modules))
atexit.register(write)
from claudeops.cli.main import main
main(["run"])
"""

BEFORE_ITS_TRIAL: Final = 201
"""Of these, those that it loads before a process is given the order to try what sessions can be run in."""

ORDERING: Final = """
import os, sys
from claudeops.app.start import trial
first = trial.surroundings
def counted(settings):
    with open(os.environ["LOADED"], "w") as file:
        file.write("\\n".join(sys.modules))
    return first(settings)
trial.surroundings = counted
from claudeops.cli.main import main
main(["run"])
"""

UNTIL_READY: Final = 458
"""Of these, those that it loads before it is ready; the rest is loaded for its first session."""

OF_SESSIONS: Final = frozenset({"email", "h11", "httpcore2", "importlib.metadata", "uvicorn"})
"""What a start does without: the meter's server and its HTTP client, and what they read of installed packages."""

GETTING_READY: Final = """
import os, sys
from claudeops.cli.main import DeferredModule, main
DeferredModule("importlib.metadata").stand_in()
from claudeops.engine.daemon import commands
first = commands.ServiceManager.ready
def counted(manager):
    with open(os.environ["LOADED"], "w") as file:
        file.write("\\n".join(name for name, each in sys.modules.items() if not isinstance(each, DeferredModule)))
    first(manager)
commands.ServiceManager.ready = counted
main(["run"])
"""

SAYING: Final = """
import os, sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "claudeops.app.daemon":
            with open(os.environ["LOADS"], "w") as fifo:
                fifo.write("it is being loaded\\n")
sys.meta_path.insert(0, Finder)
from claudeops.cli.main import main
main(["run"])
"""


async def test_a_daemon_stays_within_its_budget_of_modules(tmp_path: Path) -> None:
    loaded = await _loaded(tmp_path)

    assert OURS - SLACK <= sum(name.partition(".")[0] == "claudeops" for name in loaded) <= OURS
    assert sorted(NOT_LOADED & loaded) == []


async def test_what_sessions_can_be_run_in_is_tried_before_most_of_a_daemon_is_loaded(tmp_path: Path) -> None:
    loaded = await _loaded(tmp_path, program=ORDERING)

    assert BEFORE_ITS_TRIAL - SLACK <= sum(name.partition(".")[0] == "claudeops" for name in loaded) <= BEFORE_ITS_TRIAL
    assert sorted({"sqlalchemy", "uvicorn", "claudeops.app.wiring"} & loaded) == []


async def test_what_only_sessions_need_is_loaded_once_a_daemon_is_ready(tmp_path: Path) -> None:
    loaded = await _loaded(tmp_path, program=GETTING_READY)

    assert UNTIL_READY - SLACK <= sum(name.partition(".")[0] == "claudeops" for name in loaded) <= UNTIL_READY
    assert sorted((OF_SESSIONS | {"claudeops.engine.session.runner"}) & loaded) == []


async def test_a_database_that_is_new_is_migrated_by_a_process_of_its_own(tmp_path: Path) -> None:
    loaded = await _loaded(tmp_path, is_new=True)

    assert sorted({"alembic", "mako"} & loaded) == []
    (log,) = tmp_path.glob("daemon-*.log")
    assert f'"event":"database_migrated","before":null,"now":"{HEAD}"' in log.read_text(encoding="utf-8")


async def test_a_database_that_cannot_be_migrated_is_refused_in_the_same_sentence(tmp_path: Path) -> None:
    async with stand_in_node(tmp_path) as node:
        with node.operator.connect() as connection:
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '0000'"))

        done = await node.operator.run("run", **node.settings())

    assert done.code == Exit.SOFTWARE
    assert "cannot be migrated: Can't locate revision identified by '0000'." in done.stderr


@pytest.mark.parametrize(
    "error",
    [
        StoreError("one", operation="db.migrate", target="here"),
        DatabaseUnavailableError("two", retryable=False),
        ConfigurationError("three", kind=ErrorKind.PARSE, hint="look"),
    ],
)
def test_an_error_of_the_process_is_the_same_in_the_daemon(error: ClaudeopsError) -> None:
    there = as_answer(error)

    here = as_error(json.loads(json.dumps(there)))

    assert (type(here), str(here), vars(here)) == (type(error), str(error), vars(error))


def test_the_modules_of_a_daemon_look_for_no_plugins_in_the_files_of_all_installed_packages() -> None:
    program = """if True:
        import importlib.metadata, sys
        opened = []
        sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
        import claudeops.app.daemon, claudeops.app.node
        print([name for name in opened if name.endswith("entry_points.txt")])
        print(len(importlib.metadata.entry_points(group="console_scripts")) > 0)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True"]


def test_all_statements_of_a_daemon_that_compare_two_sessions_share_one_alias_of_their_table() -> None:
    program = """if True:
        import gc
        import claudeops.app.daemon, claudeops.app.node
        from sqlalchemy import Alias
        from claudeops.store.tables.sessions import sessions
        aliases = [each for each in gc.get_objects() if isinstance(each, Alias) and each.element is sessions]
        print(sum("c" in vars(alias) for alias in aliases))  # the columns are copied at their first use
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


async def _loaded(root: Path, *, is_new: bool = False, program: str = COUNTING) -> set[str]:
    """Return what a daemon has loaded, after its first session."""
    file = root / "loaded.txt"
    async with stand_in_node(root, is_new=is_new) as node:
        node.operator.forks, node.operator.runs = False, (sys.executable, "-c", program)
        node.script(look(), deliver(report()))
        async with node.daemon(LOADED=str(file)) as daemon:
            await daemon.until_logged("session_ended")
    return set(file.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("order", [b"", b'{"url": "sqlite:'])
def test_a_daemon_that_dies_before_its_order_is_given_leaves_nothing_to_read(order: bytes) -> None:
    command = [sys.executable, "-I", "-m", "claudeops.app.migration"]
    done = subprocess.run(command, input=order, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


async def test_the_cli_answers_with_its_version_while_the_rest_is_loaded(tmp_path: Path) -> None:
    """The CLI of this test says nothing before the module that runs a daemon is imported."""
    fifo, cli = tmp_path / "loads", tmp_path / "cli"
    os.mkfifo(fifo)
    cli.write_text(f'#!/bin/sh\n[ "$*" = --version ] && read line <{fifo}\nexec {STAND_IN} "$@"\n', encoding="utf-8")
    cli.chmod(0o755)
    async with stand_in_node(tmp_path) as node:
        node.operator.forks, node.operator.runs = False, (sys.executable, "-c", SAYING)
        async with node.daemon(CLAUDEOPS_CLAUDE_BIN=str(cli), LOADS=str(fifo)) as daemon:
            await daemon.until_logged("daemon_ready")
            found, starting = told(daemon, "cli_found"), told(daemon, "daemon_starting")

    assert (len(found), len(starting)) == (1, 1)
