"""The categories of memories: a closed list, and which other words mean one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from claudeops.closed_set import ClosedSet
from claudeops.text import casefold_key, regex


class Category(ClosedSet):
    """What a memory says of a service."""

    TIMING = "timing", "how long something takes"
    DEPENDENCY = "dependency", "what it needs, and what needs it"
    BEHAVIOUR = "behaviour", "what is normal"
    MAINTENANCE = "maintenance", "what has to be done to it now and then"
    LOCATION = "location", "where it runs, where its files lie, where it answers"
    CAPACITY = "capacity", "how much it takes, and how much there is"
    CONFIGURATION = "configuration", "how it is set up"
    CAUSE = "cause", "what a known trouble came from"
    REMEDY = "remedy", "what has helped"
    SCHEDULE = "schedule", "when something happens"
    CONTACT = "contact", "whose it is"
    OTHER = "other", "what fits none of these"


_SYNONYMS: Final[Mapping[Category, str]] = {
    Category.TIMING: "time times duration latency speed startup boot-time response-time startup-time delay timeout",
    Category.DEPENDENCY: "dependencies depends dependence requires requirement upstream downstream relation",
    Category.BEHAVIOUR: "behavior behaviours behaviors normal baseline quirk quirks pattern expected health check",
    Category.MAINTENANCE: "maintenance-window upkeep update updates upgrade upgrades housekeeping backup backups",
    Category.LOCATION: "locations place host hosts path paths address endpoint url port ports network topology",
    Category.CAPACITY: "resource resources disk memory cpu storage size limit limits usage load performance quota",
    Category.CONFIGURATION: "config configurations setting settings setup option options version versions image",
    Category.CAUSE: "causes root-cause reason issue issues problem problems failure incident error known-issue",
    Category.REMEDY: "remedies fix fixes solution solutions workaround workarounds recovery remediation repair",
    Category.SCHEDULE: "schedules cron timer timers calendar window windows",
    Category.CONTACT: "contacts owner owners team maintainer responsible",
    Category.OTHER: "misc miscellaneous general note notes info fact facts unknown",
}
_MEANT_BY: Final[Mapping[str, Category]] = MappingProxyType(
    {word: category for category, words in _SYNONYMS.items() for word in words.split()}
    | {category.value: category for category in Category}
)
_BETWEEN: Final = regex.Pattern(rf"[^{regex.WORD}]+|_+")


def category_of(word: str) -> Category:
    """Return the category that a word stands for; `Category.OTHER` for a word that is not known."""
    plain = _BETWEEN.sub("-", casefold_key(word)).strip("-")
    return _MEANT_BY.get(plain, Category.OTHER)


def spellings(categories: Iterable[str]) -> frozenset[str]:
    """Return the words under which memories of the same categories may be stored: older ones kept any word."""
    meant = {category_of(word) for word in categories}
    words = {word for word, category in _MEANT_BY.items() if category in meant}
    return frozenset({*words, *categories})
