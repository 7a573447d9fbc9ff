"""Where the description is: as JSON, as YAML, and as a page without any script but ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Final

import msgspec
import yaml
from starlette.responses import Response

from claudeops.domain.access.tokens import ScopeKind
from claudeops.tasks import Threads
from claudeops.web.api.answers import tagged
from claudeops.web.api.openapi import described, for_programs
from claudeops.web.api.table import BASE
from claudeops.web.endpoints import ANY, IF_NONE_MATCH, JSON, Endpoint, WebCall
from claudeops.web.pages.site import Site

_YAML: Final = "application/yaml"
_READ: Final = ScopeKind.READ.value
_SECONDS: Final = 10.0
_THREADS: Final = Threads(most=1)


def description_endpoints(site: Site, rows: Sequence[Endpoint]) -> Sequence[Endpoint]:
    """Return the endpoints that describe others, and themselves."""

    @cache
    def as_json() -> bytes:
        return msgspec.json.encode(described((*rows, *own), site.pages.version))

    @cache
    def as_yaml() -> bytes:
        return yaml.safe_dump(msgspec.json.decode(as_json()), sort_keys=False, allow_unicode=True).encode()

    own = (
        _row("openapi.json", JSON, as_json, "This description: OpenAPI 3.1."),
        _row("openapi.yaml", _YAML, as_yaml, "The same as YAML."),
    )
    page = Endpoint(
        method="GET",
        path="/api",
        scope=_READ,
        page=True,
        answer=str,
        handler=partial(_page, site, (*rows, *own)),
        summary="What programs may ask, and how.",
    )
    return (*own, page)


def _row(name: str, media: str, text: Callable[[], bytes], summary: str) -> Endpoint:
    return Endpoint(
        method="GET",
        path=f"{BASE}/{name}",
        scope=_READ,
        answer=dict,
        media=media,
        headers=(IF_NONE_MATCH,),
        handler=partial(_described, text, media),
        summary=summary,
    )


async def _described(text: Callable[[], bytes], media: str, call: WebCall) -> Response:
    # Made once, which takes a quarter of a second as YAML.
    return tagged(call, await _THREADS.run(text, seconds=_SECONDS, what="describing the API"), media=media)


async def _page(site: Site, rows: Sequence[Endpoint], call: WebCall) -> Response:
    shown = for_programs(rows)
    values = {"found": shown, "names": {row.label: _names(row) for row in shown}}
    return await site.page(call, "api.html", title="API", values=values)


def _names(row: Endpoint) -> Sequence[str]:
    """Return the names that an address takes."""
    if row.query is None:
        return ()
    return ("any",) if row.query is ANY or isinstance(row.query, str) else row.query.__struct_fields__
