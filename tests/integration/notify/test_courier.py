"""The real courier, with Apprise, at receivers that answer, refuse and hang."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import pytest

from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import DeliveryOutcome
from claudeops.domain.notices.refusals import CONTENT, RefusalSubject
from claudeops.notify.channels.apprise import Courier
from claudeops.notify.delivery import DeliveryResult
from claudeops.wording.notices.texts import NoticeMessage
from support.aftermath import processes_of
from support.loop_time import loop_time
from support.receivers import Receiver, receiving
from support.waiting import until

LONG: Final = 3600.0


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as served:
        yield served


def messages(count: int) -> list[NoticeMessage]:
    return [
        NoticeMessage(title=f"CRITICAL · {number}", body="<b>it</b> is *down*", level=EventLevel.CRITICAL)
        for number in range(count)
    ]


async def delivered(address: str, count: int = 1, **courier: float) -> dict[int, DeliveryResult]:
    told: dict[int, DeliveryResult] = {}
    await Courier(environment={}, **courier).deliver(address, messages(count), told)
    return told


async def test_messages_arrive_as_they_were_written(receiver: Receiver) -> None:
    told = await delivered(receiver.address, 3)

    assert [told[number].result for number in range(3)] == [DeliveryOutcome.DELIVERED] * 3
    assert receiver.titles == ["CRITICAL · 0", "CRITICAL · 1", "CRITICAL · 2"]
    assert receiver.bodies == ["<b>it</b> is *down*"] * 3
    assert {said["type"] for said in receiver.heard} == {"failure"}


async def test_a_courier_goes_through_the_proxy_and_its_password_is_in_no_environment(receiver: Receiver) -> None:
    proxies = {"http_proxy": f"http://alice:proxy-password@127.0.0.1:{receiver.port}"}
    receiver.holds = True
    told: dict[int, DeliveryResult] = {}

    async with anyio.create_task_group() as tasks:
        address = "json://notifications.invalid/token"
        tasks.start_soon(Courier(environment=proxies).deliver, address, messages(1), told)
        await until(lambda: bool(receiver.heard))
        (courier,) = processes_of("claudeops.notify.courier")
        begun_with = (courier.environ(), courier.cmdline())
        receiver.released.set()

    assert "proxy-password" not in str(begun_with)
    assert "notifications.invalid" not in str(begun_with)
    assert told == {0: DeliveryResult(result=DeliveryOutcome.DELIVERED)}


async def test_one_refused_message_does_not_stop_the_others(receiver: Receiver) -> None:
    receiver.statuses = [400]

    told = await delivered(receiver.address, 3)

    assert [told[number].result for number in range(3)] == [
        DeliveryOutcome.FAILED,
        DeliveryOutcome.DELIVERED,
        DeliveryOutcome.DELIVERED,
    ]


async def test_a_target_that_fails_is_not_asked_to_the_end(receiver: Receiver) -> None:
    receiver.statuses = [500] * 5

    told = await delivered(receiver.address, 5)

    assert [each.result for each in told.values()] == [DeliveryOutcome.FAILED] * 2
    assert "500" in told[0].error
    assert "0123456789abcdef" not in told[0].error


@pytest.mark.parametrize("address", ["json://127.0.0.1:1/token", "nonsense://nowhere"])
async def test_an_address_that_leads_nowhere_is_a_failure(address: str) -> None:
    told = await delivered(address)

    assert told[0].result is DeliveryOutcome.FAILED
    assert told[0].error


async def test_a_target_that_hangs_may_have_been_told_and_its_courier_is_gone_in_time(receiver: Receiver) -> None:
    receiver.holds = True
    told: dict[int, DeliveryResult] = {}

    with loop_time() as time, anyio.fail_after(2 * LONG):
        async with anyio.create_task_group() as tasks:
            courier = Courier(environment={}, message_seconds=2 * LONG, deadline_seconds=LONG)
            tasks.start_soon(courier.deliver, receiver.address, messages(2), told)
            await until(lambda: bool(receiver.heard))
            time.leap(LONG)

    assert {index: each.result for index, each in told.items()} == {
        0: DeliveryOutcome.UNKNOWN
    }  # the second was not tried


async def test_a_target_that_hangs_is_given_up_by_the_courier_itself(receiver: Receiver) -> None:
    receiver.holds = True

    told = await delivered(receiver.address, 2, message_seconds=1.0)

    assert {index: each.result for index, each in told.items()} == {0: DeliveryOutcome.UNKNOWN}


async def test_what_is_known_when_the_caller_is_cancelled_stands(receiver: Receiver) -> None:
    told: dict[int, DeliveryResult] = {}
    with anyio.move_on_after(0.01):
        await Courier(environment={}).deliver(receiver.address, messages(1), told)

    unknown = DeliveryResult(result=DeliveryOutcome.UNKNOWN, error="the courier ended before it knew")
    assert told.get(0) in {None, unknown}


@pytest.mark.parametrize("binary", ["/bin/false", "/bin/true", "/bin/cat"])  # cat repeats the order, which is no report
async def test_a_courier_that_ends_without_a_word_has_failed_its_first_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, binary: str
) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nexec {binary}\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))

    told = await delivered("json://127.0.0.1/0123456789abcdef", 3)

    assert told == {0: DeliveryResult(result=DeliveryOutcome.FAILED, error="the courier ended before it had begun")}


async def test_a_courier_that_is_stopped_with_its_daemon_has_failed_nothing() -> None:
    told: dict[int, DeliveryResult] = {}
    with anyio.CancelScope() as scope:
        scope.cancel()
        await Courier(environment={}).deliver("json://127.0.0.1/0123456789abcdef", messages(1), told)

    assert told == {}


@pytest.mark.parametrize("status", [400, 403, 413, 422])
async def test_messages_that_are_refused_for_what_they_say_keep_no_other_waiting(
    receiver: Receiver, status: int
) -> None:
    receiver.statuses = [status] * 3

    told = await delivered(receiver.address, 5)

    assert [told[number].result for number in range(5)] == [DeliveryOutcome.FAILED] * 3 + [
        DeliveryOutcome.DELIVERED
    ] * 2
    assert [told[number].cause for number in range(5)] == [CONTENT] * 3 + [None] * 2


@pytest.mark.parametrize(
    ("status", "cause"), [(401, RefusalSubject.TARGET), (404, RefusalSubject.TARGET), (429, None), (503, None)]
)
async def test_a_server_that_takes_nothing_is_not_asked_to_the_end(
    receiver: Receiver, status: int, cause: RefusalSubject | None
) -> None:
    receiver.statuses = [status] * 5

    told = await delivered(receiver.address, 5)

    assert len(told) == 2
    assert {each.cause and each.cause.refusal for each in told.values()} == {cause}
