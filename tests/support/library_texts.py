"""Texts for tests of the library, and the built-in ones as they are shipped."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from claudeops.domain.estate.estate import Service, StatementSource
from claudeops.formats.library import BUILT_IN, HEADINGS, Library, LibraryKind, merge, parse
from support.checkout import ROOT

SHIPPED = ROOT / "prompts" / "library"


def file(name: str = "web", kind: LibraryKind = LibraryKind.CHECK, *, front: str = "", body: str | None = None) -> str:
    """Return the content of a file."""
    below = body if body is not None else "".join(f"## {heading}\nSay it.\n" for heading in HEADINGS[kind])
    return f'+++\nname = "{name}"\n{front}+++\n\n{below}'


def library(*names: str, kind: LibraryKind = LibraryKind.CHECK, origin: str = BUILT_IN, front: str = "") -> Library:
    """Return texts of one kind and origin."""
    return merge(parse(file(name, kind, front=front), kind=kind, origin=origin, path=f"{name}.md") for name in names)


def shipped_files() -> list[tuple[LibraryKind, Path]]:
    """Return the built-in files with their kinds."""
    return [(kind, path) for kind in LibraryKind for path in sorted((SHIPPED / kind).glob("*.md"))]


@cache
def shipped() -> Library:
    """Return the built-in library."""
    return merge(
        parse(path.read_text(encoding="utf-8"), kind=kind, origin=BUILT_IN, path=str(path.relative_to(ROOT)))
        for kind, path in shipped_files()
    )


def service(name: str, **given: str) -> Service:
    """Return a service of an estate."""
    return Service(name=name, source=StatementSource(path="estate/CLAUDE-OPS.md", line=1), **given)  # type: ignore[arg-type]
