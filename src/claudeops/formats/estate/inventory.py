"""What stands below headings about hosts, and in tables about maintenance."""

from __future__ import annotations

from typing import Final

from claudeops.domain.estate import words
from claudeops.domain.estate.words import Facet, word_set
from claudeops.formats.estate.draft import Draft
from claudeops.formats.estate.heads import ALSO, HEAD
from claudeops.formats.estate.markdown import Grid, NumberedLine

_NAMED: Final = word_set(
    "host|name|machine|server|node|vm|hostname|fqdn|dns|dns name|address|ip|ip address|addresses|ipv4|ipv6|alias"
    "|aliases|also known as",
    separator="|",
)
"""Columns with the names and addresses of a host."""


def read_hosts_table(draft: Draft, grid: Grid) -> None:
    """Take a table with one host in each row."""
    wanted = [place for place, cell in enumerate(grid.header) if words.key_form(cell) in _NAMED] or [0]
    for line, cells in grid.rows:
        draft.names_of_host([cells[place] for place in wanted if place < len(cells)], line)


def read_host(draft: Draft, text: str, line: int) -> None:
    """Take an item such as ``web1 (10.0.0.5, web1.example.org)``."""
    found = HEAD.fullmatch(text.strip())
    if found is None:
        draft.hosts_in(text.partition(" ")[0], line)
        return
    name = words.name_in(found[1] or found[2] or found[3] or found[4] or found[6])
    names = [name]
    behind = found[7][: words.LONGEST_TEXT].replace("(", ", ").replace(")", ", ").replace(":", ", ", 1)
    for piece in words.fragments(behind):
        word = words.plain(piece).partition(" ")[0]
        also = ALSO.match(piece)
        if also is not None:
            names += words.names_in(also[1])
        elif word and words.looks_like_host(word):
            names.append(word)
    if words.key_form(name) not in words.NOT_NAMES:
        draft.names_of_host(names, line)


def read_hosts(draft: Draft, lines: tuple[NumberedLine, ...]) -> None:
    """Take a paragraph if it is a list of hosts."""
    for line in lines:
        pieces = words.names_in(line.text.rstrip(".:"))
        bare = len(pieces) > 1 or len(lines) > 1
        if all(words.looks_like_host(piece, bare=bare) for piece in pieces):
            for piece in pieces:
                draft.hosts_in(piece, line.number)


def read_windows_table(draft: Draft, grid: Grid, name: int) -> None:
    """Take a table with the windows of one service in each row; ``name``: the column of the service."""
    for line, cells in grid.rows:
        written = words.name_in(cells[name]) if name < len(cells) else ""
        service = draft.service(written, line) if draft.has(written) else None
        if service is None:
            draft.fault(line, f"{written[:60]!r} is no service described above: name one")
            continue
        windows = ", ".join(cell for place, cell in enumerate(cells) if place != name and cell)
        draft.statement(service, Facet.MAINTENANCE.value, windows, line)
