"""A session's place in a trace is one that every tracing library takes, and can be found from its row."""

from __future__ import annotations

import re
import uuid

import pytest

from claudeops.wording.prompt.trace import trace_context

ROOT = "e346a7ab-20ca-487a-962c-2fad8db037c3"
CHILD = "8771fe2f-c82c-4bb5-b11c-f7967e1aa8d3"


def test_a_chain_is_one_trace_and_each_session_a_span_of_it() -> None:
    first, second = (trace_context(own, root_cli_session_id=ROOT) for own in (ROOT, CHILD))
    assert first.header == "00-e346a7ab20ca487a962c2fad8db037c3-962c2fad8db037c3-01"
    assert second.header == "00-e346a7ab20ca487a962c2fad8db037c3-b11cf7967e1aa8d3-01"


@pytest.mark.parametrize(
    "own", ["", "thread_7", "x" * 500, str(uuid.UUID(int=0)), "E346A7AB-20CA-487A-962C-2FAD8DB037C3"]
)
def test_an_id_that_somebody_else_chose_gives_a_valid_place_too(own: str) -> None:
    place = trace_context(own, root_cli_session_id=own)
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", place.header)
    assert int(place.trace_id, 16)
    assert int(place.span_id, 16)
