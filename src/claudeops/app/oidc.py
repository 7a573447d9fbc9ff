"""Logins by OpenID Connect, wired from the settings. Imported only where a provider is configured."""

from __future__ import annotations

from functools import partial

from claudeops.app.node import Node
from claudeops.clock import Clock
from claudeops.engine.meter.connections import connection_pool
from claudeops.engine.meter.upstream import trusted_certificates
from claudeops.formats.oidc import OidcClient
from claudeops.settings import Settings
from claudeops.web.oidc.login import OidcLogin
from claudeops.web.oidc.provider import Provider


def oidc_login(node: Node, client: OidcClient) -> OidcLogin:
    """Return what logs people in at the provider. Raises `ConfigurationError` for certificates that cannot be used."""
    return OidcLogin(
        provider=provider_of(node.settings, client, node.clock),
        users=node.users,
        logins=node.logins,
        clock=node.clock,
        log=node.log,
    )


def provider_of(settings: Settings, client: OidcClient, clock: Clock) -> Provider:
    """Return the provider, as the operator's network leads to it. Raises `ConfigurationError`."""
    network = {**settings.environment.inherited, **settings.environment.proxies}
    trusted = trusted_certificates(network)
    return Provider(client=client, connect=partial(connection_pool, network=network, trusted=trusted), clock=clock)
