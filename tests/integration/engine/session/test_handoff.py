"""The handoff file: read once, never followed elsewhere, never waited for, never silently ignored."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import pytest

from claudeops.domain.events import EventLevel
from claudeops.domain.report.report import Escalation, Extraction, ExtractionMethod, Report
from claudeops.engine.session.files import HANDOFF_BYTES, OUTRANKED, apply_handoff, take_handoff
from claudeops.formats.report.markers import Handoff, HandoffError
from claudeops.text.redact import Redactor
from support.estate import Estate, deliver, look, report
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

SECRET = 'planted-"secret"-value'
NOTHING = Extraction(method=ExtractionMethod.NONE, report=None)


def handoff(**changes: object) -> dict[str, object]:
    return {
        "schema_version": 1,
        "recommended_tier": 2,
        "services_affected": ["web"],
        "check_results": [{"service": "web", "check_type": "http", "status": "down", "error": "502"}],
        "investigation_findings": "The upstream is gone.",
        **changes,
    }


def leave(state_dir: Path, document: object) -> Path:
    file = state_dir / "handoff.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document, indent=2), encoding="utf-8")
    return file


async def take(state_dir: Path, *, current_tier: int = 1, max_tier: int = 3) -> Handoff | HandoffError | None:
    with anyio.fail_after(PATIENCE_SECONDS):
        return await take_handoff(
            state_dir, current_tier=current_tier, max_tier=max_tier, redactor=Redactor([SECRET, "planted-secret-2"])
        )


async def test_handoff_is_read_once_and_removed(tmp_path: Path) -> None:
    file = leave(tmp_path, handoff())

    first, second = await take(tmp_path), await take(tmp_path)

    assert isinstance(first, Handoff)
    assert first.services_affected == ("web",)
    assert second is None
    assert not file.exists()


async def test_session_that_left_nothing_left_nothing_wrong(tmp_path: Path) -> None:
    assert await take(tmp_path) is None
    assert await take(tmp_path / "gone") is None


async def test_secret_in_a_handoff_is_taken_out_before_anything_is_made_of_it(tmp_path: Path) -> None:
    leave(
        tmp_path, handoff(investigation_findings=f"the password is {SECRET}", remediation_attempted="planted-secret-2")
    )

    taken = await take(tmp_path)

    assert isinstance(taken, Handoff)
    assert (taken.investigation_findings, taken.remediation_attempted) == ("the password is [redacted]", "[redacted]")


@pytest.mark.parametrize(
    ("document", "says"),
    [
        pytest.param(handoff(recommended_tier=1), "not above tier 1", id="same tier"),
        pytest.param(handoff(recommended_tier=4), "maximum is 3", id="above the maximum"),
        pytest.param(handoff(services_affected=[]), "services_affected", id="no service"),
        pytest.param("", "invalid", id="empty"),
        pytest.param('{"schema_version": 1', "invalid", id="cut off"),
        pytest.param("\x00" * 4096, "invalid", id="a crash's zeros"),
    ],
)
async def test_handoff_that_is_wrong_is_a_sentence_and_gone(tmp_path: Path, document: object, says: str) -> None:
    file = leave(tmp_path, document)

    taken = await take(tmp_path)

    assert isinstance(taken, HandoffError)
    assert says in taken.message
    assert not file.exists()


async def test_bytes_that_are_no_text_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "handoff.json").write_bytes(bytes(range(256)) * 100)

    assert isinstance(await take(tmp_path), HandoffError)


@pytest.mark.parametrize(("surplus", "kind"), [(0, Handoff), (1, HandoffError)], ids=["just fits", "one byte more"])
async def test_file_is_read_up_to_its_bound(tmp_path: Path, surplus: int, kind: type) -> None:
    text = json.dumps(handoff())
    file = leave(tmp_path, text + " " * (HANDOFF_BYTES - len(text) + surplus))

    assert isinstance(await take(tmp_path), kind)
    assert not file.exists()


def _link_to_file(place: Path, elsewhere: Path) -> None:
    place.symlink_to(leave(elsewhere, handoff()))


def _link_to_nothing(place: Path, elsewhere: Path) -> None:
    place.symlink_to(elsewhere / "nothing")


def _pipe(place: Path, _: Path) -> None:
    os.mkfifo(place)


def _device(place: Path, _: Path) -> None:
    place.symlink_to("/dev/zero")


@pytest.mark.parametrize("put", [_link_to_file, _link_to_nothing, _pipe, _device])
async def test_what_is_no_plain_file_is_neither_followed_nor_waited_for(
    tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    state.mkdir()
    elsewhere.mkdir()
    put(state / "handoff.json", elsewhere)

    taken = await take(state)

    assert isinstance(taken, HandoffError)
    assert "cannot be read: " in taken.message
    assert list(state.iterdir()) == []
    assert [file.name for file in elsewhere.iterdir()] in ([], ["handoff.json"])


async def test_directory_in_the_files_place_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "handoff.json").mkdir()

    taken = await take(tmp_path)

    assert isinstance(taken, HandoffError)
    assert taken.message == "the handoff file cannot be read: not a regular file."


async def test_state_directory_that_was_swapped_for_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere, state = tmp_path / "elsewhere", tmp_path / "state"
    elsewhere.mkdir()
    file = leave(elsewhere, handoff())
    state.symlink_to(elsewhere)

    assert isinstance(await take(state), HandoffError)
    assert file.exists()


# --- what becomes of it ---------------------------------------------------------------------------------


async def test_valid_handoff_without_a_report_asks_for_the_next_tier(tmp_path: Path) -> None:
    leave(tmp_path, handoff())

    extraction, events = apply_handoff(NOTHING, await take(tmp_path))

    assert events == ()
    assert extraction.method is ExtractionMethod.MARKERS
    assert extraction.report is not None
    assert extraction.report.escalation.needed


async def test_wrong_handoff_is_a_critical_event_and_changes_no_conclusion(tmp_path: Path) -> None:
    leave(tmp_path, handoff(recommended_tier=1))

    extraction, (event,) = apply_handoff(NOTHING, await take(tmp_path))

    assert extraction is NOTHING
    assert (event.level, event.fingerprint) == (EventLevel.CRITICAL, "handoff_invalid")
    assert event.message == (
        "A session left word for the next tier that cannot be followed: "
        "the handoff file asks for tier 1, which is not above tier 1."
    )


@pytest.mark.parametrize("method", [ExtractionMethod.STRUCTURED, ExtractionMethod.SALVAGED])
async def test_handoff_beside_a_validated_report_is_only_mentioned(tmp_path: Path, method: ExtractionMethod) -> None:
    said = Extraction(method=method, report=Report(summary="All well.", escalation=Escalation(needed=False)))
    leave(tmp_path, handoff())

    extraction, events = apply_handoff(said, await take(tmp_path))

    assert (extraction.report, extraction.method, events) == (said.report, method, ())
    assert extraction.warnings == (OUTRANKED,)


def test_without_a_file_nothing_is_changed() -> None:
    assert apply_handoff(NOTHING, None) == (NOTHING, ())


# --- a whole session ------------------------------------------------------------------------------------


def leaving(**changes: object) -> dict[str, object]:
    """Return a step: the CLI's tools leave a handoff file."""
    return {"leave": {"handoff.json": json.dumps(handoff(**changes))}}


