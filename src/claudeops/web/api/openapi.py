"""The description of the endpoints for programs: OpenAPI 3.1, out of the table and the Structs that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from claudeops.domain.web.login import COOKIE, Role
from claudeops.domain.web.token import PERSONS_SCOPES
from claudeops.web.api.answers import NOT_MODIFIED, Items
from claudeops.web.endpoints import ANY, Endpoint
from claudeops.web.problems import MEDIA_TYPE, Problem
from claudeops.web.table import Ready

_SCHEMAS: Final = "#/components/schemas/"
_MEANINGS: Final = {
    "limit": "Entries of a page.",
    "before": "`next` of the page before this one; empty: the newest entries.",
    "since": "An age (`2h`, `7d`) or a time of ISO 8601.",
    "until": "Likewise; entries before it.",
    "service": "Any spelling of its name.",
    "level": "This one and worse.",
    "tier": "Of the session.",
    "outcome": "Of the session.",
    "open": "Only what is not resolved.",
    "all": "What is over too.",
    "target": "Its name.",
    "waiting": "Only what is still to be sent.",
    "name": "A part of it.",
    "set": "Only what an operator has set.",
    "by": "This sum alone; the others are empty.",
    "after": "Up to which line, or id, all is known already.",
    "format": "`json` for programs, else HTML for pages.",
}
_ONCE: Final[Mapping[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "maxLength": 255},
    "description": "Sent again within a day, the call is not made again, and is answered as before.",
}
_MEDIA: Final[Mapping[type, str]] = {str: "text/event-stream", bytes: "text/plain"}
"""What is no JSON: streams, and the metrics."""

_REFUSALS: Final[Mapping[int, str]] = {
    401: "There is no good proof of who calls.",
    403: "The proof is for something else, or a page of another site has sent this.",
    404: "There is no such thing.",
    409: "It is not possible as things stand; nothing was done.",
    413: "The body is too long.",
    421: "The host is called by another name.",
    422: "The query or the body is not as it should be; names that are not known are refused.",
    500: "A bug of claudeops.",
    503: "Nothing can be stored or read now, or it is too much: again after `Retry-After`.",
}


def described(rows: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """Return the document for the endpoints that programs call."""
    shown = [row for row in rows if not row.page and not row.path.startswith("/static/")]
    queries = {row.query for row in shown if _takes_names(row)}
    bodies = [row.body for row in shown if row.body is not None and row.body is not bytes]
    answers = [*dict.fromkeys([*(row.answer for row in shown), *bodies]), Problem]
    template = f"{_SCHEMAS}{{name}}"
    found, components = msgspec.json.schema_components([*answers, *queries], ref_template=template)
    schemas = dict(zip([*answers, *queries], found, strict=True))
    asked = {query: components.pop(schemas[query]["$ref"].removeprefix(_SCHEMAS)) for query in queries}
    paths: dict[str, dict[str, Any]] = {}
    for row in shown:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, schemas, asked)
    return {
        "openapi": "3.1.0",
        "info": {"title": "claudeops", "version": version},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "`claudeops token create` makes one."},
                "login": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "A person's browser."},
                "slack": {"type": "apiKey", "in": "header", "name": "X-Slack-Signature"},
            },
        },
    }


def _operation(row: Endpoint, schemas: Mapping[Any, Any], asked: Mapping[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": f"{row.method.lower()}{''.join(f'_{part}' for part in _words(row.path))}",
        "summary": row.summary,
        "parameters": [*_of_path(row), *_of_query(row, asked)],
        "responses": {str(status): answer for status, answer in _answers(row, schemas)},
        "security": list(_proofs(row)),
    }
    if row.body is bytes:
        found["requestBody"] = {"content": {"*/*": {}}}
    elif row.body is not None:
        found["requestBody"] = {"content": {"application/json": {"schema": schemas[row.body]}}}
        if row.method == "POST":
            found["parameters"].append(_ONCE)
    return found


def _words(path: str) -> Iterator[str]:
    for part in path.replace("-", "_").replace(".", "_").split("/"):
        if part:
            yield f"by_{part[1:-1]}" if part.startswith("{") else part


def _of_path(row: Endpoint) -> Iterator[dict[str, Any]]:
    for part in row.path.split("/"):
        if part.startswith("{"):
            schema = {"type": "string", "minLength": 1}
            yield {"name": part[1:-1], "in": "path", "required": True, "schema": schema}


def _of_query(row: Endpoint, asked: Mapping[Any, Any]) -> Iterator[dict[str, Any]]:
    if not _takes_names(row):
        return
    for name, schema in asked[row.query].get("properties", {}).items():
        parameter = {"name": name, "in": "query", "allowEmptyValue": True, "schema": _not_null(schema)}
        yield {**parameter, "description": _MEANINGS[name]}


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that an address has, or has not: there is no null in one."""
    found = {name: value for name, value in schema.items() if name != "default" or value is not None}
    kinds = [kind for kind in found.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        del found["anyOf"]
        found |= kinds[0]
    if isinstance(found.get("enum"), list):
        found["enum"] = [value for value in found["enum"] if value is not None]
    return found


def _answers(row: Endpoint, schemas: Mapping[Any, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    content = {_MEDIA.get(row.answer, "application/json"): {"schema": schemas[row.answer]}}
    good = {"description": HTTPStatus(row.status).phrase, "content": content}
    yield row.status, good
    if row.answer is Ready:
        yield 503, {**good, "description": "It does not do its work."}
    if _is_single(row):
        yield NOT_MODIFIED, {"description": "It is the very one that `If-None-Match` names."}
    problem = {MEDIA_TYPE: {"schema": schemas[Problem]}}
    for status, meaning in _REFUSALS.items():
        if (status in {401, 403} and row.scope is None) or (status == 503 and row.answer is Ready):  # noqa: PLR2004
            continue
        if status == HTTPStatus.CONFLICT and row.body in {None, bytes}:
            continue
        yield status, {"description": meaning, "content": problem}


def _is_single(row: Endpoint) -> bool:
    is_list = getattr(row.answer, "__origin__", None) is Items
    return row.method == "GET" and row.scope == "read" and not is_list and row.answer not in _MEDIA


def _proofs(row: Endpoint) -> Iterator[dict[str, list[str]]]:
    if row.scope is None:
        yield {}
    elif not row.takes_tokens:
        yield {"slack": []}
    else:
        if row.scope not in PERSONS_SCOPES:
            yield {"token": [row.scope]}
        if row.scope in Role.ADMIN.scopes:
            yield {"login": []}


def _takes_names(row: Endpoint) -> bool:
    return row.query is not None and row.query is not ANY
