"""What a chain knows to be unwell, and which actions that founds."""

from __future__ import annotations

import pytest

from claudeops.domain.gate.grants import Findings, found

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