async def ended(estate: Estate, *steps: Mapping[str, object]) -> dict[str, object]:
    """Run a session that delivers no report but what its steps leave."""
    estate.with_context(repair_turn=False)
    return await estate.finished(look(), *steps)


async def test_session_that_leaves_a_handoff_is_followed_by_the_next_tier(estate: Estate) -> None:
    row = await ended(estate, leaving(), {"result": {}}, {"await_eof": True})

    assert (row["extraction_method"], row["decision_reason"]) == ("markers", "escalated")
    following = estate.row(2)
    assert (following["tier"], following["trigger"]) == (2, "escalation")
    told = json.loads(str(following["context"]))
    assert (told["findings"], told["failed_checks"]) == ("The upstream is gone.", ["web http: down (502)"])
    assert list((estate.root / "state" / "sessions").glob("*")) == []


async def test_handoff_of_a_cli_that_was_killed_is_not_lost(estate: Estate) -> None:
    row = await ended(estate, leaving(), {"exit": 137})

    assert (row["outcome"], row["decision_reason"]) == ("no_result", "escalated")


async def test_wrong_handoff_of_a_session_is_a_critical_event_beside_the_missing_report(estate: Estate) -> None:
    row = await ended(estate, leaving(recommended_tier=1), {"result": {}}, {"await_eof": True})

    assert (row["extraction_method"], row["decision_reason"]) == ("none", "no_report")
    events = estate.rows("SELECT level, fingerprint FROM events ORDER BY id")
    assert [event["level"] for event in events] == ["critical", "critical"]
    assert events[0]["fingerprint"] == "handoff_invalid"


async def test_handoff_asks_in_vain_beside_a_report_that_was_delivered(estate: Estate) -> None:
    row = await ended(estate, leaving(), deliver(report()))

    assert (row["extraction_method"], row["decision_reason"]) == ("structured", "healthy")
    assert OUTRANKED in json.loads(str(row["warnings"]))
    assert estate.rows("SELECT id FROM events") == []


@pytest.mark.parametrize("changes", [{}, {"recommended_tier": 1}], ids=["valid", "wrong"])
async def test_without_the_legacy_nobody_looks_for_a_handoff(estate: Estate, changes: dict[str, object]) -> None:
    estate.with_context(legacy_markers=False)

    row = await ended(estate, leaving(**changes), {"result": {}}, {"await_eof": True})

    assert row["decision_reason"] == "no_report"
    assert [event["level"] for event in estate.rows("SELECT level FROM events")] == ["critical"]
