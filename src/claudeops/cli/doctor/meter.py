"""Whether model calls will be counted and limited one by one, and at which prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from claudeops.app_meter import upstream
from claudeops.cli.doctor.values import Finding, doubtful, failed_with, fine
from claudeops.domain.prices import AS_OF, concrete, price_of
from claudeops.errors import ConfigurationError

if TYPE_CHECKING:
    from claudeops.cli.doctor.values import Case
    from claudeops.settings import Settings

_METERED = "claude"


async def meter(_case: Case, settings: Settings) -> Finding:
    """Look whether the meter is on, can find its way to the model API, and knows what the models cost."""
    models = [tier.model for tier in settings.tiers if tier.harness == _METERED]
    if not models:
        return fine("No tier runs on a CLI whose model calls can be counted one by one.")
    if not settings.meter:
        return doubtful(
            "Switched off by CLAUDEOPS_METER: model calls are not counted one by one, nor limited by budgets.",
            "Unset it.",
        )
    try:
        async with upstream(settings).connections():
            pass  # proxy and certificates can be used
    except ConfigurationError as error:
        return failed_with(error)
    without = [model for model in models if (name := concrete(model)) is not None and price_of(name) is None]
    if without:
        return doubtful(
            f"There is no price for {', '.join(dict.fromkeys(without))} (prices of {AS_OF}): what its sessions cost is "
            "unknown, and budgets count it as the dearest model.",
            "Check the spelling; a newer claudeops may know it.",
        )
    return fine(f"Every model call is counted and limited; prices are those of {AS_OF}.")
