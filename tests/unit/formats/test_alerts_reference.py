"""What is written about alerts is true."""

from __future__ import annotations

import re

import msgspec
import pytest

from claudeops.domain.alerts.alert import HANDLED, TEMPORARY, AlertDecision
from claudeops.domain.alerts.decide import SETTLING, STORM_WAIT
from claudeops.domain.alerts.machine import LATE, SAME
from claudeops.domain.alerts.rules import FlapRules, Grouping, Rules, SenderKind, StormRules
from claudeops.formats.alerts import (
    AlertDefaults,
    DeclaredSource,
    FlappingEntry,
    General,
    HeartbeatEntry,
    InhibitEntry,
    RuleEntry,
    StormEntry,
    read_rules,
)
from claudeops.formats.senders.common import MOST_ALERTS, MOST_BYTES, MOST_TEXT, SKEW, TOLERANCE
from claudeops.formats.senders.words import MOST_LOOKED_AT
from claudeops.wording.alert_brief import _PHRASES
from support.checkout import ROOT

REFERENCE = (ROOT / "docs" / "reference" / "alerts.md").read_text(encoding="utf-8")
TABLES: dict[str, type[msgspec.Struct]] = {
    "## Above all tables": General,
    "## `[defaults]`": AlertDefaults,
    "## `[[source]]`": DeclaredSource,
    "## `[[rule]]`": RuleEntry,
    "## `[[inhibit]]`": InhibitEntry,
    "## `[[heartbeat]]`": HeartbeatEntry,
    "## `[flapping]`": FlappingEntry,
    "## `[storm]`": StormEntry,
}
SHARED = {field.name for field in msgspec.structs.fields(AlertDefaults)}


def section(heading: str) -> str:
    return re.split(r"^#{2,3} ", REFERENCE.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def described(heading: str) -> dict[str, str]:
    """Return the keys of a table with their defaults."""
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) ?\| ", section(heading), flags=re.MULTILINE))


def written(field: msgspec.structs.FieldInfo) -> str:
    """Return a default as the reference has it."""
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else None
    if not value and not isinstance(value, bool):
        return ""
    if isinstance(value, tuple):
        words = ", ".join(f'"{each}"' for each in value)
        return f"`[{words}]`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


@pytest.mark.parametrize("heading", TABLES)
def test_every_key_and_its_default_are_those_of_the_code(heading: str) -> None:
    kind = TABLES[heading]
    own = [field for field in msgspec.structs.fields(kind) if kind is not DeclaredSource or field.name not in SHARED]

    assert described(heading) == {field.name: written(field) for field in own}


def test_every_kind_and_every_decision_is_described_and_no_other() -> None:
    assert re.findall(r"^\| `([\w-]+)` \|", section("## Senders"), flags=re.MULTILINE) == list(SenderKind)
    assert re.findall(r"^\| `(\w+)` \|", section("## Decisions"), flags=re.MULTILINE) == list(AlertDecision)
    assert set(_PHRASES) == set(AlertDecision)


def test_the_example_can_be_used() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", REFERENCE, flags=re.DOTALL)

    assert [source.name for source in read_rules(example, highest_tier=3).sources] == ["prometheus", "kuma", "scripts"]


def test_the_defaults_of_the_values_are_those_of_an_empty_file() -> None:
    rules = read_rules('[[source]]\nname = "am"\nkind = "alertmanager"\n', highest_tier=3)
    (source,) = rules.sources
    plain = Rules()
    assert (rules.flapping, rules.storm, source.grouping) == (FlapRules(), StormRules(), Grouping())
    assert (rules.self_inflicted, rules.reopen_within) == (plain.self_inflicted, plain.reopen_within)
    assert (source.service_label, source.severity_label) == (
        plain.source("am").service_label,
        plain.source("am").severity_label,
    )


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"more than {SAME.seconds // 60} minutes after the last beginning" in REFERENCE
    assert f"within {LATE.seconds // 60} minutes once more" in REFERENCE
    assert f"more than {SKEW.seconds // 60} minutes ahead" in REFERENCE
    assert f"waits for {SETTLING.seconds} seconds" in REFERENCE
    assert f"groups wait {STORM_WAIT.seconds} seconds" in REFERENCE
    assert f"off by {TOLERANCE.seconds} seconds" in REFERENCE
    assert f"{MOST_BYTES // 1024**2} MiB and {MOST_ALERTS} alerts" in REFERENCE
    assert f"{MOST_TEXT} bytes of labels" in REFERENCE
    assert f"the first {MOST_LOOKED_AT} characters of each" in REFERENCE


def test_no_decision_is_both_passing_and_a_deed() -> None:
    assert not HANDLED & TEMPORARY


def test_links_within_the_document_lead_somewhere() -> None:
    headings = re.findall(r"^#+ (.*)$", REFERENCE, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    assert set(re.findall(r"\(#([\w-]+)\)", REFERENCE)) <= anchors
