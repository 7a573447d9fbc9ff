"""The words of manifests: what a column, key or heading means, and what is left of a text without its markup."""

from __future__ import annotations

import difflib
from enum import StrEnum
from functools import lru_cache
from typing import Final

from claudeops.text import clean, regex

LONGEST_NAME: Final = 100  # characters of a service, an alias, a host
LONGEST_TEXT: Final = 1000  # characters of what healthy means, how to restart, how to check
_LONGEST_KEY: Final = 40
_ALIKE: Final = 0.82  # of `difflib`: a slip of the pen, and not another word


def word_set(text: str, *, separator: str | None = None) -> frozenset[str]:
    """Return the words of a text as a set: lists of words are read more easily as text."""
    return frozenset(text.split(separator))


class Facet(StrEnum):
    """What a manifest says of a service."""

    NAME = "service"
    HOST = "host"
    KIND = "kind"
    CHECK = "check"
    ADDRESS = "url"
    PORT = "port"
    HEALTHY = "normal"
    ALIASES = "aliases"
    DEPENDENCIES = "depends on"
    RESTART = "restart"
    MAINTENANCE = "maintenance"
    RULES = "rules"


class Section(StrEnum):
    """What a heading announces."""

    SERVICES = "services"
    HOSTS = "hosts"
    RULES = "rules"
    FORBIDDEN = "forbidden"  # rules that are written without their "never"
    CAPABILITIES = "capabilities"
    KIND = "kind"
    MAINTENANCE = "maintenance"
    OTHER = "other"


_PARTS: Final = {
    Facet.NAME: "service|service name|name|what|app|application|component|system|workload|what runs|id|title",
    Facet.HOST: "host|hosts|where|runs on|running on|machine|server|node|vm|box|place|location|lives on|on|hostname"
    "|where it runs|where does it run|deployed on",
    Facet.KIND: "kind|type|runs as|runs in|runtime|engine|technology|tech|run as|sort|how it runs",
    Facet.CHECK: "check|checks|how to check|health|health check|healthcheck|probe|check command|check with|test|look"
    "|health url|check url|how to look",
    Facet.ADDRESS: "url|address|endpoint|uri|link|health endpoint|listens on|answers at|reachable at|public url|web",
    Facet.PORT: "port|tcp port",
    Facet.HEALTHY: "normal|healthy|expected|what is normal|healthy means|healthy when|what healthy means|good|ok when"
    "|should be|expect|expects|normally|is normal|expected answer|what is healthy|ok|fine",
    Facet.ALIASES: "aliases|alias|also known as|aka|a.k.a|other names|other name|also called|nickname|nicknames"
    "|container|container name|unit|also",
    Facet.DEPENDENCIES: "depends on|dependencies|dependency|depends|needs|requires|uses|deps|upstream|upstreams"
    "|relies on|needed services",
    Facet.RESTART: "restart|how to restart|restarts|restart with|restart command|restarted by|to restart"
    "|restart procedure",
    Facet.MAINTENANCE: "maintenance|maintenance window|maintenance windows|window|windows|downtime|quiet hours"
    "|planned downtime|backup window|maintenance hours",
    Facet.RULES: "rule|rules|never|do not|don't|must not|forbidden|restrictions",
}
_PART_OF: Final = {word: part for part, words in _PARTS.items() for word in words.split("|")}
_FIRST: Final = (
    *("service", "service name", "name", "app", "application", "what", "component", "workload", "system"),
    *("container", "container name", "unit", "deployment"),
)
"""The words for a name's column, the surest first."""

_NEAR: Final = sorted(word for word in _PART_OF if len(word) > 4)  # noqa: PLR2004 - shorter ones resemble too much
_SECTIONS: Final = {
    Section.SERVICES: "services|service|what runs|what runs here|what runs where|what to watch|apps|applications"
    "|components|workloads|watched services|what is watched|inventory of services|systems|stack|containers|databases",
    Section.HOSTS: "hosts|host|machines|servers|nodes|inventory|vms|hosts and addresses|host map|machine list",
    Section.RULES: "rules|house rules|rule|restrictions|constraints|limits|safety|policy|policies|ground rules"
    "|what agents may not do|rules of engagement|special rules|warnings|important|guardrails",
    Section.CAPABILITIES: "capabilities|capability|what agents may do|what you can do|allowed|tools|available tools"
    "|what may be done",
    Section.MAINTENANCE: "maintenance|maintenance windows|maintenance window|windows|downtime|planned downtime"
    "|quiet hours|scheduled maintenance",
    Section.KIND: "kind|type",
}
_SECTION_OF: Final = {word: section for section, words in _SECTIONS.items() for word in words.split("|")}
_SAYS_SECTION: Final = (
    ("services", Section.SERVICES),
    ("applications", Section.SERVICES),
    ("hosts", Section.HOSTS),
    ("rules", Section.RULES),
    ("capabilities", Section.CAPABILITIES),
    ("maintenance windows", Section.MAINTENANCE),
)
"""What longer headings speak of, such as "Services of this estate"."""

