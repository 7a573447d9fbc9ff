"""Every contract vector through a real session: the lines as a CLI prints them, the verdict as the row holds it.

Eight sessions a test, one after the other in one database: a session costs a process, a vector is not worth one
database of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from claudeops.domain.chains.outcome import NO_RESULT_WARNING
from support.doses import drawn
from support.estate import Estate
from support.streams import as_line, vectors

Row: TypeAlias = Mapping[str, Any]
Vector: TypeAlias = dict[str, Any]

pytestmark = pytest.mark.anyio

CLAUDITOR = vectors("clauditor")
CODEX = vectors("codex")
CALIBAN = [vector for vector in vectors("caliban") if "stdin" not in vector]  # what a command of ours is given
HEURISTICS = ("interactive-hang:", "background-task:")


def batches(cases: list[Vector]) -> list[Any]:
    remaining = iter(cases)
    found = iter(lambda: list(islice(remaining, 8)), [])
    return [pytest.param(batch, id=f"{batch[0]['id']}-{batch[-1]['id']}") for batch in found]


def lines_of(vector: Vector) -> list[str]:
    return [as_line(line).decode() for line in vector["lines"]]


def differences(got: Mapping[str, Any], vector: Vector) -> str:
    """Return how a row differs from what a vector expects, of the keys that a row can answer; blank if it does not."""
    wrong = {key: (got[key], value) for key, value in vector["expect"].items() if key in got and got[key] != value}
    return f"{vector['id']} ({vector['note']}): {wrong}" if wrong else ""


def warnings_of(row: Row) -> list[str]:
    """Return the warnings about the stream and its end; those about the report have their own tests."""
    return [warning for warning in json.loads(row["warnings"]) if not warning.startswith(("rejected ", "unproven-"))]


def prefixes_held(row: Row, vector: Vector) -> bool:
    expected, found = vector["expect"].get("warn"), warnings_of(row)
    if expected is None:
        return True
    pairs = zip(found, expected, strict=False)
    return len(found) == len(expected) and all(warning.startswith(prefix) for warning, prefix in pairs)


# --- clauditor ----------------------------------------------------------------------------------------


async def clauditors_session(estate: Estate, vector: Vector) -> Row:
    binary = estate.context.clis.binaries["claude"]
    estate.with_context(
        hang_heuristics=vector.get("hang", True),
        background_tasks_off=vector.get("env", {}).get("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS") == "1",
        binaries={**estate.context.clis.binaries, "claude": Path(vector.get("bin", binary))},
    )
    printed = {"raw": "".join(f"{line}\n" for line in lines_of(vector))}
    row = await estate.finished(printed, {"stderr": vector.get("stderr", "")}, {"exit": vector.get("rc", 0)})
    estate.with_context(binaries={**estate.context.clis.binaries, "claude": binary})
    return row


def clauditors_view(row: Row) -> dict[str, Any]:
    hung = [warning for warning in warnings_of(row) if warning.startswith(HEURISTICS)]
    succeeded = row["exit_code"] == 0 and bool((row["response"] or "").strip())
    return {
        "output": row["response"] or "",
        "error": row["error"],
        "cat": row["error_category"],
        "tok": [row["input_tokens"], row["output_tokens"]],
        "key": row["api_key_source"],
        "clean": succeeded and not (row["error"] or row["error_category"] or hung),
        "exit": -1 if row["outcome"] == "spawn_failed" else row["exit_code"],
    }


@pytest.mark.parametrize("batch", drawn(batches(CLAUDITOR)))
async def test_clauditor(estate: Estate, batch: list[Vector]) -> None:
    wrong = []
    for vector in batch:
        await estate.release_holds()
        row = await clauditors_session(estate, vector)
        wrong.append(differences(clauditors_view(row), vector))
        assert prefixes_held(row, vector), f"{vector['id']}: {warnings_of(row)}"
        assert row["harness"] == "claude"
        if not vector["lines"] or NO_RESULT_WARNING in warnings_of(row):
            assert row["outcome"] in {"no_result", "spawn_failed"}, vector["id"]
    assert not list(filter(None, wrong))


# --- codex --------------------------------------------------------------------------------------------


async def codex_session(estate: Estate, vector: Vector) -> Row:
    more = {"last": vector["last"]} if "last" in vector else {}
    return await estate.one_shot(
        "codex", lines=lines_of(vector), rc=vector.get("rc", 0), stderr=vector.get("stderr", ""), **more
    )


def codex_view(row: Row, log: list[str], vector: Vector) -> dict[str, Any]:
    metadata = {"thread_id": row["cli_session_id"], "turn_count": row["num_turns"]}
    told = vector["expect"].get("meta", {})
    return {
        "output": row["response"] or "",
        "error": row["error"],
        "cat": row["error_category"],
        "tok": [row["input_tokens"], row["output_tokens"]],
        # What the row has no column for is the reader's test.
        "meta": {**told, **{key: value for key, value in metadata.items() if key in told}},
        # The tag is the row's; the events stand in the log as they came.
        "tagged": row["harness"] == "codex" and log == lines_of(vector),
    }


@pytest.mark.parametrize("batch", drawn(batches(CODEX)))
async def test_codex(estate: Estate, batch: list[Vector]) -> None:
    wrong = []
    for vector in batch:
        await estate.release_holds()
        row = await codex_session(estate, vector)
        log = Path(row["log_path"]).read_text(encoding="utf-8").splitlines()
        wrong.append(differences(codex_view(row, log, vector), vector))
        assert prefixes_held(row, vector), f"{vector['id']}: {warnings_of(row)}"
        assert row["outcome"] == ("error" if "error" in vector["expect"] else "success"), vector["id"]
        assert row["cost_usd"] is None
    assert not list(filter(None, wrong))


# --- caliban ------------------------------------------------------------------------------------------


def calibans_view(row: Row, events: list[list[str]]) -> dict[str, Any]:
    return {
        "outcome": row["outcome"],
        "cat": row["error_category"],
        "error": row["error"],
        "text": row["response"] or "",
        "session_id": row["cli_session_id"],
        "tok": [row["input_tokens"], row["output_tokens"]],
        "turns": row["num_turns"],
        "cost": row["cost_usd"],
        "tools": row["tool_calls_seen"],
        "events": events,
    }


def events_of(estate: Estate, row: Row) -> Iterator[list[str]]:
    """Yield level and kind of the events that a CLI's own warnings left."""
    query = "SELECT level, fingerprint FROM events WHERE fingerprint LIKE 'cli_warning:%' AND last_session_id = "
    for event in estate.rows(f"{query}{int(row['id'])}"):
        yield [str(event["level"]), str(event["fingerprint"]).partition(":")[2]]


@pytest.mark.parametrize("batch", drawn(batches(CALIBAN)))
async def test_caliban(estate: Estate, batch: list[Vector]) -> None:
    wrong = []
    for vector in batch:
        await estate.release_holds()
        row: Row = await estate.one_shot("caliban", lines=lines_of(vector), rc=vector.get("rc", 0))
        view = calibans_view(row, list(events_of(estate, row)))
        wrong.append(differences(view, vector))
        assert prefixes_held(row, vector), f"{vector['id']}: {warnings_of(row)}"
        if "method" in vector["expect"]:
            assert row["extraction_method"] == vector["expect"]["method"]
        if vector["expect"].get("schema_error"):
            assert any(warning.startswith("rejected structured_output") for warning in json.loads(row["warnings"]))
    assert not list(filter(None, wrong))


def test_no_vector_is_left_out() -> None:
    batched = [
        vector for cases in (CLAUDITOR, CODEX, CALIBAN) for batch in batches(cases) for vector in batch.values[0]
    ]
    assert len(batched) == 41 + 13 + 20
