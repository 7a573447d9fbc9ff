"""The vectors of the envelope contract: what a command is asked, and what it answers.

A vector's ``s1`` is our session 1: `load-session` takes ``1`` and ``s1``, and documents say ``"1"``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from claudeops.domain.sessions import Session
from claudeops.store.store import Store
from support.commanding import Shell, shell_in
from support.envelopes import fault_of
from support.estate import report
from support.store_values import RULES, ending, started

pytest_plugins = ("support.store_fixtures",)

VECTORS: Final = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data" / "vectors" / "envelope.jsonl").read_text().splitlines()
]


@pytest.fixture
def shell(
    tmp_path: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return shell_in(tmp_path, migrated_sqlite, monkeypatch, capsys)


# --- what is given ------------------------------------------------------------------------------------


def running_with_five_prompts(shell: Shell) -> None:
    shell.prepare(started)
    shell.database.execute("UPDATE sessions SET num_turns = 5")


def ended(shell: Shell, log: bytes | None = None) -> None:
    async def end(store: Store) -> Session:
        session = await started(store)
        await store.queue.finish(ending(session), rules=RULES)
        return session

    session = shell.prepare(end)
    file = shell.root / "results" / "session-000001.ndjson"
    file.write_bytes(_log(session) if log is None else log)
    shell.database.execute("UPDATE sessions SET log_path = :path", path=str(file))


def _log(session: Session) -> bytes:
    named = {"session_id": session.cli_session_id}
    frames = [
        {"type": "system", "subtype": "init", **named},
        {
            "type": "assistant",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "Well."}]},
            **named,
        },
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "num_turns": 1,
            "result": "Well.",
            "usage": {"input_tokens": 12, "output_tokens": 3},
            "total_cost_usd": 0.01,
            **named,
        },
    ]
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


def garbage(shell: Shell) -> None:
    ended(shell, b"\x00\xff\xfe\x80" * 64)


def host_down(shell: Shell) -> None:
    shell.set(CLAUDEOPS_DATABASE_URL="postgres://u:secret@127.0.0.1:1/db")


def highest_is_two(shell: Shell) -> None:
    shell.set(CLAUDEOPS_MAX_TIER="2")


def succeeds(shell: Shell) -> None:
    shell.script({"result": {"structured_output": report(), "result": "All is well."}})


def says_nothing(shell: Shell) -> None:
    shell.script({"result": {"result": ""}})


def ignores_sigterm(shell: Shell) -> None:
    shell.set(CLAUDEOPS_STOP_GRACE="1", CLAUDEOPS_RESULT_GRACE="1")
    shell.script({"ignore": ["SIGTERM", "SIGINT", "interrupt"]}, {"hang": True})


def noisy(shell: Shell) -> None:
    shell.set(CLAUDEOPS_VERBOSE="1", CLAUDEOPS_LOG_LEVEL="debug")


def no_database(shell: Shell) -> None:
    (shell.root / "state" / "claudeops.db").unlink()


GIVEN: Final[Mapping[str, Callable[[Shell], None]]] = {
    "W02": running_with_five_prompts,
    "W04": ended,
    "W11": host_down,
    "W13": highest_is_two,
    "W14": succeeds,
    "W16": ignores_sigterm,
    "W17": garbage,
    "W19": ended,
    "W25": noisy,
    "W26": says_nothing,
    "W28": no_database,
}


# --- what is wanted -----------------------------------------------------------------------------------


def differences(wanted: object, found: object, document: Mapping[str, object], place: str = "$") -> Iterator[str]:
    """Yield where a document is not as wanted: ``~`` is a pattern, ``#`` computed, a shorter list a beginning."""
    if isinstance(wanted, Mapping):
        yield from _in_object(wanted, found, document, place)
    elif isinstance(wanted, list):
        yield from _in_list(wanted, found, document, place)
    elif not _fits(wanted, found, document):
        yield f"{place}: {found!r} is not {wanted!r}"


def _in_object(
    wanted: Mapping[str, object], found: object, document: Mapping[str, object], place: str
) -> Iterator[str]:
    if not isinstance(found, Mapping):
        yield f"{place}: {found!r} is no object"
        return
    yield from (f"{place}.{name} is missing" for name in wanted if name not in found)
    for name in wanted.keys() & found.keys():
        yield from differences(wanted[name], found[name], document, f"{place}.{name}")


def _in_list(wanted: list[object], found: object, document: Mapping[str, object], place: str) -> Iterator[str]:
    if not isinstance(found, list) or len(found) < len(wanted) or (not wanted and found):
        yield f"{place}: {found!r} is not {wanted!r}"
        return
    for number, (one, other) in enumerate(zip(wanted, found, strict=False)):
        yield from differences(one, other, document, f"{place}[{number}]")


def _fits(wanted: object, found: object, document: Mapping[str, object]) -> bool:
    if isinstance(wanted, str) and wanted.startswith("~"):
        return re.search(_ours(wanted[1:]), str(found)) is not None
    if isinstance(wanted, str) and wanted.startswith("#"):
        return _computed(wanted[1:], found, document)
    if wanted == "s1":
        return found in {"1", "s1"}  # a name is repeated as it was asked
    return wanted == found and type(wanted) is type(found)


def _ours(pattern: str) -> str:
    return "1" if pattern == "s1" else pattern


def _computed(expression: str, found: object, document: Mapping[str, object]) -> bool:
    if expression == "0..1":
        return isinstance(found, int | float) and 0 <= found <= 1
    (name,) = re.findall(r"^len\((\w+)\)$", expression)
    counted = document[name]
    return isinstance(counted, list) and found == len(counted)


@pytest.mark.parametrize("vector", VECTORS, ids=[str(vector["id"]) for vector in VECTORS])
def test_a_vector_is_answered_as_the_contract_has_it(vector: Mapping[str, Any], shell: Shell) -> None:
    number = str(vector["id"])
    assert number in GIVEN or "given" not in vector
    if number in GIVEN:
        GIVEN[number](shell)
    if vector["stdout"] is None:
        refused_in_text(vector, shell)
        return
    check(vector, shell)
    if "then" in vector:
        check(vector["then"], shell)


def refused_in_text(vector: Mapping[str, Any], shell: Shell) -> None:
    code, out, err = shell.call(*vector["argv"])
    assert (code, out) == (vector["exit"], "")
    assert str(vector["stderr"])[1:] in err


def check(vector: Mapping[str, Any], shell: Shell) -> None:
    code, out, err = shell.call(*vector["argv"])
    (document,) = map(json.loads, out.splitlines())
    assert list(differences(vector["stdout"], document, document)) == [], (document, err)
    assert code == vector["exit"] == document["exit_code"]
    assert [name for name in vector.get("absent", ()) if name in document] == []
    assert fault_of(document) is None
