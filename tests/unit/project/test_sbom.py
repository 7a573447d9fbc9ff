"""The list of what is in an image: valid CycloneDX, and complete."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sysconfig
from importlib.metadata import distributions
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft7Validator
from packaging.utils import canonicalize_name
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from support.checkout import ROOT

SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
LISTED = (
    "ii \tbash\t5.2.15-2+b8\tamd64\nrc \tnginx\t1.22.1-9\tamd64\niU \tredis\t5:7.0.15-1\tall\n"
    "ii \tlibstdc++6\t12.2.0-14\tamd64\n"
)


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "deploy" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def document(sbom: ModuleType) -> dict[str, Any]:
    made: dict[str, Any] = sbom.bill_of_materials(LISTED, [SITE_PACKAGES])
    return made


def schema(name: str) -> Any:
    return json.loads((files("cyclonedx.schema") / "_res" / f"{name}.SNAPSHOT.schema.json").read_bytes())


def validator() -> Draft7Validator:
    parts = [schema(name) for name in ("bom-1.6", "spdx", "jsf-0.82")]
    resources = [(part["$id"], Resource.from_contents(part, DRAFT7)) for part in parts]
    return Draft7Validator(parts[0], registry=Registry().with_resources(resources))


def test_it_is_as_the_schema_of_cyclonedx_says(document: dict[str, Any]) -> None:
    assert [error.message for error in validator().iter_errors(document)] == []
    assert list(validator().iter_errors(document | {"specVersion": 1})) != []


def test_every_distribution_is_in_it(document: dict[str, Any]) -> None:
    there = {f"pkg:pypi/{canonicalize_name(found.metadata['Name'])}" for found in distributions()}
    listed = [document["metadata"]["component"], *document["components"]]

    assert {part["purl"].split("@")[0] for part in listed if "pypi" in part.get("purl", "")} == there


def test_it_looks_wherever_the_image_gets_packages_of_python(sbom: ModuleType, tmp_path: Path) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY --from=\w+ /opt/(\w+) /opt/\1$", dockerfile, flags=re.MULTILINE)
    places = {tmp_path / name / "lib" / "python3.11" / "site-packages" for name in copied}
    for place in places:
        place.mkdir(parents=True)

    assert len(places) == 2
    assert set(tmp_path.glob(sbom.ENVIRONMENTS)) == places


def test_a_package_of_debian_is_in_it_while_it_is_installed(document: dict[str, Any]) -> None:
    urls = [part["purl"] for part in document["components"] if part.get("purl", "").startswith("pkg:deb/")]

    assert urls == [
        "pkg:deb/debian/bash@5.2.15-2%2Bb8?arch=amd64",
        "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14?arch=amd64",
    ]


def test_the_cli_is_in_it_with_its_digest(document: dict[str, Any]) -> None:
    (cli,) = [part for part in document["components"] if part["name"] == "claude"]

    assert cli["type"] == "application"
    assert cli["version"].count(".") == 2
    assert len(cli["hashes"][0]["content"]) == 64


def test_dpkg_prints_what_is_read_of_it(sbom: ModuleType) -> None:
    if shutil.which("dpkg-query") is None:
        pytest.skip("needs dpkg-query (Debian: dpkg)")

    found = {part["name"]: part["version"] for part in sbom.debian_packages(sbom.list_packages())}
    assert {"bash", "dpkg"} <= found.keys()
    assert all(found.values())
