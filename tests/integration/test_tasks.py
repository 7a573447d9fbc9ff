"""A task group for code whose errors have a caller to read them."""

from __future__ import annotations

import anyio
import pytest

from claudeops.errors import DatabaseUnavailableError
from claudeops.tasks import open_tasks

pytestmark = pytest.mark.anyio


async def test_a_callers_own_error_comes_out_as_it_is_from_groups_within_groups() -> None:
    with pytest.raises(DatabaseUnavailableError, match="is locked"):  # noqa: PT012 - groups are what is tested
        async with open_tasks() as outer:
            outer.start_soon(anyio.sleep_forever)
            async with open_tasks() as inner:
                inner.start_soon(anyio.sleep_forever)
                raise DatabaseUnavailableError("the database is locked")


async def test_what_two_tasks_fail_of_is_told_of_both() -> None:
    both = anyio.Event()

    async def fail(error: Exception) -> None:
        both.set()
        raise error

    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - two tasks are what is tested
        async with open_tasks() as tasks:
            tasks.start_soon(fail, ValueError("one"))
            tasks.start_soon(fail, OSError("another"))
            await both.wait()
    assert sorted(str(error) for error in caught.value.exceptions) == ["another", "one"]
