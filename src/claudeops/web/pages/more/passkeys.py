"""The passkeys of whoever is logged in."""

from __future__ import annotations

from starlette.responses import Response

from claudeops.web.endpoints import Call
from claudeops.web.pages.site import Site


async def passkey_list(site: Site, call: Call) -> Response:
    """Answer with the person's passkeys, and the form that adds one."""
    passkeys = None if site.acting is None else site.acting.passkeys
    values = {
        "found": () if passkeys is None else await passkeys.listed(call),
        "fault": "Passkeys cannot be used here." if passkeys is None else passkeys.fault(call),
        "may_add": passkeys is not None and passkeys.may_add(call),
    }
    return await site.page(call, "passkeys.html", title="Passkeys", values=values)
