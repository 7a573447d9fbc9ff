"""Reads a ``CLAUDE-OPS.md``, however people write it: tables, lists, sections, front matter, blocks of TOML or YAML.

Headings say what is spoken of; what stands below them is taken by its columns and keys. Everything else is prose: a
time in which a service may be away counts, and how it is restarted; what reads like a prohibition is named (`rules`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from claudeops.domain.estate import words
from claudeops.domain.estate.estate import Manifest
from claudeops.domain.estate.words import Facet, Section, readable
from claudeops.formats.estate import rules
from claudeops.formats.estate.draft import Draft, ServiceDraft
from claudeops.formats.estate.entries import LANGUAGES, read_document
from claudeops.formats.estate.heads import ADDRESS, ALSO, IDENTIFIER, Details, read_details, read_head, split_name
from claudeops.formats.estate.inventory import read_host, read_hosts, read_hosts_table, read_windows_table
from claudeops.formats.estate.markdown import (
    LONGEST_LINE,
    Block,
    Fence,
    Grid,
    Heading,
    Item,
    NumberedLine,
    Paragraph,
    _joined,
    read_page,
    sentences,
)
from claudeops.formats.estate.windows import windows_in
from claudeops.text import regex

FILE: Final = "CLAUDE-OPS.md"
MOST_CHARACTERS: Final = 256 * 1024
"""Of one manifest; it is not read beyond."""

_WHOLE: Final = frozenset({Section.RULES, Section.FORBIDDEN, Section.CAPABILITIES})
"""Where an item is one text, whatever its lines look like."""

_MOST_LINES: Final = 6000
_FRONT: Final = {"+++": "toml", "---": "yaml"}


def parse_manifest(text: str, *, repository: str, path: str = "") -> Manifest:
    """Return what a manifest says; whatever the text is, it never raises."""
    draft = Draft(repository, path or f"{repository}/{FILE}")
    if len(text) > MOST_CHARACTERS:
        draft.fault(None, f"the manifest is longer than {MOST_CHARACTERS // 1024} KiB, and read no further: shorten it")
    lines = readable(text[:MOST_CHARACTERS]).removeprefix("\ufeff").split("\n")
    start = _front_matter(draft, lines)
    end = start + _MOST_LINES
    if len(lines) > end:
        draft.fault(end + 1, f"the manifest has more than {_MOST_LINES} lines, and is read no further: shorten it")
    for number, line in enumerate(lines[start:end], start + 1):
        if len(line) > LONGEST_LINE:
            draft.fault(number, f"this line is longer than {LONGEST_LINE} characters, and read no further: break it")
    page = read_page(lines[start:end], start + 1)
    for number, sentence in page.faults:
        draft.fault(number, sentence)
    reader = _Reader(draft)
    for block in page.blocks:
        reader.read(block)
    reader.close()
    return draft.close("\n".join(lines[:end]))


def _front_matter(draft: Draft, lines: list[str]) -> int:
    """Read what stands between two marks at the very beginning; return the number of lines that it takes."""
    mark = lines[0].rstrip()
    if mark not in _FRONT:
        return 0
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in {mark, "..."}), None)
    if end is None:
        if mark == "+++":
            draft.fault(1, "the front matter has no end: close it with a line '+++'")
        return 0 if mark == "---" else 1
    read_document(draft, "\n".join(lines[1:end]), _FRONT[mark], first_line=2, front=True)
    return end + 1


class _Chapter(msgspec.Struct):
    """What is spoken of below a heading."""

    level: int
    section: Section
    title: str


class _Reader:
    """Takes one block after the other, and knows below which headings it stands."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._chapters: list[_Chapter] = []
        self._service: ServiceDraft | None = None  # that is described now
        self._depth = -1  # of the item that began it; -1: a heading did
        self._candidate: Heading | None = None  # a heading that may turn out to name a service
        self._waiting: list[tuple[str, str, int]] = []  # keys, texts and lines below the candidate
        self._owner: tuple[int, ServiceDraft] | None = None  # the service of the nearest heading, and its level
        self._lead = False  # the line above says "Never:" and a list follows

    @property
    def _section(self) -> Section:
        return self._chapters[-1].section if self._chapters else Section.OTHER

    @property
    def _is_described(self) -> bool:
        """Whether what follows is about a service, or about what a heading perhaps names."""
        return self._service is not None or self._candidate is not None

    @property
    def _in_rules(self) -> bool:
        return self._section in {Section.RULES, Section.FORBIDDEN}

    def read(self, block: Block) -> None:
        if isinstance(block, Heading):
            self._heading(block)
        elif isinstance(block, Grid):
            self._grid(block)
        elif isinstance(block, Fence):
            self._fence(block)
        elif isinstance(block, Item):
            self._item(block)
        else:
            self._paragraph(block)

    def close(self) -> None:
        """Give up the heading that named no service; what stands below it belongs to the service above, if to any."""
        heading, waiting = self._candidate, self._waiting
        self._candidate, self._waiting = None, []
        if heading is None:
            return
        name, rest = split_name(words.linked_names(heading.text))
        self._draft.loose_item(name, "", rest, heading.line, whole=heading.text)
        for key, text, line in waiting:
            whole = f"{key}: {text}" if key else text
            if self._owner is None:
                self._draft.loose_item(name, key, text, line, whole=whole)
                self._loose(whole, line, whole="")
            elif key:
                self._draft.statement(self._owner[1], key, text, line, binding=True)
            else:
                self._draft.item(self._owner[1].name, text, line)

    # --- headings

    def _heading(self, heading: Heading) -> None:
        self.close()
        self._service, self._lead = None, False
        if self._owner is not None and self._owner[0] >= heading.level:
            self._owner = None
        while self._chapters and self._chapters[-1].level >= heading.level:
            self._chapters.pop()
        above = self._chapters[-1] if self._chapters else None
        section = words.section_of(heading.text)
        if section is Section.OTHER and rules.heads_prohibitions(heading.text):
            section = Section.FORBIDDEN
            self._aside(heading.text if rules.names_something(heading.text) else "", heading.line)
        spoken = words.key_value(heading.text)
        if section is Section.KIND and spoken is not None:
            self._draft.kind_of(spoken[1])
        if section is not Section.OTHER:
            self._chapters.append(_Chapter(level=heading.level, section=section, title=heading.text))
        else:
            if heading.level == 1 or not self._name(heading, above):
                self._aside(heading.text, heading.line)
            self._chapters.append(_Chapter(level=heading.level, section=self._below(above), title=heading.text))
        if not self._is_described and self._owner is not None:
            self._service, self._depth = self._owner[1], -1

    def _below(self, above: _Chapter | None) -> Section:
        return Section.OTHER if above is None or above.section is Section.SERVICES else above.section

    def _name(self, heading: Heading, above: _Chapter | None) -> bool:
        """Take a heading as a service's name: at once where services are listed, else when its list looks like one."""
        if above is not None and above.section not in {Section.SERVICES, Section.OTHER}:
            return False
        spoken = words.key_value(heading.text)
        named = spoken is not None and words.part_of(spoken[0]) is Facet.NAME
        name, rest = split_name(spoken[1] if spoken is not None and named else words.linked_names(heading.text))
        if not name or words.key_form(name) in words.NOT_NAMES or words.refuse_name(name) is not None:
            return False
        is_chapter = words.key_form(name) in words.CHAPTERS
        listed = above is not None and above.section is Section.SERVICES and above.level > 1
        if not is_chapter and ((listed and IDENTIFIER.fullmatch(name)) or self._draft.has(name)):
            self._begin(name, heading.line, -1, level=heading.level)
            self._details(read_details(rest), heading.line)
        else:
            self._candidate = heading
        return True

    def _begin(self, name: str, line: int, depth: int, *, level: int = 0) -> ServiceDraft | None:
        self._service, self._depth, self._candidate = self._draft.service(name, line), depth, None
        if level and self._service is not None:
            self._owner = (level, self._service)
        return self._service

    def _statement(self, key: str, text: str, line: int) -> None:
        """Note a statement about the service that is described, or about the one that a heading perhaps names."""
        if self._service is not None and key:
            self._draft.statement(self._service, key, text, line)
        elif self._service is not None:
            self._draft.item(self._service.name, text, line)
        elif self._candidate is not None:
            self._waiting.append((key, text, line))
            chapter = words.key_form(self._candidate.text) in words.CHAPTERS
            listed = any(above.section is Section.SERVICES for above in self._chapters)
            wanted = 1 if listed and not chapter else 2
            if len({words.part_of(key) for key, _, _ in self._waiting} - {Facet.RULES, None}) >= wanted:
                self._elect(self._candidate)

    def _elect(self, heading: Heading) -> None:
        waiting, self._waiting = self._waiting, []
        name, rest = split_name(words.linked_names(heading.text))
        self._begin(name, heading.line, -1, level=heading.level)
        self._details(read_details(rest), heading.line)
        for key, text, line in waiting:
            self._statement(key, text, line)

    # --- tables

    def _grid(self, grid: Grid) -> None:
        self._lead = False
        name = words.name_column(grid.header)
        parts = [words.part_of(cell) for cell in grid.header]
        described = {part for place, part in enumerate(parts) if part is not None and place != name}
        if self._section is Section.HOSTS:
            self._hosts_grid(grid)
        elif self._section is Section.MAINTENANCE and Facet.MAINTENANCE not in parts:
            read_windows_table(self._draft, grid, name or 0)
        elif self._in_rules:
            for line, cells in grid.rows:
                text = cells[name] if name is not None and name < len(cells) else " ".join(cells)
                self._draft.rule(text, line, forbidden=self._section is Section.FORBIDDEN, about=self._about())
        elif name is None and self._is_described and len(grid.header) == 2:  # noqa: PLR2004 - key and value
            for line, cells in ((grid.line, grid.header), *grid.rows):
                self._statement(cells[0], cells[1] if len(cells) > 1 else "", line)
        elif name is not None and (
            described or self._section is Section.SERVICES or "service" in map(words.key_form, grid.header)
        ):
            self._services_grid(grid, name)
        elif name is None and Facet.HOST in parts and self._section is not Section.SERVICES:
            self._hosts_grid(grid)
        else:
            if self._section is Section.SERVICES:
                self._draft.fault(grid.line, "no column names the services: call one of them 'service'")
            self._unread_grid(grid, name)

    def _hosts_grid(self, grid: Grid) -> None:
        read_hosts_table(self._draft, grid)
        self._unread_grid(grid, None)

    def _unread_grid(self, grid: Grid, name: int | None) -> None:
        """Look for what a table that describes nothing forbids: it counts for services described elsewhere."""
        for line, cells in grid.rows:
            for key, cell in zip(grid.header, cells, strict=False):
                if name is not None and name < len(cells) and rules.cell_forbids(key, cell):
                    self._draft.loose_item(words.name_in(cells[name]), key, cell, line, whole=f"{key}: {cell}")
                else:
                    self._aside(cell, line)

    def _services_grid(self, grid: Grid, name: int) -> None:
        for place, cell in enumerate(grid.header):
            if place == name or words.part_of(cell) is not None or words.key_form(cell) in words.IDENTIFIERS:
                continue
            known = words.meant(cell) if not rules.names_action(cell) else None
            if known is not None:
                self._draft.fault(grid.line, f"the column {words.plain(cell)!r} is not known: write {known!r}")
            else:
                self._draft.unused(cell, grid.line)
        width = len(grid.header)
        for line, cells in grid.rows:
            if len(cells) > width:
                self._draft.fault(
                    line, f"this row has {len(cells)} cells, its table {width}: write a bar within a cell as '\\|'"
                )
            service = self._named_row(cells[name] if name < len(cells) else "", line) if any(cells) else None
            if service is None:
                continue
            for place, cell in enumerate(cells):
                self._cell(service, grid.header[place] if place < width else "", cell, line, is_name=place == name)

    def _cell(self, service: ServiceDraft, key: str, cell: str, line: int, *, is_name: bool) -> None:
        if words.key_form(key) in words.IDENTIFIERS and not is_name:
            service.add(Facet.ALIASES, cell, line)
        elif key:
            self._draft.statement(service, key, cell, line)
        else:
            self._draft.item(service.name, cell, line)
        link = regex.search(r"\]\(([a-z]+://[^()\s]+)\)", cell) if is_name else None
        if link is not None:
            service.add(Facet.ADDRESS, link[1], line)

    def _named_row(self, cell: str, line: int) -> ServiceDraft | None:
        name, rest = split_name(words.linked_names(cell))
        if words.is_nothing(name):
            self._draft.fault(line, "this row names no service: give it a name")
            return None
        service = self._draft.service(name, line)
        also = ALSO.match(rest)
        if service is not None and also is not None:
            service.add(Facet.ALIASES, also[1], line)
        if service is not None:
            self._draft.item(service.name, rest, line)
        return service

    # --- blocks of TOML and YAML

    def _fence(self, fence: Fence) -> None:
        forbidden = self._section is Section.FORBIDDEN or self._lead
        if fence.info in LANGUAGES:
            read_document(self._draft, fence.text, fence.info, first_line=fence.line, front=False, forbidden=forbidden)
            return
        for number, text in enumerate(fence.text.split("\n"), fence.line):
            if forbidden:
                self._draft.rule(text.strip(" -*+"), number, forbidden=True, about=self._about())
            elif fence.is_text:
                self._aside(text, number)

    # --- lists

    def _item(self, item: Item) -> None:
        first = item.lines[0]
        if self._service is not None and self._depth >= 0 and item.depth < self._depth:
            self._service = None
        if self._lead and item.depth == 0 and self._section not in {Section.HOSTS, Section.CAPABILITIES}:
            self._draft.rule(_joined(item.lines), first.number, forbidden=True, about=self._about())
            return
        if item.further and self._section in _WHOLE:
            self._prose(item.lines)
            return
        text = [first]
        keys: list[NumberedLine] = []
        is_keyed = words.key_value(first.text) is not None
        for line in item.lines[1:]:
            spoken = words.key_value(line.text)
            known = spoken is not None and (is_keyed or words.part_of(spoken[0]) is not None)
            known = known or rules.forbids(line.text)
            (keys if known and self._section not in _WHOLE else text).append(line)
        self._line(NumberedLine(first.number, _joined(text)), item.depth)
        for line in keys:
            self._line(line, item.depth + 1)

    def _line(self, line: NumberedLine, depth: int) -> None:
        """Take one line of a list."""
        text = line.text
        spoken = words.key_value(text)
        part = words.part_of(spoken[0]) if spoken is not None else None
        if spoken is not None and part is Facet.RULES and spoken[1] and (not self._is_described or self._in_rules):
            forbidden = self._section is Section.FORBIDDEN or words.key_form(spoken[0]) not in rules.RULE_KEYS
            self._draft.rule(spoken[1], line.number, forbidden=forbidden, about=self._about())
        elif self._in_rules:
            self._draft.rule(text, line.number, forbidden=self._section is Section.FORBIDDEN, about=self._about())
        elif self._section is Section.CAPABILITIES:
            self._draft.capabilities.append(words.plain(text)[: words.LONGEST_TEXT])
            self._aside(text, line.number)
        elif self._section is Section.HOSTS:
            read_host(self._draft, text, line.number)
            self._aside(text, line.number)
        elif self._section is Section.MAINTENANCE:
            self._window_line(text, line.number)
        elif spoken is not None and part is Facet.NAME and spoken[1]:
            self._begin(words.name_in(spoken[1]), line.number, depth)
        elif spoken is not None and part is not None and self._is_described:
            self._statement(spoken[0], spoken[1], line.number)
        elif self._section is Section.SERVICES and (self._service is None or depth <= self._depth):
            self._head(text, line.number, depth)
        else:
            self._other(line, spoken)

    def _other(self, line: NumberedLine, spoken: tuple[str, str] | None) -> None:
        """Take an item that says nothing of what is known of services."""
        text = line.text
        known = words.meant(spoken[0]) if spoken is not None and self._service is not None else None
        if spoken is not None and words.key_form(spoken[0]) == "kind":
            self._draft.kind_of(spoken[1])
        elif self._is_described:
            if spoken is not None and known is not None:
                self._draft.fault(line.number, f"{words.plain(spoken[0])!r} is not known: write {known!r}")
            if ADDRESS.match(text.strip()):
                self._statement(Facet.ADDRESS.value, text, line.number)
            elif spoken is not None:
                self._statement(*spoken, line.number)
            else:
                self._statement("", text, line.number)
            if self._service is not None and known is None:
                self._prose((line,), about=self._about())
        elif not self._loose(text, line.number, whole=text):
            self._prose((line,))

    def _head(self, text: str, line: int, depth: int) -> None:
        head = read_head(text)
        if head is None and rules.reads_as_prohibition(text):
            self._draft.rule(text, line)  # of a list below "## Services"
        elif head is None:
            self._prose((NumberedLine(line, text),))
        elif self._begin(head.name, line, depth) is not None:
            self._details(head.details, line)

    def _details(self, details: Details, line: int) -> None:
        """Take what stands behind a name."""
        for part, text in details.facets:
            self._statement(part.value, text, line)
        for text in details.prose:
            self._statement("", text, line)
            self._prose((NumberedLine(line, text),), about=self._about())

    def _window_line(self, text: str, line: int) -> None:
        spoken = words.key_value(text)
        name = words.name_in(spoken[0]) if spoken is not None else ""
        service = self._draft.service(name, line) if name and self._draft.has(name) else None
        if service is not None and spoken is not None:
            service.add(Facet.MAINTENANCE, spoken[1], line)
        elif spoken is not None and windows_in(words.plain(spoken[1])) is not None:
            self._draft.fault(line, f"{name[:60]!r} is no service described above: name one")
        else:
            self._prose((NumberedLine(line, text),))

    # --- text

    def _paragraph(self, paragraph: Paragraph) -> None:
        self._lead = False
        lines = paragraph.lines
        if lines[0].text.startswith("|"):
            self._draft.fault(
                lines[0].number, "this is no table yet: write a line of dashes below its header, '| --- |'"
            )
            for line in lines:
                self._aside(line.text, line.number)
            return
        spoken = [words.key_value(line.text) for line in lines]
        parts = [words.part_of(key_value[0]) if key_value is not None else None for key_value in spoken]
        whole = _joined(lines)
        if self._leads(whole) and self._section not in {Section.HOSTS, Section.CAPABILITIES}:
            self._lead = True
            self._service = self._service if self._depth < 0 else None
        elif (parts[0] is Facet.NAME and len(parts) > 1 and all(part is not None for part in parts)) or (
            self._is_described and all(spoken) and (len(spoken) > 1 or parts[0] is not None)
        ):
            for line in lines:
                self._line(line, 0)
        elif self._in_rules:
            self._rules_text(lines)
        elif self._section is Section.KIND or (spoken[0] is not None and words.key_form(spoken[0][0]) == "kind"):
            self._draft.kind_of(spoken[0][1] if spoken[0] is not None else whole)
        elif self._section is Section.HOSTS:
            read_hosts(self._draft, lines)
            self._aside(whole, lines[0].number)
        elif self._section is Section.CAPABILITIES:
            self._draft.capabilities.append(words.plain(whole)[: words.LONGEST_TEXT])
            self._aside(whole, lines[0].number)
        else:
            self._prose(lines)

    def _leads(self, text: str) -> bool:
        """Whether a list of what must not be done follows: "Never:", "**Do not restart**", "Agents must never:"."""
        marked = text.endswith((":", ":**", "**")) or words.plain(text).casefold() == "never"
        return marked and not rules.names_something(text) and rules.heads_prohibitions(text)

    def _rules_text(self, lines: tuple[NumberedLine, ...]) -> None:
        text = _joined(lines)
        if text.rstrip("* ").endswith(":"):
            return
        if self._section is Section.FORBIDDEN and not rules.names_something(self._chapters[-1].title):
            self._draft.unbound(text, lines[0].number)
        elif rules.reads_as_prohibition(text):
            self._prose(lines)
        else:
            self._draft.advice(text, lines[0].number)

    def _prose(self, lines: Sequence[NumberedLine], *, about: str = "") -> None:
        """Take sentences, each with its line: where it forbids something, or where it begins."""
        about = self._about() if self._depth < 0 else about  # text below a list is about none of its services
        for sentence in sentences(lines):
            forbidding = (line for line in sentence if rules.reads_as_prohibition(words.plain(line.text)))
            line = next(forbidding, sentence[0])
            self._draft.prose(_joined(sentence).rstrip(" .!?"), line.number, about=about)

    def _loose(self, text: str, line: int, *, whole: str) -> bool:
        """Take an item that begins like one about a service; a heading called after an action says what it means."""
        head, title = read_head(text), self._chapters[-1].title if self._chapters else ""
        if head is not None:
            key = title if rules.names_action(title) else ""
            self._draft.loose_item(head.name, key, " ; ".join(head.details.prose), line, whole=whole)
        return head is not None

    def _aside(self, text: str, line: int) -> None:
        """Take a text of something else, in which a prohibition would be lost."""
        if rules.reads_as_prohibition(words.plain(text)):
            self._prose((NumberedLine(line, text),))

    def _about(self) -> str:
        return self._service.name if self._service is not None else ""
