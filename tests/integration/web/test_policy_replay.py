"""A policy that is tried on calls on record: it comes into force nowhere, and no change is missing or invented."""

from __future__ import annotations

import html
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import urlencode

import anyio
import pytest

from claudeops.app import policy as in_force
from claudeops.app.policy import LoadedPolicy
from claudeops.domain.access.logins import Role
from claudeops.engine.cell.cell import workspace_places
from claudeops.policy.judge import TierVerdict
from claudeops.policy.replay import RecordedCall, ReplayBound, ReplayCount
from claudeops.structs import replace
from support.aftermath import processes_of
from support.hostile import MARK, TEXTS
from support.listening import Answered, bearer, token_for
from support.paged import SiteDoor, site_door
from support.policy_in_force import Endless, known, policy_in
from support.store_values import NOW, started, wanted
from support.stores import Database

OPERATOR = 4
WITHOUT_DF = 'extends = "default"\nwithout = ["df"]\n'
ASKING = 'extends = "default"\n[tiers.2.ask]\nactions = ["restart"]\n'


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        made.door.clock.at = NOW
        made.door.tokens.kept[OPERATOR] = token_for(OPERATOR, "read", "operate")
        made.site.policy = policy_in(tmp_path)
        await started(made.store)
        await started(made.store, wanted(2))
        yield made


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(f"sqlite:///{tmp_path / 'claudeops.db'}")


def put(database: Database, command: str, *, tier: int = 1, verdict: str = "allow", use: str = "") -> None:
    """Put a call on record; the sessions have the numbers of their tiers."""
    database.execute(
        "INSERT INTO tool_calls (session_id, tool_use_id, tool_name, input, verdict, reason, requested_at,"
        " decided_at, previous_hash, hash)"
        " VALUES (:tier, :use, 'Bash', :given, :verdict, 'on record', :at, :at, '', '')",
        tier=tier,
        use=use or command[:60],
        given=json.dumps({"command": command.replace("\x00", "")}),
        verdict=verdict,
        at="2026-03-01 11:00:00.000000",
    )


async def send(site: SiteDoor, policy: str, **fields: str) -> Answered:
    body = json.dumps({"policy": policy, **fields}).encode()
    return await site.door.ask("POST", "/api/v1/policy/replay", body, headers=bearer(OPERATOR))


def counts(answer: Answered) -> dict[str, int]:
    assert answer.status == 200
    names = ("unchanged", "newly_allowed", "newly_asked", "newly_denied", "by_edit", "not_judged")
    return {name: answer.json[name] for name in names if answer.json[name]}  # type: ignore[misc]


def only_change(answer: Answered) -> dict[str, object]:
    changes = answer.json["changes"]
    assert isinstance(changes, list)
    assert len(changes) == 1
    return dict(changes[0])


async def test_what_the_edit_takes_away_is_newly_denied_and_the_rest_stays(site: SiteDoor, database: Database) -> None:
    put(database, "df -h")
    put(database, "docker ps")
    put(database, "docker restart web", tier=2)
    answer = await send(site, WITHOUT_DF)
    assert counts(answer) == {"unchanged": 2, "newly_denied": 1, "by_edit": 1}
    change = only_change(answer)
    assert (change["text"], change["session_id"], change["recorded"], change["verdict"]) == (
        "df -h",
        1,
        "allow",
        "deny",
    )
    assert change["reason"]
    assert (answer.json["replayed"], answer.json["on_record"], answer.json["bound"]) == (3, 3, None)
    assert counts(await send(site, ASKING)) == {"unchanged": 2, "newly_asked": 1, "by_edit": 1}


async def test_a_policy_that_is_tried_comes_into_force_nowhere(site: SiteDoor, database: Database) -> None:
    put(database, "df -h")
    policy = site.site.policy
    assert policy is not None
    before = policy.text
    await send(site, WITHOUT_DF)
    verdict = await policy.judged("df -h", 1)
    assert isinstance(verdict, TierVerdict)
    assert (policy.text, verdict.verdict.value) == (before, "allow")


async def test_what_the_policy_in_force_says_too_is_not_laid_to_the_edit(site: SiteDoor, database: Database) -> None:
    put(database, "df -h", verdict="deny")
    answer = await send(site, 'extends = "default"\n')
    assert counts(answer) == {"newly_allowed": 1}
    change = only_change(answer)
    assert (change["in_force"], change["by_edit"]) == ("allow", False)


async def test_the_answer_of_a_person_is_no_verdict_of_the_policy(site: SiteDoor, database: Database) -> None:
    put(database, "docker restart web", tier=2, verdict="ask", use="asked")
    put(database, "docker restart web", tier=2, verdict="allow", use="asked")
    answer = await send(site, ASKING)
    assert counts(answer) == {"unchanged": 1}
    assert answer.json["on_record"] == 1


