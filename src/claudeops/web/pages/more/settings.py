"""The settings in effect: what a viewer may see of them, which no secret is part of."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from claudeops.domain.setting import MASK, Setting, chosen
from claudeops.web.api.answers import whole
from claudeops.web.endpoints import WebCall
from claudeops.web.listings import Text
from claudeops.web.pages.site import Site


class OfSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the address says."""

    name: Text = ""  # a part of a setting's name
    set: bool = False  # only what an operator has set


async def setting_page(site: Site, call: WebCall) -> Response:
    """Answer with the settings in effect, each with where it comes from."""
    query = call.asked(OfSettings)
    values = {"found": _chosen(site, query), "asked": query, "mask": MASK}
    return await site.page(call, "settings.html", title="Settings", values=values)


async def setting_list(site: Site, call: WebCall) -> Response:
    """Answer with the same for programs."""
    return whole(_chosen(site, call.asked(OfSettings)))


def _chosen(site: Site, query: OfSettings) -> tuple[Setting, ...]:
    return tuple(chosen(site.settings(), query.name.split(), only_set=query.set))
