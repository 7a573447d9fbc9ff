"""An operator's shell within a test: commands are called in this process, in JSON mode, and answer with a document."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import anyio
import pytest

from claudeops.cli.command_line import call
from claudeops.store.store import Store
from support.envelopes import fault_of
from support.estate import STAND_IN
from support.operating import DUMMY_KEY
from support.stores import Database, opened

Document = dict[str, object]
T = TypeVar("T")


@dataclass
class Shell:
    """Where commands are called: one directory with everything, and nothing else in the environment."""

    root: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    @property
    def database(self) -> Database:
        return Database(f"sqlite:///{self.root / 'state' / 'claudeops.db'}")

    def ask(self, *arguments: str) -> Document:
        """Call a command; return its document, which fits the exit status and the schema of its command."""
        code, written, complaints = self.call(*arguments, "--output-format", "json")
        document = json.loads(written)
        fault = fault_of(document)
        if document["exit_code"] != code or fault is not None:
            pytest.fail(f"{code}, {fault}: {document}; {complaints}")
        return cast("Document", document)

    def call(self, *arguments: str) -> tuple[int, str, str]:
        """Call a command as it is; return exit status, stdout and stderr."""
        code = call(list(arguments))
        written = self.capsys.readouterr()
        return code, written.out, written.err

    def set(self, **environment: str) -> None:
        """Set variables of the environment."""
        for name, value in environment.items():
            self.monkeypatch.setenv(name, value)

    def script(self, *steps: Mapping[str, object]) -> None:
        """Let tier 1 run a stand-in that does these steps."""
        file = self.root / "steps.json"
        file.write_text(json.dumps(steps), encoding="utf-8")
        self.set(
            CLAUDEOPS_CLAUDE_BIN=str(STAND_IN),
            CLAUDEOPS_TIER1_ENV="STAND_IN_STEPS",
            STAND_IN_STEPS=str(file),
            CLAUDEOPS_ISOLATION="none",
            CLAUDEOPS_METER="off",
            CLAUDEOPS_CLI_SELF_TEST="false",
            ANTHROPIC_API_KEY=DUMMY_KEY,
            PATH=os.defpath,
        )

    def prepare(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Do something on the database before a command is called."""

        async def on_store() -> T:
            async with opened(self.database) as store:
                return await work(store)

        return anyio.run(on_store)


def shell_in(
    root: Path, template: Path | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Return a shell below ``root``, with a copy of a migrated database unless ``template`` is ``None``."""
    for name in ("state", "results", "repos/estate"):
        (root / name).mkdir(parents=True)
    (root / "repos" / "estate" / "CLAUDE-OPS.md").write_text("# web\nhttp://127.0.0.1:1/\n", encoding="utf-8")
    if template is not None:
        shutil.copyfile(template, root / "state" / "claudeops.db")
    monkeypatch.chdir(root)
    shell = Shell(root, monkeypatch, capsys)
    shell.set(
        CLAUDEOPS_STATE_DIR=str(root / "state"),
        CLAUDEOPS_RESULTS_DIR=str(root / "results"),
        CLAUDEOPS_REPOS_DIR=str(root / "repos"),
    )
    return shell


def keys(value: object) -> Sequence[str]:
    """Return the keys of an object of a document."""
    assert isinstance(value, dict)
    return list(value)
