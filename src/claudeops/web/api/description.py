"""Where the description is: as JSON, as YAML, and as a page without any script but ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Final

import msgspec
import yaml
from starlette.responses import Response

from claudeops.domain.web.token import ScopeKind
from claudeops.web.api.openapi import described
from claudeops.web.api.table import BASE
from claudeops.web.endpoints import ANY, Call, Endpoint
from claudeops.web.pages.site import Site
from claudeops.web.problems import answer

_YAML: Final = "application/yaml"
_READ: Final = ScopeKind.READ.value


def description_endpoints(site: Site, rows: Sequence[Endpoint]) -> Sequence[Endpoint]:
    """Return the endpoints that describe others, and themselves."""

    @cache
    def document() -> dict[str, Any]:
        return described((*rows, *own), site.pages.version)

    own = (
        _row("openapi.json", partial(_as_json, document), "This description: OpenAPI 3.1."),
        _row("openapi.yaml", partial(_as_yaml, document), "The same as YAML."),
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


def _row(name: str, handler: Callable[[Call], Any], summary: str) -> Endpoint:
    path = f"{BASE}/{name}"
    return Endpoint(method="GET", path=path, scope=_READ, answer=dict, handler=handler, summary=summary)


async def _as_json(document: Callable[[], dict[str, Any]], _: Call) -> Response:
    return answer(document(), status=200)


async def _as_yaml(document: Callable[[], dict[str, Any]], _: Call) -> Response:
    found = answer(document(), status=200)
    text = yaml.safe_dump(msgspec.json.decode(found.body), sort_keys=False, allow_unicode=True)
    headers = {name: value for name, value in found.headers.items() if name.startswith(("cache", "content-s", "x-"))}
    return Response(text, media_type=_YAML, headers=headers)


async def _page(site: Site, rows: Sequence[Endpoint], call: Call) -> Response:
    shown = [row for row in rows if not row.page and not row.path.startswith("/static/")]
    values = {"found": shown, "names": {row.label: _names(row) for row in shown}}
    return await site.page(call, "api.html", title="API", values=values)


def _names(row: Endpoint) -> Sequence[str]:
    """Return the names that an address takes."""
    if row.query is None:
        return ()
    return ("any",) if row.query is ANY or isinstance(row.query, str) else row.query.__struct_fields__
