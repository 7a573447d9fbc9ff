"""The passkeys of whoever is logged in."""

from __future__ import annotations

from datetime import datetime

import msgspec
from starlette.responses import Response

from claudeops.web.api.answers import whole
from claudeops.web.endpoints import WebCall
from claudeops.web.pages.site import Site


class PasskeyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A passkey of whoever is logged in."""

    passkey_id: int
    passkey_name: str
    rp_id: str  # the host by which the pages were called
    created_at: datetime
    last_used_at: datetime | None


async def passkey_answer(site: Site, call: WebCall) -> Response:
    """Answer programs with the person's passkeys; a token has none."""
    passkeys = None if site.acting is None else site.acting.passkeys
    found = () if passkeys is None else await passkeys.listed(call)
    return whole(
        [
            PasskeyEntry(
                passkey_id=one.id,
                passkey_name=one.name,
                rp_id=one.rp_id,
                created_at=one.created_at,
                last_used_at=one.last_used_at,
            )
            for one in found
        ]
    )


async def passkey_list(site: Site, call: WebCall) -> Response:
    """Answer with the person's passkeys, and the form that adds one."""
    passkeys = None if site.acting is None else site.acting.passkeys
    values = {
        "found": () if passkeys is None else await passkeys.listed(call),
        "fault": "Passkeys cannot be used here." if passkeys is None else passkeys.fault(call),
        "may_add": passkeys is not None and passkeys.may_add(call),
    }
    return await site.page(call, "passkeys.html", title="Passkeys", values=values)
