"""The API is as its description says, whatever is sent: schemathesis over its operations, with all of its checks.

It sends what the description allows and what it does not, walks from what one operation answers with to others, leaves
out the proof, takes wrong methods; and holds every answer against the statuses, media types, headers and schemas that
are described. No check is switched off.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Final

import pytest

from support.described import Findings, look, served_api
from support.doses import SEED_VARIABLE

DAILY: Final = 20
"""Operations of the daily dose."""

NEVER: Final = frozenset(
    {
        "POST /api/v1/passkeys",  # what an authenticator has signed
        "DELETE /api/v1/passkeys/{id}",
        "POST /api/v1/approvals/{id}/challenge",  # of whoever has a passkey
    }
)
"""Operations that nothing drawn can make do what they do; test_passkeys.py does."""


def told(found: Findings) -> str:
    return "\n\n".join(f"{name}\n{text}" for name, text in found.faults.items())


def test_whatever_is_sent_to_some_operations_is_answered_as_described(tmp_path: Path) -> None:
    with served_api(tmp_path) as served:
        seed = int(os.environ[SEED_VARIABLE])
        drawn = random.Random(seed).sample(served.operations, DAILY)  # noqa: S311 - no secret
        found = look(served, drawn, examples=5)
    assert not found.faults, told(found)
    assert set(found.statuses) == set(drawn)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_whatever_is_sent_to_any_operation_is_answered_as_described(tmp_path: Path) -> None:
    with served_api(tmp_path) as served:
        found = look(served, None, examples=150, seed=int(os.environ[SEED_VARIABLE]))
        operations = set(served.operations)
    assert not found.faults, told(found)
    done = {name for name, counts in found.statuses.items() if any(200 <= status < 300 for status in counts)}
    assert operations - done == NEVER, "an operation that never does anything was not looked at"
