"""Routing: words decide who takes a text; whatever nobody knows goes to the tier that looks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.probes.probe import Probe, TcpLook
from claudeops.formats.library import LibraryKind, LibraryText
from claudeops.wording.route import Candidate, RoutedCandidate, What, of_probe, of_text, of_tier, route, stems


def text(kind: LibraryKind, name: str, tier: int, when: str, *about: str) -> LibraryText:
    body = f"## When\n{when}\n\n## Look\nSee what is there."
    return LibraryText(kind=kind, name=name, tier=tier, about=about, origin="built-in", text=body, digest="")


TIERS = (
    of_tier(1, "observe", "t1.md", ()),
    of_tier(2, "investigate", "t2.md", ("restart",)),
    of_tier(3, "remediate", "t3.md", ("restart", "redeployment")),
)
TEXTS = (
    of_text(text(LibraryKind.CHECK, "disk", 1, "Logs grow on a host.", "host", "disk"), "checks/disk.md"),
    of_text(
        text(LibraryKind.PLAYBOOK, "free-disk", 3, "A file system is nearly full.", "disk", "host"), "playbooks/free.md"
    ),
    of_text(text(LibraryKind.SKILL, "read-http", 1, "A page answers with a code.", "http"), "skills/http.md"),
)
PROBE = of_probe(Probe(name="shop-port", service="shop", look=TcpLook(host="10.0.0.9", port=443), origin="probes:1"))
ALL = (*TIERS, *TEXTS, PROBE)


def names(found: tuple[RoutedCandidate, ...]) -> list[str]:
    return [match.candidate.name for match in found]


def test_the_playbook_for_it_leads_and_its_tier_follows() -> None:
    assert names(route("Disk full!", ALL, 2)) == ["free-disk", "tier3"]


def test_a_service_of_a_probe_is_known_by_its_name() -> None:
    found = route("the shop does not answer", ALL, 9)
    assert found[0].candidate.what is What.PROBE


def test_a_word_for_an_action_names_the_lowest_tier_that_may_do_it_first() -> None:
    tiers = [match.candidate.name for match in route("restart", ALL, 9) if match.candidate.what is What.TIER]
    assert tiers[:2] == ["tier2", "tier3"]


def test_what_nobody_knows_is_looked_at_by_the_lowest_tier() -> None:
    assert names(route("zxqv", ALL, 9)) == ["tier1", "tier2", "tier3"]


def test_other_words_and_endings_mean_the_same() -> None:
    assert stems("Servers") == stems("the server") == stems("VM")
    assert stems("certificates expiring") == stems("certificate expires")


@given(st.text(max_size=200), st.integers(1, 9))
def test_scores_fall_lie_within_bounds_and_keep_the_limit(written: str, limit: int) -> None:
    found = route(written, ALL, limit)
    scores = [match.score for match in found]
    assert len(found) <= limit
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)


def test_without_candidates_nobody_takes_it() -> None:
    nobody: tuple[Candidate, ...] = ()
    assert route("disk full", nobody, 5) == ()
