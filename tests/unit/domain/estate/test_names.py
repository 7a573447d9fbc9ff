"""Which names mean one service, by the policy and by the manifests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.estate.model import Estate, Manifest, Service, Source
from claudeops.domain.estate.names import counted_by, counted_names
from claudeops.domain.text import casefold_key


def service(name: str, *aliases: str, host: str = "") -> Service:
    return Service(name=name, aliases=aliases, host=host, source=Source(path="media/CLAUDE-OPS.md"))


def estate(*services: Service) -> Estate:
    other_names = {alias: each.name for each in services for alias in each.aliases}
    return Estate(manifests=(Manifest(repository="media", services=services),), other_names=other_names)


@pytest.mark.parametrize(
    ("own", "services", "name", "expected"),
    [
        ({}, (service("web", "media-web-1"),), "media-web-1", "web"),
        ({}, (service("web", "media-web-1"),), "MEDIA-Web-1 ", "web"),
        ({}, (service("web", "media-web-1"),), "web", "web"),
        ({}, (service("web", "media-web-1"),), "db", "db"),
        # behind the host that the manifest names
        ({}, (service("web", "nginx", host="Web1."),), "web1/web", "web"),
        ({}, (service("web", "nginx", host="web1"),), "web1/nginx", "web"),
        ({}, (service("web", host="web1"),), "web2/web", "web2/web"),
        ({}, (service("web", host="web1"), service("web", host="web2")), "web1/web", "web1/web"),
        # the policy comes first
        ({"media-web-1": "shop"}, (service("web", "media-web-1"),), "media-web-1", "shop"),
        ({"media-web-1": "shop"}, (service("web", "media-web-1"),), "web", "shop"),
        ({"MEDIA-WEB-1": "shop"}, (service("web", "media-web-1", "www"),), "WWW", "shop"),
        ({"x": "web"}, (service("shop", "web", host="web1"),), "web1/web", "web"),
        ({"x": "web"}, (service("shop", "web"),), "shop", "web"),
        ({"a": "one", "b": "two"}, (service("web", "a", "b"),), "a", "one"),
        ({"a": "one", "b": "two"}, (service("web", "a", "b"),), "b", "two"),
    ],
)
def test_a_name_counts_for(own: dict[str, str], services: tuple[Service, ...], name: str, expected: str) -> None:
    assert counted_by(counted_names(estate(*services), own))(name) == expected


NAMES = st.sampled_from(["web", "WEB", "db", "media-web-1", "a", "b", "web1/web", "straße", "STRASSE"])


@given(st.dictionaries(NAMES, NAMES, max_size=4), st.dictionaries(NAMES, NAMES, max_size=4), NAMES)
def test_what_the_policy_says_of_a_name_stands(own: dict[str, str], others: dict[str, str], name: str) -> None:
    alone = counted_by(own)
    counted = counted_by(counted_names(Estate(other_names=others), own))
    if casefold_key(alone(name)) != casefold_key(name):
        assert counted(name) == alone(name)
    assert casefold_key(counted(name)) == casefold_key(counted(name.upper()))
