"""A small file system on which settings can be loaded: prompts, schema, a CLI, the usual directories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from claudeops.settings import Loaded, Settings, load_settings

SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}


@dataclass(frozen=True, slots=True)
class World:
    """Everything below ``base``: ``root`` stands for ``/``, ``cwd`` is the working directory."""

    base: Path

    @property
    def root(self) -> Path:
        return self.base / "root"

    @property
    def cwd(self) -> Path:
        return self.base / "cwd"

    @property
    def claude(self) -> Path:
        return self.base / "bin" / "claude"

    def file(self, name: str, content: str | bytes) -> Path:
        """Write a file into the working directory."""
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def load(self, environ: Mapping[str, str] | None = None, /, **more: str) -> Loaded:
        """Load settings from the given variables alone, beside ``PATH`` and ``HOME``."""
        surroundings = {"PATH": str(self.claude.parent), "HOME": str(self.base / "home")}
        return load_settings({**surroundings, **(environ or {}), **more}, cwd=self.cwd, root=self.root)

    def settings(self, environ: Mapping[str, str] | None = None, /, **more: str) -> Settings:
        return self.load(environ, **more).settings


def make_world(base: Path) -> World:
    """Return a world in which an empty environment loads without a warning."""
    world = World(base)
    prompts, schemas = world.root / "app" / "prompts", world.root / "app" / "schemas"
    for directory in (world.cwd, world.claude.parent, prompts, schemas, world.root / "repos" / "estate"):
        directory.mkdir(parents=True)
    (world.root / "state").mkdir()
    (world.root / "results").mkdir()
    for name in ("tier1-observe", "tier2-investigate", "tier3-remediate"):
        (prompts / f"{name}.md").write_text(f"prompt of {name}\n")
    (schemas / "agent-response.json").write_text(json.dumps(SCHEMA))
    world.claude.write_text("#!/bin/sh\n")
    world.claude.chmod(0o755)
    return world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)
