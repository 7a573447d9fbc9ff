"""Reads a report in spite of its form: JSON text in the place of an array or object, or the markup of a tool call.

Models have been seen to write a whole report as one string, its arrays as strings, or the rest of it as markup behind
the summary. Nothing is invented and nothing repaired: text that is no JSON stays text, and the schema has the last word
on what comes of it. What still is no report has at least a summary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from claudeops.formats.report.candidate import is_filler, plain
from claudeops.formats.report.json_text import objects_in, refuse_constant
from claudeops.text import regex

_DEEPEST: Final = 4  # texts within texts, and objects that hold nothing but the report
_MOST_TEXT: Final = 1_000_000  # characters of one text
_MOST_TAGS: Final = 300
_MOST_TRIES: Final = 20
_SUMMARY: Final = "summary"

_FENCED: Final = regex.Pattern(r"(?s)\s*(?:```|~~~)[A-Za-z0-9_-]*\s*\n(.*?)\n?\s*(?:```|~~~)\s*")
_STATED: Final = {key: regex.Pattern(rf'"{key}"\s*:\s*"') for key in (_SUMMARY, "reason", "message")}
_NEEDED: Final = regex.Pattern(r'"needed"\s*:\s*true\b')
_TAG: Final = regex.Pattern(
    r"""<(/?)(?:[A-Za-z]{1,20}:)?([A-Za-z_]{1,40})(?:\s{1,9}name\s{0,9}=\s{0,9}["']([A-Za-z_]{1,60})["'])?\s{0,9}>"""
)
_CALL_TAGS: Final = frozenset({"parameter", "invoke", "function_calls", "tool_call", "tool_use"})
_PARAMETER: Final = "parameter"
_INPUTS: Final = ("input", "arguments", "parameters")


def readings(given: object, shape: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """Yield what a rejected report may be, the likeliest first; ``shape`` is the schema that it should have."""
    names = _names(shape)
    for found in _unwrapped(given, names, _DEEPEST):
        # Tags that an ordinary text may hold count only where nothing else fits.
        for markup in (_certain_markup, _markup):
            fitted = _fitted(_without_markup(found, names, markup), shape)
            if isinstance(fitted, dict):
                yield fitted


def markup_in(report: Mapping[str, object], shape: Mapping[str, object]) -> str | None:
    """Return what of a report's summary is the markup of a tool call; ``None``: nothing for certain."""
    summary = report.get(_SUMMARY)
    if not isinstance(summary, str):
        return None
    found = _certain_markup(summary, _names(shape))
    return None if found is None else summary[len(found[0]) :].strip()


def asks_for_help(given: object, shape: Mapping[str, object]) -> bool:
    """Return whether something that is no report asks for the next tier."""
    if isinstance(given, str) and _NEEDED.search(given[:_MOST_TEXT]):
        return True
    return any(_wish(one).get("needed") is True for one in readings(given, shape))


def summary_in(given: object, shape: Mapping[str, object]) -> str | None:
    """Return the words of something that is no report; ``None`` if it says nothing.

    They are its summary, else its reason to ask for the next tier, else the message of its first event.
    """
    names = _names(shape)
    wholes = (_fitted(_without_quotations(one, names), shape) for one in _unwrapped(given, names, _DEEPEST))
    meant = [one for one in wholes if isinstance(one, dict)]
    found = [one.get(_SUMMARY) for one in meant]
    text = given[:_MOST_TEXT] if isinstance(given, str) else ""
    found.append(_stated(text, _SUMMARY))
    found += [_wish(one).get("reason") for one in meant]
    found.append(_stated(text, "reason"))
    found += [event.get("message") for one in meant for event in _objects(one.get("events"))]
    found.append(_stated(text, "message"))
    texts = [plain(text) for text in found if isinstance(text, str)]
    return next((text for text in texts if not is_filler(text) and not _is_object(text)), None)


def _wish(report: Mapping[str, object]) -> Mapping[str, object]:
    escalation = report.get("escalation")
    return escalation if isinstance(escalation, Mapping) else {}


def _objects(given: object) -> list[Mapping[str, object]]:
    return [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []


def _names(shape: Mapping[str, object]) -> frozenset[str]:
    properties = shape.get("properties")
    return frozenset({_SUMMARY, *(properties if isinstance(properties, Mapping) else ())})


# --- texts and objects around a report ------------------------------------------------------------------


def _unwrapped(given: object, names: frozenset[str], depth: int) -> Iterator[Mapping[str, object]]:
    """Yield the objects that a value holds or spells out, without what is wrapped around them."""
    if depth <= 0:
        return
    if isinstance(given, Mapping):
        yield given
        summary = given.get(_SUMMARY)
        if names.isdisjoint(given):
            yield from _unwrapped(_wrapped(given), names, depth - 1)
        elif isinstance(summary, str) and _is_object(summary):
            yield from _unwrapped(summary, names, depth - 1)
    elif isinstance(given, list):
        yield from _unwrapped(given[0], names, depth - 1) if len(given) == 1 else ()
    elif isinstance(given, str) and len(given) <= _MOST_TEXT:
        text = _bare(given)
        value = _decoded(text)
        if isinstance(value, Mapping | str | list):
            yield from _unwrapped(value, names, depth - 1)
        elif value is None:
            yield from (found for found in objects_in(text) if not names.isdisjoint(found))
            found = _markup(text, names)
            yield from () if found is None else (dict(found[1]),)


def _wrapped(given: Mapping[str, object]) -> object:
    """Return the one value in an object that may be the report: its only one, or the input of a call."""
    if len(given) == 1:
        return next(iter(given.values()))
    return next((given[key] for key in _INPUTS if key in given), None)


def _is_object(text: str) -> bool:
    return _bare(text[:_MOST_TEXT]).lstrip().startswith("{")


def _bare(text: str) -> str:
    """Return a text without the fence around it."""
    text = text.strip().removeprefix("\ufeff")
    fenced = _FENCED.fullmatch(text)
    return text if fenced is None else fenced[1]


def _decoded(text: str) -> object:
    """Return what a JSON text says; ``None`` for what is none, and for ``null``."""
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return None


def _stated(text: str, key: str) -> str | None:
    """Return the value of a key in a text that is not quite JSON."""
    for found in islice(_STATED[key].finditer(text), _MOST_TRIES):
        try:
            value, _ = json.JSONDecoder().raw_decode(text, found.end() - 1)
        except (ValueError, RecursionError):
            continue
        return str(value)
    return None


# --- JSON text in the place of other values -------------------------------------------------------------


def _fitted(value: object, shape: object) -> object:
    """Return a value in which texts are decoded wherever the schema has no place for a text."""
    if not isinstance(shape, Mapping):
        return value
    given = shape.get("type")
    types = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    for _ in range(_DEEPEST):
        if not isinstance(value, str) or not types or "string" in types or len(value) > _MOST_TEXT:
            break
        decoded = _decoded(_bare(value))
        if not isinstance(decoded, str) and not any(_is_of(decoded, each) for each in types):
            break
        value = decoded
    if isinstance(value, dict):
        properties = shape.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        return {key: _fitted(one, known.get(key)) for key, one in value.items()}
    if isinstance(value, list):
        return [_fitted(one, shape.get("items")) for one in value]
    return value


def _is_of(value: object, kind: object) -> bool:
    match kind:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "boolean":
            return isinstance(value, bool)
        case "integer" | "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return False


# --- markup of a tool call ------------------------------------------------------------------------------

_Cut = tuple[str, Mapping[str, str]]  # what stands before the markup, and the texts in its parameters
_Reader = Callable[[str, frozenset[str]], _Cut | None]


def _without_markup(found: Mapping[str, object], names: frozenset[str], markup: _Reader) -> dict[str, object]:
    """Return an object whose texts end where markup begins; what the markup holds fills the fields that are empty."""
    whole = dict(found)
    held: dict[str, str] = {}
    for key, value in found.items():
        cut = markup(value, names) if isinstance(value, str) and key in names else None
        if cut is not None:
            whole[key] = cut[0]
            held |= cut[1]
    for key, text in held.items():
        if whole.get(key) in ("", None, [], {}):
            whole[key] = text
    return whole


def _tags(text: str, names: frozenset[str]) -> list[regex.Match[str]]:
    found = islice(_TAG.finditer(text[:_MOST_TEXT]), _MOST_TAGS) if "<" in text else ()
    return [tag for tag in found if tag[2] in _CALL_TAGS or tag[2] in names]


def _without_quotations(found: Mapping[str, object], names: frozenset[str]) -> dict[str, object]:
    """Return an object whose texts end where markup begins for certain, or where it holds fields that are missing."""
    whole = _without_markup(found, names, _markup)
    return whole if len(whole) > len(found) else _without_markup(found, names, _certain_markup)


def _certain_markup(text: str, names: frozenset[str]) -> _Cut | None:
    """Do the same where an ordinary text may quote any tag: at a named parameter, or where the summary is closed."""
    tags = _tags(text, names)
    opened = 0
    for place, tag in enumerate(tags):
        if tag[2] == _PARAMETER and tag[3] in names:
            first = tag
            for before in reversed(tags[:place]):  # the end of the field before it
                if not before[1] or text[before.end() : first.start()].strip():
                    break
                first = before
            return _cut_at(text, [first, *(each for each in tags[place:] if each[2] not in names)], names)
        if tag[2] == _SUMMARY:
            opened += -1 if tag[1] else 1
        if opened < 0:
            return _cut_at(text, tags[place:], names)
    return None


def _markup(text: str, names: frozenset[str]) -> _Cut | None:
    """Return what stands before the first tag of a tool call, and the texts in its parameters; ``None``: no tag."""
    tags = _tags(text, names)
    # A tag of an ordinary text, such as ``<summary>`` of HTML, opens nothing by itself.
    if not any(tag[3] in names or (tag[1] and tag[2] in names) for tag in tags):
        return None
    return _cut_at(text, tags, names)


def _cut_at(text: str, tags: Sequence[regex.Match[str]], names: frozenset[str]) -> _Cut:
    held: dict[str, str] = {}
    ends = [tag.start() for tag in tags[1:]] + [len(text)]
    for tag, end in zip(tags, ends, strict=True):
        name = tag[3] if tag[2] == _PARAMETER else tag[2]
        if not tag[1] and name in names:
            held.setdefault(name, text[tag.end() : end].strip())
    return text[: tags[0].start()].rstrip(), held
