"""A hundred thousand wrapped commands, second half: a forbidden command stays forbidden however it is wrapped.

In two files, so that two test processes share them. A day draws a fifth of them.
"""

from __future__ import annotations

import pytest

from claudeops.domain.calls import VerdictKind
from support.doses import drawn
from support.policy_cases import judged
from support.wrapping import wrapped


@pytest.mark.parametrize("seed", drawn(range(10, 20), count=2))
def test_none_of_five_thousand_wrapped_commands_is_allowed(seed: int) -> None:
    texts = list(wrapped(seed, 5_000))
    assert len(set(texts)) == 5_000
    assert [text for text in texts if judged(text, 3).kind is VerdictKind.ALLOW] == []
