"""The description of the API: valid, and complete. That every answer keeps it is seen in test_described_api.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from openapi_spec_validator import validate

from claudeops.web.acting import ACTS
from support.listening import bearer
from support.paged import SiteDoor, site_door


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
    assert "304" not in events["responses"]


async def test_headers_are_described_where_they_count_and_nowhere_else(tmp_path: Path) -> None:
    async with site_door(tmp_path) as site:
        paths = (await document_of(site))["paths"]
    ways = [(path, method, way) for path, methods in paths.items() for method, way in methods.items()]
    takes = {
        header: {(method, path) for path, method, way in ways for each in way["parameters"] if each["name"] == header}
        for header in ("Idempotency-Key", "If-None-Match", "Prefer", "Last-Event-ID")
    }
    keyed = {("post", f"/api/v1{path}") for act in ACTS for path in act.api if act.method == "POST"}
    assert takes["Idempotency-Key"] == keyed  # a replay does nothing, and a PUT may be sent again
    tagged = {("get", path) for path, _, way in ways if "304" in way["responses"]}
    assert takes["If-None-Match"] == tagged
    assert ("get", "/api/v1/sessions/{id}") in tagged
    for method, path in tagged:
        assert "ETag" in paths[path][method]["responses"]["200"]["headers"]
    assert takes["Prefer"] == {("post", "/api/v1/sessions"), ("post", "/api/v1/sessions/trigger")}
    assert takes["Last-Event-ID"] == {("get", "/stream"), ("get", "/sessions/{id}/stream")}


async def test_the_page_for_people_has_every_endpoint_and_no_script_of_others(tmp_path: Path) -> None:
    async with site_door(tmp_path) as site:
        text = (await site.get("/api", await site.login())).body.decode()
        document = await document_of(site)
    for path, ways in document["paths"].items():
        for method in ways:
            assert f"<code>{method.upper()} {path}</code>" in text
    assert "http" not in text.replace("http-equiv", "").partition("<body>")[2]
