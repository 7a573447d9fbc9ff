"""The description of the endpoints for programs: OpenAPI 3.1, out of the table and the Structs that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from claudeops.domain.access.logins import COOKIE, Role
from claudeops.domain.access.tokens import PERSONS_SCOPES
from claudeops.web.endpoints import (
    ANY,
    IDEMPOTENCY_KEY,
    IF_NONE_MATCH,
    LARGEST,
    LAST_EVENT_ID,
    PART,
    PREFER,
    Endpoint,
)
from claudeops.web.problems import MEDIA_TYPE, Problem
from claudeops.web.table import Ready

_SCHEMAS: Final = "#/components/schemas/"
_HEADERS: Final = "#/components/headers/"
_NAMES: Final = frozenset({"name", "source"})
"""Parameters of paths that are names; the others are numbers."""

_MEANINGS: Final = {
    "limit": "Entries of a page.",
    "before": "`next` of the page before this one; empty: the newest entries.",
    "since": "An age (`2h`, `7d`) or a time of ISO 8601.",
    "until": "Likewise; entries before it.",
    "service": "Any spelling of its name.",
    "level": "This one and worse.",
    "tier": "Of the session; of a command that is tried, the one by whose rules.",
    "outcome": "Of the session.",
    "open": "Only what is not resolved.",
    "all": "What is over too.",
    "target": "Its name.",
    "waiting": "Only what is still to be sent.",
    "name": "A part of it.",
    "set": "Only what an operator has set.",
    "by": "This sum alone; the others are empty.",
    "after": "Up to where all is known already: `newest` of a list, or a line.",
    "format": "`json` for programs, else HTML for pages.",
    "session": "Of this session alone.",
    "at": "Until shortly after then: an age or a time of ISO 8601; empty: until now.",
    "within": "How far it looks back: a length of time (`30m`, `6h`).",
    "command": "A command to judge, which is not run; empty: none.",
}
_TAKEN: Final[Mapping[str, Mapping[str, Any]]] = {
    IDEMPOTENCY_KEY: {
        "schema": {"type": "string", "format": "idempotency-key", "pattern": "^[!-~]+$", "maxLength": 255},
        "description": "Sent again within a day, the call is not made again, and is answered as before.",
    },
    IF_NONE_MATCH: {
        "schema": {"type": "string", "format": "etags"},
        "description": "The `ETag` of the answer that is known: 304 while it is still the same.",
    },
    LAST_EVENT_ID: {
        "schema": {"type": "string", "format": "event-id"},
        "description": "The id of the last event that has come; wins over `after`.",
    },
    PREFER: {
        "schema": {"type": "string", "format": "preference"},
        "description": "`respond-if-busy`: 409 where sessions run or wait. Others say nothing.",
    },
}
"""Headers that rows take."""

_GIVEN: Final[Mapping[str, Mapping[str, Any]]] = {
    "ETag": {
        "required": True,
        "schema": {"type": "string", "pattern": '^"[0-9a-f]{32}"$'},
        "description": "Of this answer, for `If-None-Match`.",
    },
    "Idempotent-Replayed": {
        "schema": {"type": "string", "enum": ["true"]},
        "description": "The call was made before: this is what was answered then.",
    },
    "Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds until it may work."},
    "WWW-Authenticate": {"required": True, "schema": {"type": "string"}, "description": "How to prove who calls."},
    "Allow": {"required": True, "schema": {"type": "string"}, "description": "The methods that there are."},
}
"""Headers of answers."""

_REFUSALS: Final[Mapping[HTTPStatus, str]] = {
    HTTPStatus.UNAUTHORIZED: "There is no good proof of who calls, or a secret stands in the address.",
    HTTPStatus.FORBIDDEN: "The proof is for something else, or a page of another site has sent this.",
    HTTPStatus.NOT_FOUND: "There is no such thing.",
    HTTPStatus.METHOD_NOT_ALLOWED: "What is named takes another method.",
    HTTPStatus.REQUEST_TIMEOUT: "The body has not come in time.",
    HTTPStatus.CONFLICT: "It is not possible as things stand; nothing was done.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too long.",
    HTTPStatus.MISDIRECTED_REQUEST: "The host is called by another name.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The query or the body is not as it should be; unknown names are refused.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "A bug of claudeops.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Nothing can be stored or read now, or it is too much: again later.",
}
_WITH_BODY: Final = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
_HEADED: Final[Mapping[HTTPStatus, Sequence[str]]] = {
    HTTPStatus.UNAUTHORIZED: ("WWW-Authenticate",),
    HTTPStatus.METHOD_NOT_ALLOWED: ("Allow",),
    HTTPStatus.REQUEST_TIMEOUT: ("Retry-After",),
    HTTPStatus.SERVICE_UNAVAILABLE: ("Retry-After",),
}


def described(rows: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """Return the document for the endpoints that programs call."""
    shown = for_programs(rows)
    queries = {row.query for row in shown if _takes_names(row)}
    bodies = [body for row in shown if (body := _document(row)) is not None]
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
            "headers": {name: dict(header) for name, header in _GIVEN.items()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "`claudeops token create` makes one."},
                "login": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": COOKIE,
                    "description": "A person's browser; what changes something says `Sec-Fetch-Site: same-origin`.",
                },
                "slack": {"type": "apiKey", "in": "header", "name": "X-Slack-Signature"},
            },
        },
    }


def for_programs(rows: Sequence[Endpoint]) -> Sequence[Endpoint]:
    """Return the endpoints that are not for browsers alone."""
    return [row for row in rows if not row.page and not row.path.startswith("/static/")]


def _operation(row: Endpoint, schemas: Mapping[Any, Any], asked: Mapping[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": f"{row.method.lower()}{''.join(f'_{part}' for part in _words(row.path))}",
        "summary": row.summary,
        "parameters": [*_of_path(row), *_of_query(row, asked), *_of_headers(row)],
        "responses": {str(int(status)): answer for status, answer in _answers(row, schemas)},
        "security": list(_proofs(row)),
    }
    if row.body is bytes:
        found["requestBody"] = {"content": {"*/*": {}}}
    elif (body := _document(row)) is not None:
        needed = any(field.required for field in msgspec.structs.fields(body))
        found["requestBody"] = {"required": needed, "content": {"application/json": {"schema": schemas[body]}}}
    return found


def _document(row: Endpoint) -> type[msgspec.Struct] | None:
    """Return what a body is, where it is JSON."""
    return row.body if row.body is not None and issubclass(row.body, msgspec.Struct) else None


def _words(path: str) -> Iterator[str]:
    for part in path.replace("-", "_").replace(".", "_").split("/"):
        if part:
            yield f"by_{part[1:-1]}" if part.startswith("{") else part


# --- what is asked ----------------------------------------------------------------------------------------


def _of_path(row: Endpoint) -> Iterator[dict[str, Any]]:
    for name in _parameters(row):
        schema: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": LARGEST}
        if name in _NAMES:
            schema = {"type": "string", "pattern": f"^{PART}$"}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _parameters(row: Endpoint) -> Sequence[str]:
    return [part[1:-1] for part in row.path.split("/") if part.startswith("{")]


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


def _of_headers(row: Endpoint) -> Iterator[dict[str, Any]]:
    for name in row.headers:
        yield {"name": name, "in": "header", **_TAKEN[name]}


def _takes_names(row: Endpoint) -> bool:
    return row.query is not None and row.query is not ANY


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


# --- what is answered -------------------------------------------------------------------------------------


def _answers(row: Endpoint, schemas: Mapping[Any, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    content = {row.media: {"schema": schemas[row.answer]}}
    headers = ["ETag"] if IF_NONE_MATCH in row.headers else []
    headers += ["Idempotent-Replayed"] if IDEMPOTENCY_KEY in row.headers else []
    yield row.status, {"description": HTTPStatus(row.status).phrase, **_headed(headers), "content": content}
    if IF_NONE_MATCH in row.headers:
        says = "It is the very one that `If-None-Match` names."
        yield HTTPStatus.NOT_MODIFIED, {"description": says, **_headed(["ETag"])}
    for status, meaning in _REFUSALS.items():
        if not _refuses(row, status):
            continue
        problem = {MEDIA_TYPE: {"schema": schemas[Problem]}}
        if row.answer is Ready and status is HTTPStatus.SERVICE_UNAVAILABLE:
            problem |= content  # it does not do its work, and says which part of it
        yield status, {"description": meaning, **_headed(_HEADED.get(status, ())), "content": problem}


def _headed(names: Sequence[str]) -> dict[str, Any]:
    return {"headers": {name: {"$ref": f"{_HEADERS}{name}"} for name in names}} if names else {}


def _refuses(row: Endpoint, status: HTTPStatus) -> bool:
    """Return whether a row may answer with a status that is a refusal."""
    is_act = _document(row) is not None
    if status in row.refusals:
        return True
    if status in _WITH_BODY:
        return row.body is not None
    if status is HTTPStatus.NOT_FOUND:
        return bool(_parameters(row)) or is_act
    if status is HTTPStatus.CONFLICT:
        return is_act
    return status is not HTTPStatus.METHOD_NOT_ALLOWED
