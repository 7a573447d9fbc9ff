"""Prints what is in the image that it runs in, as CycloneDX: packages of Debian, Python and Go, and the claude CLI.

Called by the Dockerfile with the Python of claudeops; it needs nothing but the standard library and `dpkg-query`.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

PLACES = (Path("/opt/claudeops"), Path("/usr/local"))
"""Of claudeops itself, and of programs that are not Debian's."""

ENVIRONMENT = "lib/python3*/site-packages"
MODULES = "share/go-modules"
"""What `go version -m` prints of the programs in the `bin` beside it."""

LICENCES = {"helm.sh/helm/v3": "Apache-2.0", "github.com/docker/compose/v2": "Apache-2.0"}
"""Of the programs; no module says its own anywhere but in prose."""

CLI = "claude_agent_sdk/_bundled"
_FORMAT = "${db:Status-Abbrev}\\t${Package}\\t${Version}\\t${Architecture}\\n"


def sha256(program: Path) -> dict[str, str]:
    """Return a file's digest, as a component has it."""
    with program.open("rb") as file:
        return {"alg": "SHA-256", "content": hashlib.file_digest(file, "sha256").hexdigest()}


def list_packages() -> str:
    """Return what dpkg has on record, a line each."""
    command = ["/usr/bin/dpkg-query", "--show", f"--showformat={_FORMAT}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def debian_packages(listed: str) -> Iterator[dict[str, Any]]:
    """Make a component of each installed package; `listed` is dpkg's, a line each."""
    for line in listed.splitlines():
        status, name, version, architecture = line.split("\t")
        if status.startswith("ii"):
            url = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}"
            yield {"type": "library", "name": name, "version": version, "purl": url, "bom-ref": url}


def python_packages(places: list[Path]) -> Iterator[dict[str, Any]]:
    """Make a component of each distribution in these directories."""
    found: dict[str, Distribution] = {}
    for distribution in distributions(path=[str(place) for place in places]):
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
        found.setdefault(f"pkg:pypi/{name}@{quote(distribution.version)}", distribution)
    for url, distribution in sorted(found.items()):
        metadata = distribution.metadata
        component = {
            "type": "library",
            "name": metadata["Name"],
            "version": distribution.version,
            "purl": url,
            "bom-ref": url,
        }
        if licence := metadata.get("License-Expression"):
            component["licenses"] = [{"expression": licence}]
        yield component


def go_modules(place: Path) -> Iterator[dict[str, Any]]:
    """Make a component of each program of Go below a place, of each module in one, and of Go itself."""
    file = place / MODULES
    listed = file.read_text(encoding="utf-8") if file.exists() else ""
    seen: set[str] = set()
    program = Path()
    for line in listed.splitlines():
        kind, name, version, *_ = [*line.split("\t")[1:], "", "", ""]
        if not line.startswith("\t"):
            path, _, version = line.rpartition(": go")
            kind, name, program = "go", "stdlib", place / "bin" / Path(path).name
        url = f"pkg:golang/{name}@{quote(version)}"
        if kind not in {"go", "mod", "dep", "=>"} or url in seen:
            continue
        seen.add(url)
        component: dict[str, Any] = {"type": "library", "name": name, "version": version, "purl": url, "bom-ref": url}
        if kind == "mod":
            component |= {"type": "application", "name": program.name, "licenses": [{"expression": LICENCES[name]}]}
            component["hashes"] = [sha256(program)]
        yield component


def claude_cli(places: list[Path]) -> Iterator[dict[str, Any]]:
    """Make a component of the CLI that comes with the SDK."""
    for place in places:
        program = place / CLI / "claude"
        if program.is_file():
            version = (place / CLI / "claude.version").read_text(encoding="utf-8").split()[0]
            yield {
                "type": "application",
                "name": "claude",
                "version": version,
                "hashes": [sha256(program)],
                "bom-ref": f"claude@{version}",
            }


def bill_of_materials(listed: str, places: Sequence[Path]) -> dict[str, Any]:
    """Return the whole document; claudeops itself is what it is about. `listed` is dpkg's, a line each."""
    environments = [found for place in places for found in sorted(place.glob(ENVIRONMENT))]
    modules = [component for place in places for component in go_modules(place)]
    components = [*debian_packages(listed), *python_packages(environments), *modules, *claude_cli(environments)]
    (subject,) = [component for component in components if component["name"] == "claudeops"]
    others = [component for component in components if component is not subject]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": subject | {"type": "application"}},
        "components": others,
    }


def main() -> None:
    """Print the document."""
    json.dump(bill_of_materials(list_packages(), PLACES), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
