"""The files that somebody deploys with, as several tests read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from claudeops.engine.session.supervisor import STOP_MARGIN_SECONDS
from claudeops.settings import Settings
from claudeops.settings.model import KNOWN
from claudeops.settings.variables import FILE_SUFFIX
from support.checkout import ROOT
from support.settings_world import make_world

COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
SERVICE: dict[str, Any] = COMPOSE["services"]["claudeops"]
STOPPING_SECONDS = STOP_MARGIN_SECONDS + sum(
    float(KNOWN[f"CLAUDEOPS_{name}"].default or 0) for name in ("DRAIN_TIMEOUT", "STOP_GRACE")
)
"""At most, from the request to stop a daemon with default settings to its last session's end."""

DATABASE = "postgresql://claudeops:planted@postgresql/claudeops"
_BESIDE_OURS = {"HOME", "LANG"}


def unit(name: str = "claudeops.service") -> dict[str, list[str]]:
    """Return a unit's settings, each with its values in their order."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "deploy" / name).read_text(encoding="utf-8").replace("\\\n", "").splitlines():
        if line and not line.startswith(("#", "[")):
            setting, _, value = line.partition("=")
            found.setdefault(setting, []).append(value)
    return found


def unknown(names: Iterable[str]) -> list[str]:
    """Return those of an environment's names that are no settings."""
    return [name for name in names if name not in _BESIDE_OURS and name.removesuffix(FILE_SUFFIX) not in KNOWN]


def node_settings(environment: Mapping[str, str], directory: Path) -> Settings:
    """Return what a daemon reads of a node's environment, whose secrets are files."""
    world = make_world(directory)
    files = {"ANTHROPIC_API_KEY_FILE": "sk-ant-of-a-node\n", "CLAUDEOPS_DATABASE_URL_FILE": f"{DATABASE}\n"}
    return world.settings({**environment, **{name: str(world.file(name, text)) for name, text in files.items()}})
