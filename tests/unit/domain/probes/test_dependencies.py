"""Whose failure explains another's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.estate.estate import Estate, Manifest
from claudeops.domain.probes.dependencies import broken_services, connected, dependencies_of
from claudeops.domain.probes.probe import ProbeState
from support.probes import estate, probe, service, standing

SHOP = connected({"shop": ("api",), "api": ("db", "cache"), "site": ("db",), "db": ("disk",)})


@pytest.mark.parametrize(
    ("failed", "broken", "expected"),
    [
        ("shop", (), ""),
        ("shop", ("shop",), ""),
        ("shop", ("shop", "db"), "db"),
        ("shop", ("shop", "api", "db"), "db"),  # what api's failure is explained by explains the shop's
        ("api", ("shop", "api", "db"), "db"),
        ("db", ("shop", "api", "db"), ""),
        ("shop", ("site",), ""),
        ("Shop", ("DB",), "DB"),
        ("shop", ("db", "disk", "cache"), "disk"),
        ("shop", ("cache",), "cache"),
        ("site", ("db", "disk"), "disk"),
        ("stranger", ("db",), ""),
    ],
)
def test_what_a_service_needs_explains_its_failure(failed: str, broken: tuple[str, ...], expected: str) -> None:
    assert SHOP.explanation(failed, broken) == expected


def test_in_a_circle_one_service_is_left_to_look_at() -> None:
    circle = connected({"a": ("b",), "b": ("c",), "c": ("a",)})

    assert [circle.explanation(each, ("a", "b", "c")) for each in "abc"] == ["", "a", "a"]
    assert circle.explanation("a", ("a", "c")) == ""
    assert circle.explanation("c", ("c",)) == ""
    assert connected({"a": ("a",)}).explanation("a", ("a",)) == ""


NAMES = st.sampled_from("abcdefgh")


@given(
    edges=st.dictionaries(NAMES, st.lists(NAMES, max_size=4).map(tuple)),
    broken=st.lists(NAMES, unique=True, min_size=1).map(tuple),
)
def test_of_all_that_is_down_something_is_explained_by_nothing(
    edges: dict[str, tuple[str, ...]], broken: tuple[str, ...]
) -> None:
    known = connected(edges)
    causes = {each: known.explanation(each, broken) for each in broken}

    assert "" in causes.values()
    for failed, cause in causes.items():
        assert cause == "" or (cause != failed and causes[cause] == "" and cause in known.needed_by([failed]))


def test_a_long_row_and_a_full_mesh_take_no_time() -> None:
    names = [f"s{number}" for number in range(3000)]
    row = connected({name: (names[at + 1],) for at, name in enumerate(names[:-1])})
    mesh = connected(dict.fromkeys(names[:300], names[:300]))

    assert row.explanation("s0", names) == "s2999"
    assert set(mesh.explanations(names[:300]).values()) == {"s0"}


def test_names_of_a_service_mean_one_service() -> None:
    known = Estate(
        manifests=estate(service("Shop", dependencies=("database",)), service("db")).manifests,
        other_names={"Database": "DB"},
    )

    assert dependencies_of([], known).explanation("shop", ("db",)) == "db"


def test_probes_add_to_what_manifests_say() -> None:
    known = dependencies_of(
        [probe("shop", depends_on=("cache",)), probe("shop-api", service="shop", depends_on=("db",))],
        estate(service("shop", dependencies=("disk",))),
    )

    assert known.needed_by(["shop"]) == ("disk", "cache", "db")


def test_another_repository_cannot_explain_failures_away() -> None:
    own = Manifest(repository="media", services=(service("shop", dependencies=("db",)),))
    attack = Manifest(repository="evil", services=(service("shop", dependencies=("always-down",)),))

    assert dependencies_of([], Estate(manifests=(own, attack))).needed_by(["shop"]) == ()
    assert dependencies_of([], Estate(manifests=(own, own))).needed_by(["shop"]) == ("db",)


def test_what_is_silenced_and_down_explains_all_the_same_and_what_nobody_sees_does_not() -> None:
    probes = [probe(name) for name in ("down", "flapping", "muted", "muted-up", "blind", "up", "new")]
    standings = {
        "down": standing(ProbeState.DOWN),
        "flapping": standing(ProbeState.FLAPPING),
        "muted": standing(ProbeState.SILENCED, beneath=ProbeState.DOWN),
        "muted-up": standing(ProbeState.SILENCED, beneath=ProbeState.UP),
        "blind": standing(ProbeState.UNKNOWN, beneath=ProbeState.DOWN),
        "up": standing(ProbeState.UP),
    }

    assert broken_services(probes, standings) == ("down", "flapping", "muted")
