"""A policy file in the old form, rewritten in the new one.

In the old form a rule judged words by regular expressions (``tokens``, ``line``), and they ran as they were given. Such
a rule becomes one with ``reading = "words"``, whose arguments are expressions for one word each. What has no such form
stays as a comment with the reason, so nothing is lost and nothing is allowed by accident.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from claudeops.text import regex
from claudeops.text.toml_file import parse
from claudeops.text.toml_lines import key_lines

GONE: Final = frozenset({"tokens", "line", "excludes", "output", "long_options", "ordered", "inert"})
"""Keys of rules in the old form."""

_READINGS: Final = {"inert": "words", "ordered": "ordered", "long_options": "single"}
_PATH: Final = regex.Pattern(r"(^|[ =])path\b")
_OPTIONAL: Final = regex.Pattern(r"\(\?: ([^ ]*)\)([?*])")


def migrate(text: str) -> str:
    """Return a policy file in the new form; comments and everything else stay.

    Raises `ValueError` for what is not TOML, and for rules that are no tables of their own.
    """
    rules = parse(text).get("commands", [])
    lines = text.splitlines()
    tables = {line: path for path, line in key_lines(text).items() if lines[line - 1].lstrip().startswith("[")}
    starts = {line: path[1] for line, path in tables.items() if path[:1] == ("commands",) and len(path) == 2}  # noqa: PLR2004 - a rule
    written: list[str] = []
    at = 0
    while at < len(lines):
        number = starts.get(at + 1)
        if number is None or not isinstance(number, int):
            written.append(lines[at])
            at += 1
            continue
        end = min((line - 1 for line in tables if line > at + 1), default=len(lines))
        rule = rules[number]
        comments = [line for line in lines[at:end] if line.lstrip().startswith("#")]
        written += [*_rewritten(rule), *comments] if _is_old(rule) else lines[at:end]
        at = end
    if any(map(_is_old, parse("\n".join(written)).get("commands", []))):
        raise ValueError("write each rule as a table of its own, [[commands]], first")
    return "\n".join(written) + "\n"


def new_form(rule: Mapping[str, object]) -> str | None:
    """Return the keys that take the place of the old ones, or None where there is no such form."""
    forms = list(_forms(rule))
    if not forms:
        return None
    return "; or ".join(", ".join(f"{key} = {json.dumps(value)}" for key, value in form.items()) for form in forms)


def _is_old(rule: Mapping[str, object]) -> bool:
    return bool(GONE & rule.keys()) or any(_PATH.search(str(rule.get(key, ""))) for key in ("options", "arguments"))


def _rewritten(rule: Mapping[str, object]) -> list[str]:
    """Return a rule's lines in the new form: one table for each alternative."""
    gone = GONE | {"options"} if rule.get("inert") else GONE
    kept = {key: value for key, value in rule.items() if key not in gone}
    lines: list[str] = []
    for form in _forms(rule):
        lines += ["[[commands]]", *(f"{key} = {_value(value)}" for key, value in {**kept, **form}.items()), ""]
    if lines:
        return lines
    old = [f"#   {key} = {_value(value)}" for key, value in rule.items()]
    return ["# This rule has no form in which every word is known: write it with options and arguments.", *old, ""]


def _forms(rule: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """Yield the new keys of a rule, for each of its alternatives; nothing where it has no such form."""
    if "excludes" in rule:
        return
    if "line" in rule:
        found = [_words(alternative) for alternative in _split(str(rule["line"]), "|")]
        for arguments in found if None not in found else ():
            yield {"reading": "words", "arguments": arguments}
        return
    if "tokens" in rule:
        try:
            regex.check(str(rule["tokens"]))
        except regex.ExpressionError:
            return
        yield {"reading": "words", "arguments": f"re:{_blankless(str(rule['tokens']))}*"}
        return
    reading = next((new for old, new in _READINGS.items() if rule.get(old)), None)
    form: dict[str, object] = {} if reading is None else {"reading": reading}
    form |= {
        key: _PATH.sub(lambda found: f"{found[1]}file", str(rule[key]))
        for key in (("arguments",) if reading == "words" else ("options", "arguments"))
        if key in rule
    }
    yield form


def _words(line: str) -> str | None:
    """Return the arguments for an expression of a whole line, or None where its words cannot be told apart."""
    *before, last = _split(line, " ")
    head, tail = _tail(last)
    kinds = [(word, "") for word in before]
    try:
        if any(regex.fullmatch(word, "") for word in before) or (tail and head and regex.fullmatch(head, "")):
            return None
        kinds += [(head, "?" if regex.fullmatch(head, "") else "")] if head else []
        kinds += [] if tail is None else [tail]
        for word, _ in kinds:
            regex.check(word)
    except regex.ExpressionError:  # a group spans several words
        return None
    if any(" " in word for word, _ in kinds):  # so does this one
        return None
    return " ".join(f"re:{_closed(word) if not repeat else word}{repeat}" for word, repeat in kinds)


def _closed(word: str) -> str:
    """Return an expression that does not end in a sign that a kind would take for its own."""
    return f"({word})" if word[-1:] in {"?", "*", "+"} else word


def _tail(word: str) -> tuple[str, tuple[str, str] | None]:
    """Separate ``(?: WORD)?`` from the end of an expression."""
    start = word.find("(?: ")
    found = _OPTIONAL.fullmatch(word[start:]) if start >= 0 else None
    return (word, None) if found is None else (word[:start], (found[1], found[2]))


def _split(expression: str, sign: str) -> list[str]:
    """Split an expression at a sign that is outside of all brackets."""
    parts, depth, inside, start, at = [], 0, False, 0, 0
    while at < len(expression):
        letter = expression[at]
        if letter == "\\":
            at += 1
        elif inside:
            inside = letter != "]"
        elif letter == "[":
            inside = True
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == sign and depth == 0:
            parts.append(expression[start:at])
            start = at + 1
        at += 1
    return [*parts, expression[start:]]


def _blankless(expression: str) -> str:
    """Return an expression without blanks, which separate kinds; no word of the old form held one."""
    return expression.replace(" ", r"\x20")


def _value(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) and "\\" in value and "'" not in value else json.dumps(value)
