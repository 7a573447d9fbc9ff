"""What a manifest forbids, whatever a service is called in the call that would do it.

A prohibition only narrows what the policy allows, so it is read generously: a service is meant by each of its names, at
whatever place it runs, as container of a compose project (``media-db-1``) and as unit (``db.service``, ``db@main``).
Until the repositories have answered once, everything may be forbidden, and so nothing is done.
What a whole playbook or chart does inside is not visible here: it is forbidden by ``*``, or by its own name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from claudeops.domain.estate.estate import Estate, Prohibition
from claudeops.domain.estate.service_names import container_of, counted_by, forms, other_names_of
from claudeops.text import NAME_LENGTH, casefold_key, one_line, parts, regex

EVERY_SERVICE: Final = "*"
_LONGEST_RULE: Final = 200  # characters of a rule in a sentence
_NOT_KNOWN: Final = "the repositories do not answer, so nobody knows what their manifests forbid"
_BETWEEN_NAMES: Final = regex.Pattern(rf"[^{regex.WORD}.:@/-]+")
_ACTING: Final = regex.Pattern(
    r"(?i)\b(?:re)?(?:start|stop|load|deploy|create|build)\w*|\b(?:kill|rm|remove|delete|down|up|update|upgrade|apply|scale"
    r"|rollback|undo|pause|disable|mask|drain)\b"
)


def refuse_action(kind: str, names: Sequence[str], estate: Estate, counted: Mapping[str, str]) -> str | None:
    """Return why a manifest forbids an action on a service, or None.

    ``names``: every name of the service in every form, its whole name first; ``counted``: the other names of services.
    """
    if estate.unread:
        return f"{kind} of {names[0]}: {_NOT_KNOWN}"
    called = set(map(casefold_key, names))
    within = {place for name in names for place in parts(casefold_key(name))}
    for each in _prohibitions(estate, counted):
        if not called.isdisjoint(each.services) or each.repository in within:
            return f"{kind} of {names[0]} is {each.sentence}"
    return None


def refuse_stack(stack: str, estate: Estate, counted: Mapping[str, str]) -> str | None:
    """Return why a manifest forbids to deploy a stack of swarm, which changes every service that it has, or None."""
    begins = f"{casefold_key(stack)}_"
    for each in _prohibitions(estate, counted):
        if any(name.startswith(begins) for name in each.services):
            return f"the stack {stack} holds what is {each.sentence}"
    return None


def refuse_text(text: str, estate: Estate, counted: Mapping[str, str]) -> str | None:
    """Return why a text that cannot be understood may not be put to a person, or None.

    It names a service about which something is forbidden, and a deed.
    """
    if not _ACTING.search(text):
        return None
    if estate.unread:
        return _NOT_KNOWN
    names = (word for word in _BETWEEN_NAMES.split(text) if len(word) <= NAME_LENGTH)
    words = {form for name in names for each in (name, container_of(name)) for form in forms(each)}
    for each in _prohibitions(estate, counted):
        if not words.isdisjoint(each.services):
            return f"it names what is {each.sentence}"
    return None


class _Forbidden(msgspec.Struct, frozen=True, kw_only=True):
    """A prohibition with every name of the services that it is about, in the form in which spellings are equal."""

    services: frozenset[str]
    repository: str | None  # all of which it is about
    sentence: str


def _prohibitions(estate: Estate, counted: Mapping[str, str]) -> Iterator[_Forbidden]:
    main = counted_by(counted)
    for manifest in estate.manifests:
        own = {name for service in manifest.services for name in (service.name, *service.aliases)}
        for given in manifest.prohibitions:
            every = EVERY_SERVICE in given.services
            wanted = {*given.services, *(own if every else ())} - {EVERY_SERVICE}
            named = {other for name in wanted for other in (name, main(name), *other_names_of(main(name), counted))}
            yield _Forbidden(
                services=frozenset(map(casefold_key, named)),
                repository=casefold_key(manifest.repository) if every else None,
                sentence=_sentence(given),
            )


def _sentence(given: Prohibition) -> str:
    rule = one_line(given.text)
    rule = rule if len(rule) <= _LONGEST_RULE else f"{rule[:_LONGEST_RULE]} ..."
    source = given.source
    place = source.path if source.line is None else f"{source.path}:{source.line}"
    return f'forbidden by {place}, at any tier: "{rule}"'
