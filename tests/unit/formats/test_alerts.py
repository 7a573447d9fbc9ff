"""The operator's file of alerts: what it may say, and each fault with its line and its remedy."""

from __future__ import annotations

from datetime import timedelta

import pytest

from claudeops.domain.alerts.alert import PROBES
from claudeops.domain.alerts.matchers import read_matcher, read_matchers
from claudeops.domain.alerts.rules import Rules, SenderKind
from claudeops.domain.events import EventLevel
from claudeops.formats.alerts import read_rules
from claudeops.text.toml_file import TomlFault

WHOLE = """
self_inflicted = "90s"
follow_dependencies = false

[defaults]
group_wait = "10s"
min_severity = "info"
tier = 2

[flapping]
changes = 6
ask_why = true

[storm]
sessions = 3

[[source]]
name = "am"
kind = "alertmanager"
service_label = "app"
severity = { Katastrophe = "critical" }
group_by = ["namespace", "app"]
repeat_interval = "1h"

[[source]]
name = "kuma"
kind = "uptime-kuma"
tier = 1

[[source]]
name = "own"
kind = "generic"
secret_env = ["OWN_SECRET", "OWN_SECRET_OLD"]
fingerprint = ["host", "check"]
stale_after = "30m"
default_severity = "info"

[[rule]]
matchers = ['alertname=~"Node.*"', "cluster!=test"]
tier = 3
flapping = false

[[inhibit]]
source = 'alertname="ClusterDown"'
target = 'severity=~"warning|critical"'
equal = ["cluster"]

[[heartbeat]]
name = "prometheus"
matchers = 'alertname="Watchdog"'
every = "5m"
grace = "2m"
"""

ONE = '[[source]]\nname = "am"\nkind = "alertmanager"\n'
GENERIC = ONE.replace("alertmanager", "generic")


def rules(text: str = WHOLE) -> Rules:
    return read_rules(text, highest_tier=3, file="alerts.toml")


def fault(text: str) -> tuple[int, str]:
    with pytest.raises(TomlFault) as caught:
        rules(text)
    return caught.value.line, str(caught.value)


def test_a_whole_file_is_read() -> None:
    found = rules()
    am, kuma, own = found.sources
    assert (am.kind, am.service_label, am.severity) == (
        SenderKind.ALERTMANAGER,
        ("app",),
        {"katastrophe": EventLevel.CRITICAL},
    )
    assert (am.grouping.by, am.grouping.wait, am.tier) == (("namespace", "app"), timedelta(seconds=10), 2)
    assert (kuma.tier, kuma.default_severity, own.default_severity) == (1, EventLevel.CRITICAL, EventLevel.INFO)
    assert own.secret_env == ("OWN_SECRET", "OWN_SECRET_OLD")
    assert am.origin == "alerts.toml:17"
    assert found.self_inflicted == timedelta(seconds=90)
    assert not found.follow_dependencies
    assert (found.flapping.changes, found.storm.sessions) == (6, 3)
    assert found.heartbeats[0].every == timedelta(minutes=5)
    assert [str(matcher) for matcher in found.rules[0].matchers] == ['alertname=~"Node.*"', 'cluster!="test"']


def test_only_senders_that_repeat_get_stale_by_their_silence() -> None:
    found = rules()
    assert [source.stale_after for source in found.sources] == [timedelta(hours=3), None, timedelta(minutes=30)]
    never = rules(ONE + 'stale_after = "never"\n')
    assert never.sources[0].stale_after is None
    assert rules(ONE).sources[0].stale_after == timedelta(hours=12)


def test_the_first_rule_that_fits_changes_how_an_alert_is_treated() -> None:
    found = rules()
    plain = found.treatment({"alertname": "X"}, "am")
    ruled = found.treatment({"alertname": "NodeDown"}, "am")
    excepted = found.treatment({"alertname": "NodeDown", "cluster": "test"}, "am")
    assert (plain.tier, ruled.tier, excepted.tier) == (2, 3, 2)
    assert (plain.flapping.enabled, ruled.flapping.enabled) == (True, False)
    assert ruled.grouping.by == ("namespace", "app")


def test_a_source_that_is_gone_is_treated_by_what_holds_without_settings() -> None:
    assert rules().source("gone").min_severity is EventLevel.WARNING
    assert rules().source(PROBES).grouping.wait == timedelta(0)


def test_one_word_needs_no_list_around_it() -> None:
    (source,) = rules(GENERIC + 'fingerprint = "host"\nfiring_words = "kaputt"\nover_words = ["heil", "🎉"]\n').sources
    assert (source.fingerprint, source.firing_words, source.over_words) == (("host",), ("kaputt",), ("heil", "🎉"))