@pytest.mark.parametrize("place", range(2), ids=["as the daemon's user", "as a user of its own"])
async def test_the_own_files_of_a_session_are_its_own_whatever_its_cell_was(
    site: SiteDoor, database: Database, tmp_path: Path, place: int
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    directory = workspace_places(tmp_path / "state" / "sessions")[place]
    for number, at in enumerate((directory, directory.resolve())):
        put(database, f"docker ps > {at}/000001/state/handoff.json", use=f"call {number}")
    assert counts(await send(site, 'extends = "default"\n')) == {"unchanged": 2}
    put(database, f"docker ps > {directory}/000002/state/handoff.json")
    assert counts(await send(site, 'extends = "default"\n')) == {"unchanged": 2, "newly_denied": 1}


async def test_calls_from_before_are_left_out(site: SiteDoor, database: Database) -> None:
    put(database, "df -h")
    assert (await send(site, WITHOUT_DF, since="30m")).json["on_record"] == 0
    assert (await send(site, WITHOUT_DF, since="2h")).json["replayed"] == 1


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ('extends = "default"\n[tiers.1]\ncolour = "red"\n', "line 3"),
        ('extends = "default"\nwithout = [\n', "line"),
        ('extends = "nothing"\n', "line 1"),
    ],
)
async def test_a_wrong_file_gets_one_sentence_with_its_line(site: SiteDoor, policy: str, says: str) -> None:
    answer = await send(site, policy)
    assert answer.status == 422
    assert says in str(answer.json["detail"])
    assert "\n" not in str(answer.json["detail"])


@pytest.mark.parametrize("since", ["soon", "9999d", "500d"])
async def test_a_time_that_means_nothing_is_refused(site: SiteDoor, since: str) -> None:
    assert (await send(site, WITHOUT_DF, since=since)).status == 422


async def test_very_many_calls_are_cut_at_the_newest(
    site: SiteDoor, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in ("df -h", "docker ps", "uptime"):
        put(database, command)
    monkeypatch.setattr(in_force, "MOST_CALLS", 2)
    answer = await send(site, WITHOUT_DF)
    assert (answer.json["replayed"], answer.json["on_record"], answer.json["bound"]) == (2, 3, "count")
    assert counts(answer) == {"unchanged": 2}


async def test_a_replay_whose_time_is_over_ends_and_leaves_no_process(site: SiteDoor, database: Database) -> None:
    put(database, "docker ps")
    policy = site.site.policy
    assert isinstance(policy, LoadedPolicy)
    policy.setups = known({1: replace((await policy.setups())[1], judge=Endless())})
    policy.replay_seconds = 0.5
    answer = await send(site, WITHOUT_DF)
    assert (answer.json["replayed"], answer.json["bound"]) == (0, "time")
    assert not processes_of("claudeops.engine.gate.judge_process")
    assert not site.site.is_replaying


async def test_a_call_of_a_tier_that_is_gone_is_not_judged(site: SiteDoor, database: Database) -> None:
    put(database, "docker ps")
    policy = site.site.policy
    assert isinstance(policy, LoadedPolicy)
    policy.setups = known({2: (await policy.setups())[2]})
    assert counts(await send(site, WITHOUT_DF)) == {"not_judged": 1}


class Waiting:
    """A policy whose replay waits."""

    tiers = (1,)
    text = ""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.goes_on = anyio.Event()

    async def judged(self, command: str, tier: int) -> TierVerdict | str:
        """Judge nothing."""
        raise NotImplementedError(command, tier)

    async def replay(
        self, text: str, calls: Callable[[int | None], Awaitable[Sequence[RecordedCall]]], count: ReplayCount
    ) -> ReplayBound | None:
        """Wait."""
        assert text
        assert await calls(None) == ()
        count.skip()
        self.begun.set()
        await self.goes_on.wait()
        return None


async def test_a_second_replay_is_sent_away_for_later(site: SiteDoor) -> None:
    site.site.policy = policy = Waiting()
    answers: list[Answered] = []

    async def first() -> None:
        answers.append(await send(site, WITHOUT_DF))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await policy.begun.wait()
        refused = await send(site, WITHOUT_DF)
        policy.goes_on.set()
    assert (refused.status, "retry-after" in refused.headers) == (503, True)
    assert [answer.status for answer in answers] == [200]
    assert (await send(site, WITHOUT_DF)).status == 200


async def test_the_form_is_complete_without_a_script_and_shows_what_changes(site: SiteDoor, database: Database) -> None:
    put(database, "df -h")
    cookie = await site.login(Role.OPERATOR)
    page = html.unescape((await site.get("/policy", cookie)).body.decode())
    assert 'action="/policy/replay"' in page
    assert page.count("[tiers.1]") == 2, "the policy in force is not filled in"
    answer = await site.post("/policy/replay", cookie, urlencode({"policy": WITHOUT_DF, "since": "30d"}).encode())
    text = html.unescape(answer.body.decode())
    assert answer.status == 200
    assert "<code>df -h</code>" in text
    assert "1 of 1 call" in text
    assert WITHOUT_DF in text
    wrong = await site.post("/policy/replay", cookie, urlencode({"policy": 'x = "'}).encode())
    assert (wrong.status, "line 1" in wrong.body.decode()) == (422, True)


async def test_whoever_may_only_look_gets_no_form_and_no_replay(site: SiteDoor) -> None:
    cookie = await site.login(Role.VIEWER)
    assert "/policy/replay" not in (await site.get("/policy", cookie)).body.decode()
    answer = await site.post("/policy/replay", cookie, urlencode({"policy": WITHOUT_DF}).encode())
    assert answer.status == 403


async def test_hostile_calls_are_judged_and_shown_as_text(site: SiteDoor, database: Database) -> None:
    texts = TEXTS[::6]
    for text in texts:
        put(database, text[:2000])
    cookie = await site.login(Role.OPERATOR)
    answer = await site.post("/policy/replay", cookie, urlencode({"policy": WITHOUT_DF}).encode())
    page = answer.body.decode()
    assert answer.status == 200
    assert f"<script>window.{MARK}" not in page
    assert not set(page) & {"\x1b", "\u202e", "\u200b"}
    assert "request_crashed" not in site.door.log.getvalue()
