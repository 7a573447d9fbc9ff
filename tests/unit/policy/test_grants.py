"""What a chain knows to be unwell, and which actions that founds."""

from __future__ import annotations

import pytest

from claudeops.policy.grants import Findings, findings, found
from support.store_values import running

UNWELL = Findings(unwell=frozenset({"shop/cart", "web1/web", "namespace:media/jellyfin", "db"}))


@pytest.mark.parametrize(
    ("service", "is_known"),
    [
        ("namespace:shop/cart", True),  # as alerts and reports call it, without the kind
        ("project:shop/cart", True),
        ("shop/cart", True),
        ("namespace:media/jellyfin", True),
        ("Namespace:shop/Cart", True),
        ("project:media/jellyfin", False),  # whoever says the kind means it
        ("context:prod/namespace:shop/cart", False),  # another cluster
        ("namespace:other/cart", False),
        ("cart", False),
        ("container:shop/cart", False),
        ("engine:web1/web", False),
        ("namespace:web1/db", False),
        ("namespace:x/db", False),
        ("db", True),
    ],
)
def test_an_action_is_founded_by_the_service_that_was_found_and_by_no_other(service: str, is_known: bool) -> None:
    assert found(service, UNWELL) is is_known


@pytest.mark.parametrize(
    ("request_text", "service", "is_known"),
    [
        ("namespace:shop/cart is down", "namespace:shop/cart", True),
        ("shop/cart is down", "namespace:shop/cart", False),  # in words of people that is a host
        ("cart in the namespace shop is down", "namespace:shop/cart", True),
        ("shop is down", "namespace:shop/cart", False),
    ],
)
def test_a_request_names_a_service_by_all_that_says_where(
    request_text: str,
    service: str,
    is_known: bool,
) -> None:
    assert found(service, Findings(request=request_text)) is is_known


@pytest.mark.parametrize("called", ["docker-web", "systemd-web", "web.1.k3v9q2m8x7w5t1r6p4n0b2c7d", "web"])
def test_a_container_is_found_by_the_names_that_swarm_podman_and_systemd_have_for_it(called: str) -> None:
    reported = findings(reported=[(called, "down")], probed=[], session=running(2), request=None)
    assert found("web", reported)
    assert not found("other/web", reported)
    assert not found("docker", reported)


@pytest.mark.parametrize(("unit", "is_known"), [("docker-web", True), ("container-web", True), ("nginx-web", False)])
def test_a_request_may_name_the_unit_of_a_container(unit: str, is_known: bool) -> None:
    assert found("web", Findings(request=f"{unit} is down")) is is_known