NOT_NAMES: Final = word_set(
    "note notes todo important warning hint tip see all every each the a an about these this it if when please "
    "remember attention caution do don't never always no none there other others example examples remarks"
)
"""What begins a sentence, and names no service unless it is marked as a name."""

CHAPTERS: Final = NOT_NAMES | word_set(
    "overview introduction contacts contact owner owners team runbook runbooks background history links documentation "
    "docs readme purpose scope dependencies backups backup monitoring access deployment deployments network networking "
    "architecture status misc miscellaneous general summary changelog escalation installation usage licence license"
)
"""What heads a chapter, and names a service only when facts about one stand below it."""

IDENTIFIERS: Final = word_set("id|vmid|ctid|vm id|ct id|lxc id|container id|ct|lxc", separator="|")
"""Columns with the number of a virtual machine or container."""

PLATFORMS: Final = word_set(
    "docker podman container containers compose systemd unit kubernetes k8s k3s pod deployment "
    "statefulset helm vm lxc postgres postgresql mysql mariadb redis valkey mongodb rabbitmq kafka nginx "
    "apache java node python php go static website web internal external public private critical optional",
)
"""Single words in brackets that say what a service is, and not where."""

_NOTHING: Final = frozenset({"", "-", "--", "—", "–", "none", "n/a", "na", "nothing", "no", "nil", "?", "tbd", "."})  # noqa: RUF001 - dashes as people type them
_CONTROL: Final = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\ufffd")
_LINK: Final = regex.Pattern(r"!?\[([^\[\]]*)\]\(([^()\s]*)[^()]*\)")
_BARE_LINK: Final = regex.Pattern(r"<([a-z][a-z0-9+.-]*://[^<>\s]+)>")
_BREAK: Final = regex.Pattern(r"(?i)<br\s*/?>")
_SPACES: Final = regex.Pattern(rf"[{regex.SPACE}]+")
_EMPHASIS: Final = regex.Pattern(r"\*\*|__|[`~]|^\*|\*$|\B\*\b|\b\*\B")
_MARKUP: Final = frozenset("*_`~[<")
_WILDCARD: Final = regex.Pattern(r"^\*\.|^\*$")
_BETWEEN: Final = regex.Pattern(r"\s*(?:[,;+&/\n]|\s(?:and|or|und|plus)\s)\s*")
_HOSTLIKE: Final = regex.Pattern(r"[A-Za-z0-9\[*](?:[A-Za-z0-9.:@*_\[\]-]*[A-Za-z0-9\]])?")
_ARTICLES: Final = ("the ", "our ", "a ", "an ")


def part_of(key: str) -> Facet | None:
    """Return what a column or key says, or None."""
    return _PART_OF.get(key_form(key))


def name_column(header: tuple[str, ...]) -> int | None:
    """Return the column that names what a row is about, or None."""
    forms = [key_form(cell) for cell in header]
    return next((forms.index(word) for word in _FIRST if word in forms), None)


@lru_cache(maxsize=512)
def meant(key: str) -> str | None:
    """Return the known key of which this is probably a misspelling, or None."""
    form = key_form(key)
    if form in _PART_OF or not 4 <= len(form) <= _LONGEST_KEY:  # noqa: PLR2004 - shorter ones resemble too much
        return None
    return next(iter(difflib.get_close_matches(form, _NEAR, n=1, cutoff=_ALIKE)), None)


def section_of(heading: str) -> Section:
    """Return what a heading announces."""
    form = key_form(heading.rstrip(":"))
    if form in _SECTION_OF:
        return _SECTION_OF[form]
    if form.startswith(("kind:", "type:")):
        return Section.KIND
    padded = f" {form} "
    return next((section for words, section in _SAYS_SECTION if f" {words} " in padded), Section.OTHER)