FAULTS = [
    ("", 1, "there is no source in it"),
    ("[[source]\n", 1, "this is not TOML"),
    ("source = 3\n", 1, "write [[source]]"),
    ("defaults = 3\n" + ONE, 1, "write [defaults]"),
    ("sauce = 1\n" + ONE, 1, "did you mean 'source'?"),
    ('[[source]]\nname = "a"\n', 1, "'kind' is missing"),
    ('[[source]]\nname = "a"\nkind = "nagios"\n', 3, "nvalid enum value 'nagios'"),
    (ONE + "teir = 2\n", 4, "did you mean 'tier'?"),
    (ONE + "tier = 4\n", 4, "tiers go from 1 to 3"),
    (ONE + 'tier = "2"\n', 4, "tier: this is a text in quotes: write a whole number"),
    (ONE + 'group_wait = "soon"\n', 4, "'soon' is not a duration"),
    (ONE + "group_wait = -1\n", 4, "is not a duration"),
    (ONE + "group_wait = nan\n", 4, "is not a duration"),
    (ONE + 'group_wait = "2h"\n', 4, "write at most 1h"),
    (ONE + 'repeat_interval = "1m"\n', 4, "at least 'group_interval'"),
    (ONE + 'stale_after = "0s"\n', 4, "or 'never'"),
    (ONE + 'severity = { page = "huge" }\n', 4, "severity:"),
    (ONE + 'secret_env = "X"\n', 4, "signs nothing"),
    (ONE + 'fingerprint = ["a"]\n', 4, "leave it out"),
    (ONE + 'over_words = "gut"\n', 4, "leave it out"),
    (GENERIC + 'over_words = ["gut", " "]\n', 4, "empty word"),
    (GENERIC + 'firing_words = "gut"\nover_words = ["Gut"]\n', 5, "take it out of one"),
    (ONE + 'timestamp_header = "X-T"\n', 4, "only Grafana"),
    ('[[source]]\nname = "g"\nkind = "generic"\nsecret_env = "hunter2 secret"\n', 4, "never the secret itself"),
    ('[[source]]\nname = "g"\nkind = "grafana"\nsignature_header = "a b"\n', 4, "not the name of a header"),
    ('[[source]]\nname = "a b"\nkind = "generic"\n', 2, "is not a name"),
    ('[[source]]\nname = "probes"\nkind = "generic"\n', 2, "choose another name"),
    (ONE + ONE, 5, "taken by the source in line 1"),
    (ONE + "[[rule]]\ntier = 2\n", 4, "'matchers' is missing"),
    (ONE + "[[rule]]\nmatchers = 'a'\n", 5, "is no matcher"),
    (ONE + "[[rule]]\nmatchers = []\n", 5, "it fits every alert"),
    (ONE + "[[rule]]\nmatchers = 'a=~\"(\"'\n", 5, "no expression of google-re2"),
    (ONE + "[[rule]]\nmatchers = 'a=b'\ntier = 0\n", 6, "there is no tier 0"),
    (ONE + "[[inhibit]]\nsource = 'a=b'\ntarget = 'c=~\".*\"'\n", 6, "it fits every alert"),
    (ONE + "[[heartbeat]]\nname = 'w'\nmatchers = 'a=b'\nevery = 0\n", 7, "a second or more"),
    (ONE + "[[heartbeat]]\nname = '!'\nmatchers = 'a=b'\nevery = 60\n", 5, "is not a name"),
    (ONE + "[flapping]\nchanges = 1\n", 5, "changes say nothing"),
    (ONE + "[storm]\nsessions = 0\n", 5, "write 1 to 100"),
    ("self_inflicted = 'x'\n" + ONE, 1, "self_inflicted: 'x' is not a duration"),
    ("[defaults]\ntier = 9\n" + ONE, 2, "there is no tier 9"),
    (ONE + "group_by = ['']\n", 4, "an empty name is no label"),
]


@pytest.mark.parametrize(("text", "line", "said"), FAULTS)
def test_each_fault_has_its_line_and_its_remedy(text: str, line: int, said: str) -> None:
    assert (fault(text)[0], said in fault(text)[1]) == (line, True), fault(text)


def test_deep_nesting_is_a_fault_and_no_crash() -> None:
    assert "nested" in fault("a = " + "[" * 5000 + "]" * 5000)[1]


# --- matchers ---------------------------------------------------------------------------------------------

LABELS = {"severity": "critical", "instance": "web1:9100", "empty": "", "my label": "a,b"}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('severity="critical"', True),
        ("severity = critical", True),
        ('severity!="critical"', False),
        ('severity=~"crit"', False),  # the whole value
        ('severity=~"crit.*|page"', True),
        ('instance!~"db.*"', True),
        ('missing=""', True),  # what is missing is empty
        ("missing!=x", True),
        ("missing=~'x'", False),
        ('empty=~".+"', False),
        ('"my label"="a,b"', True),
    ],
)
def test_a_matcher_holds_as_alertmanagers_do(text: str, *, holds: bool) -> None:
    assert read_matcher(text).holds(LABELS) is holds


@pytest.mark.parametrize("text", ['a="b"', 'a!="\\"x\\\\"', 'a=~"x\\n.*"', '"odd name"!~"y"'])
def test_a_matcher_is_written_as_it_is_read(text: str) -> None:
    assert read_matcher(str(read_matcher(text))) == read_matcher(text)


def test_several_matchers_stand_in_one_text() -> None:
    assert [str(each) for each in read_matchers(['{a="b,c", d=~"e|f"}', "g!=h"])] == [
        'a="b,c"',
        'd=~"e|f"',
        'g!="h"',
    ]


@pytest.mark.parametrize("text", ["", "a", "a==b", "{a=b", "a=b}", "a=b,,c=d", "=b", '"a=b', "a~b", "a=b c=d=e{"])
def test_what_is_no_matcher_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="matcher"):
        read_matchers([text])


def test_a_hostile_expression_takes_no_time() -> None:
    matcher = read_matcher('a=~"(x+x+)+y"')
    assert not matcher.holds({"a": "x" * 50_000})
