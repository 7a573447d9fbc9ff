"""The list of what is in an image: valid CycloneDX, and complete."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import sys
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
from support.dockerfile import of

LISTED = (
    "ii \tbash\t5.2.15-2+b8\tamd64\nrc \tnginx\t1.22.1-9\tamd64\niU \tredis\t5:7.0.15-1\tall\n"
    "ii \tlibstdc++6\t12.2.0-14\tamd64\n"
)

MODULES = """\
/opt/programs/bin/helm: go1.27.3
\tpath\thelm.sh/helm/v3/cmd/helm
\tmod\thelm.sh/helm/v3\tv3.22.0\th1:n1if5iQgHYs=
\tdep\tgithub.com/docker/docker\tv28.5.1+incompatible\th1:BhMlf+QY4BE=
\tdep\tdario.cat/mergo\tv1.0.1\th1:Ra4+bf83h2z=
\tbuild\t-trimpath=true
/opt/programs/bin/docker-compose: go1.27.3
\tpath\tgithub.com/docker/compose/v2/cmd
\tmod\tgithub.com/docker/compose/v2\tv2.40.3\th1:XeYkQu1svDt=
\tdep\tdario.cat/mergo\tv1.0.1\th1:Ra4+bf83h2z=
\tbuild\tCGO_ENABLED=0
"""


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "deploy" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def document(sbom: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("programs")
    for name in ("bin/helm", "bin/docker-compose", sbom.MODULES):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(MODULES if name == sbom.MODULES else name)
    made: dict[str, Any] = sbom.bill_of_materials(LISTED, [Path(sys.prefix), place])
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


def test_it_looks_wherever_the_image_gets_what_is_not_of_debian(sbom: ModuleType) -> None:
    copied = [line.split() for line in of("COPY") if line.startswith("--from=")]

    assert {Path(place) for _, _, place in copied} == {*sbom.PLACES}


def test_a_package_of_debian_is_in_it_while_it_is_installed(document: dict[str, Any]) -> None:
    urls = [part["purl"] for part in document["components"] if part.get("purl", "").startswith("pkg:deb/")]

    assert urls == [
        "pkg:deb/debian/bash@5.2.15-2%2Bb8?arch=amd64",
        "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14?arch=amd64",
    ]


def test_a_program_of_go_is_in_it_with_version_licence_and_digest_and_each_of_its_modules_once(
    document: dict[str, Any],
) -> None:
    parts = [part for part in document["components"] if part.get("purl", "").startswith("pkg:golang/")]
    programs = {part["name"]: part for part in parts if part["type"] == "application"}

    assert [part["purl"].removeprefix("pkg:golang/") for part in parts] == [
        "stdlib@1.27.3",
        "helm.sh/helm/v3@v3.22.0",
        "github.com/docker/docker@v28.5.1%2Bincompatible",
        "dario.cat/mergo@v1.0.1",
        "github.com/docker/compose/v2@v2.40.3",
    ]
    assert {name: (part["version"], part["licenses"]) for name, part in programs.items()} == {
        "helm": ("v3.22.0", [{"expression": "Apache-2.0"}]),
        "docker-compose": ("v2.40.3", [{"expression": "Apache-2.0"}]),
    }
    assert programs["helm"]["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"bin/helm").hexdigest()}]


def test_the_licence_of_every_program_that_is_built_is_known(sbom: ModuleType) -> None:
    wanted = [file.read_text(encoding="utf-8") for file in (ROOT / "deploy" / "programs").glob("*/go.mod")]
    tools = [tool for text in wanted for tool in re.findall(r"^tool (\S+)$", text, flags=re.MULTILINE)]

    assert {module for module in sbom.LICENCES for tool in tools if tool.startswith(f"{module}/")} == {*sbom.LICENCES}
    assert len(tools) == len(sbom.LICENCES)


def test_the_list_of_modules_is_read_where_the_build_writes_it(sbom: ModuleType) -> None:
    build = (ROOT / "deploy" / "programs" / "build").read_text(encoding="utf-8")

    assert re.findall(r'version -m .* >"\$to/(\S+)"$', build, flags=re.MULTILINE) == [sbom.MODULES]


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
