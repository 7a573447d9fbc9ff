"""Whatever a look meets, it leaves no descriptor behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.certificates import Authority, make_authority


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    before = sockets()
    yield
    assert sockets() - before == set()


def sockets() -> set[str]:
    """Return the sockets and pipes that this process has open."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(str(entry.readlink()))
        except OSError:  # the listing's own
            continue
    return {name for name in found if name.startswith(("socket:", "pipe:"))}


@pytest.fixture(scope="session")
def authority() -> Authority:
    return make_authority()