@lru_cache(maxsize=512)
def key_form(key: str) -> str:
    """Return a key as it stands in the tables above: plain, lower case, without what is in brackets."""
    text = plain(key[: 4 * _LONGEST_KEY]).casefold().partition("(")[0].partition(",")[0]
    return " ".join(text.replace("_", " ").replace("-", " ").strip(" :?.!").split())


def readable(text: str) -> str:
    """Return a text with one kind of line end, and without what a terminal or database would stumble over."""
    return clean(text.replace("\r\n", "\n").replace("\r", "\n")).translate(_CONTROL)


def plain(text: str) -> str:
    """Return a text without its markup, blanks in one."""
    if _MARKUP.isdisjoint(text):
        return " ".join(text.split())
    unlinked = _LINK.sub(lambda found: found[1], _BREAK.sub(", ", text))
    unlinked = _BARE_LINK.sub(lambda found: found[1], unlinked)
    if _WILDCARD.search(unlinked.strip()):
        return unlinked.strip()  # no emphasis
    return _SPACES.sub(" ", _EMPHASIS.sub("", unlinked)).strip()


def linked(text: str) -> str:
    """Return a text in which every link stands as its words and its address."""
    return _LINK.sub(lambda found: f"{found[1]} {found[2]}", _BREAK.sub(", ", text))


def is_nothing(text: str) -> bool:
    """Whether a cell says that there is nothing."""
    return plain(text).casefold() in _NOTHING


def name_in(text: str) -> str:
    """Return the name that a text is."""
    return plain(text).strip(" .:;,\"'")


def looks_like_host(word: str, *, bare: bool = False) -> bool:
    """Whether a word has the form of a host: an address or a name with dots; ``bare``: a name without dots will do."""
    dotted = "." in word.strip(".") or word.count(":") > 1
    return _HOSTLIKE.fullmatch(word) is not None and (bare or dotted)


def names_in(text: str) -> list[str]:
    """Return the names in a list such as ``db, cache and queue``, without articles."""
    if is_nothing(text):
        return []
    found = []
    for piece in _BETWEEN.split(_BREAK.sub(",", linked_names(text))):
        name = name_in(piece)
        name = next((name[len(article) :] for article in _ARTICLES if name.casefold().startswith(article)), name)
        if not is_nothing(name):
            found.append(name)
    return found


def linked_names(text: str) -> str:
    """Return a text in which every link stands as its words alone."""
    return _LINK.sub(lambda found: found[1], text)


def refuse_name(name: str) -> str | None:
    """Return why this can be no name, or None."""
    if len(name) > LONGEST_NAME:
        return f"{name[:40]!r}… is longer than {LONGEST_NAME} characters: give it a shorter name"
    if not name.isprintable() or "*" in name or not any(letter.isalnum() for letter in name):
        return f"{name[:LONGEST_NAME]!r} is not a name: write letters, digits, '-', '_' and '.'"
    return None


def key_value(text: str) -> tuple[str, str] | None:
    """Return key and value of ``**Check:** https://…``, or None when a text has no key."""
    head, colon, rest = text[: 2 * _LONGEST_KEY].partition(":")
    if not colon or "`" in head.strip("`* _") or len(head.strip("`*_ ")) > _LONGEST_KEY:
        return None
    rest = text[len(head) + 1 :]
    if rest and not rest.startswith((" ", "*", "_", "\t")):
        return None
    key = plain(head).strip("_ ")
    return (key, rest.lstrip("*_").strip()) if key else None


def fragments(text: str) -> list[str]:
    """Return the parts of a text between commas, semicolons and dashes; code, brackets and quotes stay whole."""
    found: list[str] = []
    start, place, depth, code = 0, 0, 0, False
    while place < len(text):
        letter = text[place]
        if letter == "`":
            code = not code
        elif not code and letter in "([":
            depth += 1
        elif not code and letter in ")]":
            depth = max(0, depth - 1)
        elif not code and not depth and (width := _divider(text, place)):
            found.append(text[start:place])
            start = place = place + width
            continue
        place += 1
    found.append(text[start:])
    return [piece.strip() for piece in found if piece.strip()]


def _divider(text: str, place: int) -> int:
    """Return how many characters divide two parts of a text here, 0 for none."""
    if text[place] in ",;" and text[place + 1 : place + 2] in {" ", ""}:
        return 1
    return 3 if text[place : place + 3] in {" - ", " — ", " – ", " | "} else 0  # noqa: RUF001 - dashes as people type them
