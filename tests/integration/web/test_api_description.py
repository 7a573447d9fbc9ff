"""The description of the API: valid, complete, and kept by every answer, whatever is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import jsonschema
import yaml
from anyio.from_thread import start_blocking_portal
from hypothesis import given, settings
from hypothesis import strategies as st
from openapi_spec_validator import validate

from support.listening import bearer
from support.lived_in import something_of_everything
from support.paged import SiteDoor, site_door

OPERATIONS: Final = 22
"""Those that read, at least: none goes by mistake."""

STRANGE: Final = st.sampled_from(["", "0", "-1", "201", "1e3", "\x00", "\u202e", "%", "a" * 301, "🙂", "Mw", "true"])
MOMENTS: Final = st.sampled_from(["2h", "7d", "1h30m", "2026-03-01", "2026-03-01T12:00Z", "9999999w", "0001-01-01"])


async def document_of(site: SiteDoor) -> dict[str, Any]:
    return (await site.door.ask("GET", "/api/v1/openapi.json", headers=bearer(2))).json


async def test_it_is_openapi_and_has_every_endpoint_that_programs_call(tmp_path: Path) -> None:
    async with site_door(tmp_path) as site:
        document = await document_of(site)
        text = (await site.door.ask("GET", "/api/v1/openapi.yaml", headers=bearer(2))).body
        rows = [row for row in site.door.listener.table.rows if not row.page and not row.path.startswith("/static/")]
    validate(document)
    assert document["openapi"] == "3.1.0"
    assert yaml.safe_load(text) == document
    found = {(method.upper(), path) for path, ways in document["paths"].items() for method in ways}
    assert found == {(row.method, row.path) for row in rows}
    names = [way["operationId"] for ways in document["paths"].values() for way in ways.values()]
    assert len(names) == len(set(names))


async def test_bounds_and_proofs_of_a_list_are_in_it(tmp_path: Path) -> None:
    async with site_door(tmp_path) as site:
        paths = (await document_of(site))["paths"]
    events = paths["/api/v1/events"]["get"]
    known = {each["name"]: each["schema"] for each in events["parameters"]}
    assert known["limit"] == {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}
    assert events["security"] == [{"token": ["read"]}, {"login": []}]
    assert paths["/api/v1/alerts/{source}"]["post"]["security"] == [{"token": ["alerts:{source}"]}]
    assert paths["/health"]["get"]["security"] == [{}]
    assert "304" in paths["/api/v1/sessions/{id}"]["get"]["responses"]
    assert "304" not in events["responses"]


async def test_the_page_for_people_has_every_endpoint_and_no_script_of_others(tmp_path: Path) -> None:
    async with site_door(tmp_path) as site:
        text = (await site.get("/api", await site.login())).body.decode()
        document = await document_of(site)
    for path, ways in document["paths"].items():
        for method in ways:
            assert f"<code>{method.upper()} {path}</code>" in text
    assert "http" not in text.replace("http-equiv", "").partition("<body>")[2]


def values(schema: Mapping[str, Any], name: str) -> st.SearchStrategy[str]:
    """Return values of a parameter: good ones, and some that are none."""
    good: st.SearchStrategy[str] = st.text(max_size=20)
    if "enum" in schema:
        good = st.sampled_from(schema["enum"])
    elif schema.get("type") == "integer":
        good = st.integers(schema.get("minimum", 0), schema.get("maximum", 200)).map(str)
    elif schema.get("type") == "boolean":
        good = st.sampled_from(["true", "false", "1", "0"])
    elif name in {"since", "until"}:
        good = MOMENTS
    return good | STRANGE


def resolved(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    return document["components"]["schemas"][reference.rpartition("/")[2]] if reference else schema


def test_whatever_is_asked_is_answered_as_described(tmp_path: Path) -> None:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(site_door(tmp_path)) as site:
        portal.call(something_of_everything, site.store)
        document = portal.call(document_of, site)
        reads = [(path, ways["get"]) for path, ways in document["paths"].items() if _reads(ways)]
        assert len(reads) >= OPERATIONS

        @given(data=st.data())
        @settings(max_examples=100, deadline=None)
        def hold(data: st.DataObject) -> None:
            path, operation = data.draw(st.sampled_from(reads))
            target = _drawn(data, path, operation, document)
            site.door.clock.go_on(1)
            answer = portal.call(partial(site.door.ask, "GET", target, headers=bearer(2)))
            assert answer.status < 500, target
            schema = operation["responses"][str(answer.status)]["content"][answer.headers["content-type"]]["schema"]
            jsonschema.validate(json.loads(answer.body), {**schema, "components": document["components"]})

        hold()


def _reads(ways: Mapping[str, Any]) -> bool:
    get = ways.get("get")
    if get is None or {"token": ["read"]} not in get["security"] or get["operationId"] == "get_api_v1_openapi_yaml":
        return False
    return "application/json" in get["responses"]["200"]["content"]  # a stream goes on


def _drawn(data: st.DataObject, path: str, operation: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    query = {}
    for parameter in operation["parameters"]:
        name = parameter["name"]
        if parameter["in"] == "path":
            path = path.replace(f"{{{name}}}", data.draw(st.sampled_from(["1", "2", "99", "web", "x", "-1", "1.5"])))
        elif data.draw(st.booleans()):
            query[name] = data.draw(values(resolved(parameter["schema"], document), name))
    if data.draw(st.integers(0, 9)) == 0:
        query[data.draw(st.sampled_from(["offset", "after", "x"]))] = "1"
    return f"{path}?{urlencode(query)}" if query else path
