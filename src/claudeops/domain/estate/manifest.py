"""Reads a ``CLAUDE-OPS.md``, however people write it: tables, lists, sections, front matter, blocks of TOML or YAML.

Headings say what is spoken of (services, hosts, rules, capabilities, maintenance); what stands below them is taken by
its columns and keys. What is no statement of these kinds is prose, of which only clear sentences count: a time in
which a service may be away, how it is restarted, and what must never be done. Nothing here is ever an instruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from claudeops.domain.estate import words
from claudeops.domain.estate.draft import Draft, ServiceDraft
from claudeops.domain.estate.entries import read_document
from claudeops.domain.estate.heads import ADDRESS, ALSO, HEAD, IDENTIFIER, Details, read_details, read_head
from claudeops.domain.estate.markdown import (
    LONGEST_LINE,
    Block,
    Fence,
    Grid,
    Heading,
    Item,
    Line,
    Paragraph,
    read_blocks,
)
from claudeops.domain.estate.model import Manifest
from claudeops.domain.estate.windows import windows_in
from claudeops.domain.estate.words import Part, Section, readable
from claudeops.domain.text import regex

FILE: Final = "CLAUDE-OPS.md"
MOST_CHARACTERS: Final = 256 * 1024
"""Of one manifest; it is not read beyond."""

_WHOLE: Final = frozenset({Section.RULES, Section.FORBIDDEN, Section.CAPABILITIES})
"""Where an item is one text, whatever its lines look like."""

_MOST_LINES: Final = 6000
_FRONT: Final = {"+++": "toml", "---": "yaml"}
_SENTENCE: Final = regex.Pattern(r"(?:[.!?])\s+")


def parse_manifest(text: str, *, repository: str, path: str = "") -> Manifest:
    """Return what a manifest says; whatever the text is, it never raises."""
    draft = Draft(repository, path or f"{repository}/{FILE}")
    if len(text) > MOST_CHARACTERS:
        draft.fault(None, f"the manifest is longer than {MOST_CHARACTERS // 1024} KiB, and read no further: shorten it")
    lines = readable(text[:MOST_CHARACTERS]).removeprefix("\ufeff").split("\n")
    start = _front_matter(draft, lines)
    numbered = [Line(number, line) for number, line in enumerate(lines[start:], start + 1)]
    if len(numbered) > _MOST_LINES:
        draft.fault(
            _MOST_LINES + start + 1,
            f"the manifest has more than {_MOST_LINES} lines, and is read no further: shorten it",
        )
    numbered = numbered[:_MOST_LINES]
    for line in numbered:
        if len(line.text) > LONGEST_LINE:
            draft.fault(
                line.number, f"this line is longer than {LONGEST_LINE} characters, and read no further: break it"
            )
    blocks = read_blocks(numbered)
    reader = _Reader(draft)
    for block in blocks:
        reader.read(block)
    return draft.close()


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


@dataclass(slots=True)
class _Chapter:
    """What is spoken of below a heading."""

    level: int
    section: Section
    titled: bool = False  # the document's own title says so: what stands below it need not be of that kind


class _Reader:
    """Takes one block after the other, and knows below which headings it stands."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._chapters: list[_Chapter] = []
        self._service: ServiceDraft | None = None  # that is described now
        self._depth = -1  # the indent of the item that began it; -1: a heading did
        self._candidate: Heading | None = None  # a heading that may turn out to name a service
        self._waiting: list[tuple[Part, str, int]] = []  # what stands below the candidate
        self._lead = False  # the line above says "Never:" and a list follows

    @property
    def _section(self) -> Section:
        return self._chapters[-1].section if self._chapters else Section.OTHER

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

    # --- headings

    def _heading(self, heading: Heading) -> None:
        self._service, self._candidate, self._waiting, self._lead = None, None, [], False
        while self._chapters and self._chapters[-1].level >= heading.level:
            self._chapters.pop()
        above = self._chapters[-1] if self._chapters else None
        section = words.section_of(heading.text)
        spoken = words.key_value(heading.text)
        if section is Section.KIND and spoken is not None:
            self._draft.kind_of(spoken[1])
        if section is not Section.OTHER:
            titled = heading.level == 1
            self._chapters.append(_Chapter(level=heading.level, section=section, titled=titled))
            return
        if heading.level > 1:
            self._name(heading, above)
        self._chapters.append(_Chapter(level=heading.level, section=self._below(above)))

    def _below(self, above: _Chapter | None) -> Section:
        if above is None or above.section is Section.SERVICES:
            return Section.OTHER
        return above.section

    def _name(self, heading: Heading, above: _Chapter | None) -> None:
        """Take a heading as a service's name: at once where services are listed, else when its list looks like one."""
        if above is not None and above.section not in {Section.SERVICES, Section.OTHER}:
            return
        name = words.name_in(words.linked_names(heading.text))
        spoken = words.key_value(heading.text)
        if spoken is not None and words.part_of(spoken[0]) is Part.NAME:
            name = words.name_in(spoken[1])
        name = name.partition(" (")[0]
        if not name or words.key_form(name) in words.NOT_NAMES or words.refuse_name(name) is not None:
            return
        listed = above is not None and above.section is Section.SERVICES and not above.titled
        listed = listed and words.key_form(name) not in words.CHAPTERS
        if listed and (IDENTIFIER.fullmatch(name) or self._draft.has(name)):
            self._begin(name, heading.line, -1)
            self._brackets(heading.text, heading.line)
        else:
            self._candidate = heading

    def _brackets(self, text: str, line: int) -> None:
        _, found, rest = words.plain(text).partition(" (")
        if found:
            self._details(read_details(rest.rstrip(") ")), line)

    def _begin(self, name: str, line: int, depth: int) -> ServiceDraft | None:
        self._service, self._depth, self._candidate = self._draft.service(name, line), depth, None
        return self._service

    def _tell(self, part: Part, text: str, line: int) -> None:
        """Tell something of the service that is described, or of the one that a heading perhaps names."""
        if self._service is not None:
            self._draft.tell(self._service, part, text, line)
        elif self._candidate is not None:
            self._waiting.append((part, text, line))
            chapter = words.key_form(self._candidate.text) in words.CHAPTERS
            wanted = 1 if self._titled() and not chapter else 2
            if len({told for told, _, _ in self._waiting} - {Part.RULES}) >= wanted:
                self._elect(self._candidate)

    def _titled(self) -> bool:
        return any(chapter.section is Section.SERVICES for chapter in self._chapters)

    def _elect(self, heading: Heading) -> None:
        waiting, self._waiting = self._waiting, []
        service = self._begin(words.name_in(words.linked_names(heading.text)).partition(" (")[0], heading.line, -1)
        self._brackets(heading.text, heading.line)
        for part, text, line in waiting:
            if service is not None:
                self._draft.tell(service, part, text, line)

    # --- tables

    def _grid(self, grid: Grid) -> None:
        self._lead = False
        name = words.name_column(grid.header)
        parts = [words.part_of(cell) for cell in grid.header]
        told = {part for place, part in enumerate(parts) if part is not None and place != name}
        if self._section is Section.HOSTS:
            self._hosts_grid(grid)
        elif self._section is Section.MAINTENANCE and Part.MAINTENANCE not in parts:
            self._windows_grid(grid, name or 0)
        elif self._section in {Section.RULES, Section.FORBIDDEN}:
            for line, cells in grid.rows:
                self._draft.rule(cells[0], line, forbidden=self._section is Section.FORBIDDEN)
        elif name is None and self._service is not None and len(grid.header) == 2:  # noqa: PLR2004 - key and value
            self._keys_grid(grid)
        elif name is None and self._section is Section.SERVICES:
            self._draft.fault(grid.line, "no column names the services: call one of them 'service'")
        elif name is not None and (
            told or self._section is Section.SERVICES or "service" in map(words.key_form, grid.header)
        ):
            self._services_grid(grid, name, parts)
        elif name is None and Part.HOST in parts:
            self._hosts_grid(grid)

    def _services_grid(self, grid: Grid, name: int, parts: list[Part | None]) -> None:
        for cell, part in zip(grid.header, parts, strict=True):
            if part is None and (known := words.meant(cell)) is not None:
                self._draft.fault(grid.line, f"the column {words.plain(cell)!r} is not known: write {known!r}")
        for line, cells in grid.rows:
            if not any(cells):
                continue
            if len(cells) > len(parts):
                self._draft.fault(
                    line, f"this row has {len(cells)} cells, its table {len(parts)}: write a bar within a cell as '\\|'"
                )
            written = cells[name] if name < len(cells) else ""
            link = regex.search(r"\]\(([a-z]+://[^()\s]+)\)", written)
            service = self._named_row(written, line)
            for part, cell in zip(parts, cells, strict=False):
                if service is not None and part is not None and part is not Part.NAME:
                    self._draft.tell(service, part, cell, line)
            if service is not None and link is not None:
                service.tell(Part.ADDRESS, link[1], line)

    def _named_row(self, cell: str, line: int) -> ServiceDraft | None:
        name = words.name_in(words.linked_names(cell))
        if words.is_nothing(name):
            self._draft.fault(line, "this row names no service: give it a name")
            return None
        main, _, rest = name.partition(" (")
        service = self._draft.service(main.strip(), line)
        also = ALSO.match(rest.rstrip(") ")) if rest else None
        if service is not None and also is not None:
            service.tell(Part.ALIASES, also[1], line)
        return service

    def _hosts_grid(self, grid: Grid) -> None:
        forms = [words.key_form(cell) for cell in grid.header]
        wanted = [
            place
            for place, form in enumerate(forms)
            if form in {"host", "name", "machine", "server", "node", "vm", "hostname", "fqdn", "dns", "dns name"}
            or form in {"address", "ip", "ip address", "addresses", "ipv4", "ipv6", "alias", "aliases", "also known as"}
        ] or [0]
        for line, cells in grid.rows:
            self._draft.names_of_host([cells[place] for place in wanted if place < len(cells)], line)

    def _windows_grid(self, grid: Grid, name: int) -> None:
        for line, cells in grid.rows:
            service = (
                self._draft.service(words.name_in(cells[name]), line)
                if self._draft.has(words.name_in(cells[name]))
                else None
            )
            if service is None:
                self._draft.fault(line, f"{words.name_in(cells[name])[:60]!r} is no service described above: name one")
                continue
            service.tell(
                Part.MAINTENANCE, ", ".join(cell for place, cell in enumerate(cells) if place != name and cell), line
            )

    def _keys_grid(self, grid: Grid) -> None:
        for line, cells in ((grid.line, grid.header), *grid.rows):
            part = words.part_of(cells[0])
            if part is not None and len(cells) > 1:
                self._tell(part, cells[1], line)

    # --- blocks of TOML and YAML

    def _fence(self, fence: Fence) -> None:
        language = {"toml": "toml", "yaml": "yaml", "yml": "yaml"}.get(fence.info)
        if language is not None:
            read_document(self._draft, fence.text, language, first_line=fence.line, front=False)

    # --- lists

    def _item(self, item: Item) -> None:
        first = item.lines[0]
        if self._service is not None and self._depth >= 0 and item.indent < self._depth:
            self._service = None
        if self._lead and item.indent == 0 and self._section not in {Section.HOSTS, Section.CAPABILITIES}:
            self._draft.rule(_joined(item.lines), item.line, forbidden=True, about=self._about())
            return
        text = [first.text]
        keys: list[Line] = []
        for line in item.lines[1:]:
            spoken = words.key_value(line.text)
            keyed = spoken is not None and words.part_of(spoken[0]) is not None and self._section not in _WHOLE
            if keyed:
                keys.append(line)
            else:
                text.append(line.text)
        self._line(Line(first.number, " ".join(text)), item.indent)
        for line in keys:
            self._line(line, item.indent + 1)

    def _line(self, line: Line, indent: int) -> None:
        """Take one line of a list."""
        text = line.text
        spoken = words.key_value(text)
        part = words.part_of(spoken[0]) if spoken is not None else None
        if spoken is not None and part is Part.RULES and spoken[1]:
            key = words.key_form(spoken[0])
            self._draft.rule(
                spoken[1], line.number, forbidden=key not in {"rule", "rules", "restrictions"}, about=self._about()
            )
        elif self._section in {Section.RULES, Section.FORBIDDEN}:
            self._draft.rule(text, line.number, forbidden=self._section is Section.FORBIDDEN, about=self._about())
        elif self._section is Section.CAPABILITIES:
            self._draft.capabilities.append(words.plain(text)[: words.LONGEST_TEXT])
        elif self._section is Section.HOSTS:
            self._host_line(text, line.number)
        elif self._section is Section.MAINTENANCE:
            self._window_line(text, line.number)
        elif spoken is not None and part is Part.NAME and spoken[1]:
            self._begin(words.name_in(spoken[1]), line.number, indent)
        elif spoken is not None and part is not None and (self._service is not None or self._candidate is not None):
            self._tell(part, spoken[1], line.number)
        elif self._section is Section.SERVICES and (self._service is None or indent <= self._depth):
            self._head(text, line.number, indent)
        else:
            self._other(text, spoken, line.number)

    def _other(self, text: str, spoken: tuple[str, str] | None, line: int) -> None:
        """Take a line that is no statement by its form."""
        known = words.meant(spoken[0]) if spoken is not None and self._service is not None else None
        if spoken is not None and known is not None:
            self._draft.fault(line, f"{words.plain(spoken[0])!r} is not known: write {known!r}")
        elif spoken is not None and words.key_form(spoken[0]) == "kind":
            self._draft.kind_of(spoken[1])
        elif self._service is not None and ADDRESS.match(text.strip()):
            self._draft.tell(self._service, Part.ADDRESS, text, line)
        else:
            self._prose(text, line)

    def _head(self, text: str, line: int, indent: int) -> None:
        head = read_head(text)
        if head is None:
            self._prose(text, line)
        elif self._begin(head.name, line, indent) is not None:
            self._details(head.details, line)

    def _details(self, details: Details, line: int) -> None:
        """Take what stands behind a name."""
        for part, text in details.told:
            self._tell(part, text, line)
        for text in details.prose:
            self._prose(text, line)

    def _host_line(self, text: str, line: int) -> None:
        found = HEAD.fullmatch(text.strip())
        if found is None:
            self._draft.hosts_in(text.partition(" ")[0], line)
            return
        name = words.name_in(found[1] or found[2] or found[3] or found[4] or found[6])
        names = [name]
        for piece in words.fragments(
            found[7][: words.LONGEST_TEXT].replace("(", ", ").replace(")", ", ").replace(":", ", ", 1)
        ):
            word = words.plain(piece).partition(" ")[0]
            also = ALSO.match(piece)
            if also is not None:
                names += words.names_in(also[1])
            elif word and words.looks_like_host(word):
                names.append(word)
        if words.key_form(name) not in words.NOT_NAMES:
            self._draft.names_of_host(names, line)

    def _window_line(self, text: str, line: int) -> None:
        spoken = words.key_value(text)
        name = words.name_in(spoken[0]) if spoken is not None else ""
        service = self._draft.service(name, line) if name and self._draft.has(name) else None
        if service is not None and spoken is not None:
            service.tell(Part.MAINTENANCE, spoken[1], line)
        elif spoken is not None and windows_in(words.plain(spoken[1])) is not None:
            self._draft.fault(line, f"{name[:60]!r} is no service described above: name one")
        else:
            self._prose(text, line)

    # --- text

    def _paragraph(self, paragraph: Paragraph) -> None:
        self._lead = False
        if paragraph.lines[0].text.startswith("|"):
            self._draft.fault(
                paragraph.line, "this is no table yet: write a line of dashes below its header, '| --- |'"
            )
            return
        spoken = [words.key_value(line.text) for line in paragraph.lines]
        parts = [words.part_of(key_value[0]) if key_value is not None else None for key_value in spoken]
        described = self._service is not None or self._candidate is not None
        whole = _joined(paragraph.lines)
        if (parts[0] is Part.NAME and len(parts) > 1 and all(part is not None for part in parts)) or (
            described and all(part is not None for part in parts)
        ):
            for line in paragraph.lines:
                self._line(line, 0)
        elif self._section in {Section.RULES, Section.FORBIDDEN}:
            self._rules_text(whole, paragraph.line)
        elif self._section is Section.KIND or (spoken[0] is not None and words.key_form(spoken[0][0]) == "kind"):
            self._draft.kind_of(spoken[0][1] if spoken[0] is not None else whole)
        elif self._section is Section.HOSTS:
            self._hosts_text(paragraph)
        elif self._section is Section.CAPABILITIES:
            self._draft.capabilities.append(words.plain(whole)[: words.LONGEST_TEXT])
        else:
            self._prose(whole, paragraph.line)
            self._lead = words.key_form(whole) in words.NEVER_LEADS

    def _rules_text(self, text: str, line: int) -> None:
        if words.key_form(text) in words.NEVER_LEADS:
            self._lead = True
            return
        if not text.rstrip().endswith(":"):
            self._draft.rule(text, line, about=self._about())

    def _hosts_text(self, paragraph: Paragraph) -> None:
        for line in paragraph.lines:
            pieces = words.names_in(line.text.rstrip(".:"))
            if pieces and all(
                words.looks_like_host(piece, bare=len(pieces) > 1 or len(paragraph.lines) > 1) for piece in pieces
            ):
                for piece in pieces:
                    self._draft.hosts_in(piece, line.number)

    def _prose(self, text: str, line: int) -> None:
        for sentence in _SENTENCE.split(text[: 4 * words.LONGEST_TEXT]):
            self._draft.prose(sentence, line, about=self._about())

    def _about(self) -> str:
        return self._service.name if self._service is not None else ""


def _joined(lines: tuple[Line, ...] | list[Line]) -> str:
    return " ".join(line.text for line in lines)
