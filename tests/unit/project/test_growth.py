"""What grows with every session is told from what only fills up."""

from __future__ import annotations

import pytest

from support.growth import Growth
from support.held import Held


def looks(count: int = 20, /, *, descriptors: float = 0.0, threads: float = 0.0, kib: float = 0.0) -> list[Held]:
    """Return looks after each fifty sessions at a daemon that grows by so much with each session."""
    return [
        Held(
            sessions=done,
            descriptors=16 + int(done * descriptors),
            threads=5 + int(done * threads),
            resident_mib=150.0 + done * kib / 1024,
            own_mib=130.0 + done * kib / 1024,
        )
        for done in range(50, 50 * count + 1, 50)
    ]


def test_what_stays_has_not_grown() -> None:
    growth = Growth.of(looks())
    assert growth.faults == []
    assert "nothing has grown" in str(growth)


def test_what_fills_up_at_the_beginning_has_not_grown() -> None:
    young = [Held(sessions=0, descriptors=4, threads=1, resident_mib=90.0, own_mib=70.0)] * 5
    assert Growth.of([*young, *looks(15)]).faults == []


@pytest.mark.parametrize(
    ("a_session", "said"),
    [
        ({"descriptors": 0.1}, "more descriptors"),
        ({"threads": 0.1}, "more threads"),
        ({"kib": 30.0}, "30.0 KiB more memory with each session"),
    ],
)
def test_what_grows_with_each_session_is_said(a_session: dict[str, float], said: str) -> None:
    (fault,) = Growth.of(looks(**a_session)).faults
    assert said in fault
