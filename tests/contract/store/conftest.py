"""No statement of the store's tests reads a big table from one end to the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.plans import watched_plans


@pytest.fixture(autouse=True)
def no_big_table_is_scanned() -> Iterator[None]:
    with watched_plans() as scans:
        yield
    assert not scans, "\n\n".join(scans)
