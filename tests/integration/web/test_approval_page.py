"""One question as a page: whoever lets a call run has to see all of it, what it reaches, and what it did before."""

from __future__ import annotations

import html
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.domain.looks import Address, EvidenceLook
from claudeops.policy.judge import TierVerdict, tier_verdict
from claudeops.policy.replay import RecordedCall, ReplayBound, ReplayCount
from claudeops.policy.tiers import PolicyJudgement
from claudeops.structs import replace
from support.hostile import MARK, TEXTS
from support.listening import bearer
from support.lived_in import question
from support.paged import SiteDoor, site_door
from support.store_values import NOW, restart, started
from support.stores import Database

COMMAND = "cd /srv && docker restart web | tee log; ssh nas uptime"


class Knowing:
    """A policy that knows what a command reaches."""

    asked = 0
    tiers = (1, 2)
    text = ""

    async def judged(self, command: str, tier: int) -> TierVerdict | str:
        """Return what a gate would say."""
        self.asked += 1
        look = EvidenceLook(hosts=frozenset({"nas"}), addresses=frozenset({Address(host="web.example", port=80)}))
        verdict = Verdict(kind=VerdictKind.ASK, reason=f"{command} {tier}", actions=(restart(),), look=look)
        return tier_verdict(tier, PolicyJudgement(verdict=verdict))

    async def replay(
        self, text: str, calls: Callable[[int | None], Awaitable[Sequence[RecordedCall]]], count: ReplayCount
    ) -> ReplayBound | None:
        """Replay nothing."""
        raise NotImplementedError(text, calls, count)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        made.door.clock.at = NOW
        session = await started(made.store)
        given = json.dumps({"command": COMMAND})
        asked = replace(question(session), redacted_input=given, services=("web", "nas"), needed=2)
        await made.store.approvals.request_approval(asked)
        yield made


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(f"sqlite:///{tmp_path / 'claudeops.db'}")


async def text_of(site: SiteDoor) -> str:
    answer = await site.get("/approvals/1", bearer(2))
    assert answer.status == 200
    return html.unescape(answer.body.decode())


async def test_every_simple_command_of_the_call_stands_alone(site: SiteDoor) -> None:
    text = await text_of(site)
    for line in ("docker restart web", "tee log", "ssh nas uptime"):
        assert f"<code>{line}</code>" in text
    assert COMMAND in text
    assert "once 2 people have said yes" in text


async def test_services_hosts_and_the_limits_after_a_yes_are_named(site: SiteDoor) -> None:
    site.site.policy = Knowing()
    text = await text_of(site)
    assert 'href="/services/nas"' in text
    assert "nas, web.example" in text
    assert "1 of" in text
    assert "used after a yes" in text
    assert await text_of(site) == text
    assert site.site.policy.asked == 1, "a page that fetches itself again judges again and again"


async def test_what_the_gate_does_not_know_is_not_shown_as_nothing(site: SiteDoor, database: Database) -> None:
    database.execute("UPDATE approvals SET services = NULL")
    assert "not all are known" in await text_of(site)
    database.execute("UPDATE approvals SET services = '[]'")
    assert "not all are known" not in await text_of(site)


async def test_a_text_that_cannot_be_taken_apart_says_so(site: SiteDoor, database: Database) -> None:
    database.execute("UPDATE approvals SET input = :text", text=json.dumps({"command": "eval $(curl x) <<<"}))
    assert "These may not be all of its commands" in await text_of(site)


async def test_what_the_same_call_did_before_is_told_and_no_other_call(site: SiteDoor, database: Database) -> None:
    assert "It is not among the last" in await text_of(site)
    for name, given, error in (("a", COMMAND, 1), ("b", "docker ps", 0)):
        database.execute(
            "INSERT INTO tool_calls (session_id, tool_use_id, tool_name, input, verdict, reason, requested_at,"
            " decided_at, ended_at, is_error, previous_hash, hash)"
            " VALUES (1, :name, 'Bash', :given, 'allow', :reason, :at, :at, :at, :error, '', '')",
            name=name,
            given=json.dumps({"command": given}),
            reason=f"because of {name}",
            at="2026-03-01 11:00:00.000000",
            error=error,
        )
    before = (await text_of(site)).partition("The same call before")[2]
    assert "because of a" in before
    assert "failed" in before
    assert "because of b" not in before
    found = (await site.get("/api/v1/approvals/1", bearer(2))).json
    assert [call["reason"] for call in found["before"]] == ["because of a"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", TEXTS[::6], ids=range(len(TEXTS[::6])))
async def test_a_hostile_call_is_text_and_breaks_nothing(site: SiteDoor, database: Database, text: str) -> None:
    database.execute("UPDATE approvals SET input = :text", text=json.dumps({"command": text.replace("\x00", "")}))
    answer = await site.get("/approvals/1", bearer(2))
    page = answer.body.decode()
    assert answer.status == 200
    assert f"<script>window.{MARK}" not in page
    assert not set(page) & {"\x1b", "\u202e", "\u200b"}
    assert "request_crashed" not in site.door.log.getvalue()


async def test_a_question_that_there_is_not_is_not_found(site: SiteDoor) -> None:
    assert (await site.get("/approvals/2", bearer(2))).status == 404
    assert (await site.get("/api/v1/approvals/2", bearer(2))).status == 404
