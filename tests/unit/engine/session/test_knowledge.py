"""Which services a session's chain is about: what was handed over, and what its request names."""

from __future__ import annotations

import pytest

from claudeops.domain.estate.estate import Estate, Manifest, Service, StatementSource
from claudeops.domain.report.report import ServiceCheck, ServiceStatus
from claudeops.domain.sessions import Handover
from claudeops.engine.session.knowledge import services_of
from support.store_values import running

SOURCE = StatementSource(path="home/CLAUDE-OPS.md", line=1)
ESTATE = Estate(
    manifests=(
        Manifest(
            repository="home",
            services=(
                Service(name="web", aliases=("shop", "the-shop"), source=SOURCE),
                Service(name="db", source=SOURCE),
            ),
        ),
    ),
    other_names={"shop": "web", "the-shop": "web"},
)
HANDOVER = Handover(
    reason="r",
    findings="f",
    service_status=(
        ServiceCheck(service="mail", status=ServiceStatus.DOWN),
        ServiceCheck(service="db", status=ServiceStatus.HEALTHY),
    ),
)


def test_a_round_is_about_no_service_in_particular() -> None:
    assert services_of(running(prompt_text=None), ESTATE) == ()


def test_a_chain_is_about_what_was_handed_over_as_unwell() -> None:
    assert services_of(running(prompt_text=None, context=HANDOVER), ESTATE) == ("mail",)


@pytest.mark.parametrize(
    ("request_text", "about"),
    [
        ("look at web, please", ("web",)),
        ("Is THE-SHOP down?", ("web",)),
        ("(db) is slow; shop: too.", ("web", "db")),
        ("the website and the dbms", ()),
    ],
)
def test_a_request_is_about_the_services_that_it_names_by_whichever_name(
    request_text: str, about: tuple[str, ...]
) -> None:
    assert services_of(running(prompt_text=request_text), ESTATE) == about


def test_what_was_handed_over_comes_before_what_the_request_names_and_nothing_twice() -> None:
    session = running(prompt_text="look at mail and web", context=HANDOVER)
    assert services_of(session, ESTATE) == ("mail", "web")
