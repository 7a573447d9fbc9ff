"""The check of the identity provider at which people log in."""

from __future__ import annotations

from claudeops.cli.doctor.finding import DoctorContext, Finding, doubtful, fine
from claudeops.clock import Clock
from claudeops.settings import Settings


async def login_provider(_case: DoctorContext, settings: Settings) -> Finding:
    """Check that the provider describes itself as the settings have it, and has keys; nobody is logged in for that."""
    client = settings.listener.oidc
    if client is None:
        return fine("None is configured: people log in by links, by passwords, or by way of a proxy.")
    if not (settings.listener.enabled and settings.listener.dashboard):
        return doubtful(
            "CLAUDEOPS_OIDC_ISSUER is set, and there are no pages to log in to.",
            "Set CLAUDEOPS_LISTENER=on and CLAUDEOPS_DASHBOARD=on, or unset CLAUDEOPS_OIDC_ISSUER and its client.",
        )
    # The settings are refused without the extra.
    from claudeops.app.oidc import provider_of  # noqa: PLC0415 - an extra
    from claudeops.web.oidc.provider import ProviderError  # noqa: PLC0415 - an extra

    provider = provider_of(settings, client, Clock())
    try:
        await provider.endpoints()
        await provider.keys()
    except ProviderError as error:
        return doubtful(
            f"Nobody can log in at {client.host}: {error}.",
            f"Look at {client.configuration} from this machine, and compare its issuer with CLAUDEOPS_OIDC_ISSUER.",
        )
    return fine(
        f"{client.host} can log people in: it leads them back to {client.public_urls[0]}, and the claim {client.claim} "
        "names the user."
    )
