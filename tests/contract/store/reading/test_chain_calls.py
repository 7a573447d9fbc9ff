"""What a chain's timeline is drawn of: all sessions of the chain, and none of another."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.store.reading.chain_calls import calls_of
from claudeops.store.store import Store
from support.lived_in import something_of_everything

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.dialect


async def test_the_calls_of_a_chain_are_those_of_its_sessions(store: Store) -> None:
    first = await something_of_everything(store)

    found = await store.database.read(lambda connection: calls_of(connection, first.id))
    other = await store.database.read(lambda connection: calls_of(connection, first.id + 1))

    (call,) = found.calls
    assert (call.session_id, call.tier, call.tool_name, call.verdict) == (first.id, 1, "Bash", VerdictKind.ALLOW)
    assert found.model_calls == ()
    assert other.calls == ()
