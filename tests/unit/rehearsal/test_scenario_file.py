"""A scenario file that is wrong is refused with line, place and remedy, before anything is started."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from claudeops.errors import ConfigurationError, MissingInputError
from claudeops.rehearsal.scenario import (
    Chat,
    DiskFull,
    ExpectedChat,
    ExpectedOutcome,
    ExpiredCertificate,
    Failing,
    ScenarioAlerts,
    ScenarioService,
    ScenarioStep,
    ScenarioTap,
    Silent,
    Stopped,
    Within,
)
from claudeops.rehearsal.scenario_file import find, line_of, read, shipped
from support.checkout import ROOT

DOCS = ROOT / "docs"
PAGE = DOCS / "how-to" / "write-a-scenario.md"
EXCERPT = DOCS / "excerpts" / "make-run.txt"
GOOD = """\
title = "One service"

[services.web]
answers = "hello"

[[faults]]
service = "web"
kind = "stopped"

[[tiers.1.steps]]
say = "I look."
run = "curl {{web.url}}"
capture = { code = '(\\d+)' }

[[tiers.1.steps]]
when = "200"
report = { summary = "it said {{code}}: {{last_result}}" }

[expect]
decision = "healthy"
tiers = [1]
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    scenario = read(written(tmp_path, GOOD))
    assert (scenario.title, list(scenario.services), len(scenario.tiers["1"].steps)) == ("One service", ["web"], 2)


REFUSALS = {
    "no TOML": (
        "[services.web]",
        "[services.web",
        "not TOML: Expected ']' at the end of a table declaration (at line 3",
    ),
    "unknown key at the top": ("title = ", "titel = ", "line 1: unknown key 'titel', did you mean 'title'?"),
    "unknown key of a service": (
        'answers = "hello"',
        'anwsers = "hello"',
        "line 4: services.web: unknown key 'anwsers', did you mean 'answers'?",
    ),
    "unknown key of a fault": (
        'kind = "stopped"',
        'kind = "stopped"\nstatus = 500',
        "line 9: faults[0]: unknown key 'status', known are service, after_seconds, lasts_seconds, times, cured_by,",
    ),
    "unknown kind of fault": ('kind = "stopped"', 'kind = "stoped"', "must be one of stopped, failing, disk-full"),
    "unknown key of the second step": (
        'when = "200"',
        'wen = "200"',
        "line 16: tiers.1.steps[1]: unknown key 'wen', did you mean 'when'?",
    ),
    "two ways of calling": (
        'run = "curl {{web.url}}"',
        'run = "uptime"\nread = "/etc/hosts"',
        "line 10: tiers.1.steps[0]: say one of run, run_all, read or tool",
    ),
    "a step that says nothing": (
        'when = "200"\nreport = { summary = "it said {{code}}: {{last_result}}" }',
        'when = "200"',
        "line 15: tiers.1.steps[1]: a step says say, run, run_all, read, tool or report",
    ),
    "a mark that nothing fills": (
        "{{web.url}}",
        "{{web.ulr}}",
        "line 10: tiers.1.steps[0]: the placeholder {{web.ulr}} is unknown, did you mean 'web.url'?",
    ),
    "a capture used before it is taken": (
        'say = "I look."',
        'say = "{{code}}"',
        "the placeholder {{code}} is unknown",
    ),
    "a capture without a group": ("(\\d+)", "\\d+", "capture.code: '\\\\d+' needs exactly one group in parentheses"),
    "a capture that is no pattern": ("(\\d+)", "(", "is not a regular expression"),
    "a fault of a stranger": (
        'service = "web"',
        'service = "wed"',
        "line 7: faults[0].service: 'wed' is not a service of this scenario, did you mean 'web'?",
    ),
    "a full disk that is not there": (
        'kind = "stopped"',
        'kind = "disk-full"',
        "web has no disk that could be full: give it a size, such as disk_kib = 1024 in [services.web]",
    ),
    "a certificate without TLS": (
        'answers = "hello"',
        "certificate_days = 3",
        "line 4: services.web.certificate_days: there is a certificate only with tls = true",
    ),
    "a name that is none": ("[services.web]", "[services.Web]", "must be tables by name in lower case letters"),
    "a tier that is no number": ("[[tiers.1.steps]]", "[[tiers.one.steps]]", "such as [[tiers.1.steps]]"),
    "no first tier": ("[[tiers.1.steps]]", "[[tiers.2.steps]]", "say what tier 1 does, in [[tiers.1.steps]]"),
    "no expectation": ('[expect]\ndecision = "healthy"\ntiers = [1]\n', "", "missing required field `expect`"),
    "an unknown decision": ('"healthy"', '"helthy"', "line 20: expect.decision: must be one of healthy, escalated,"),
    "an expected tier that is not scripted": (
        "tiers = [1]",
        "tiers = [1, 2]",
        "line 21: expect.tiers: tier 2 is expected",
    ),
    "a need of a stranger": (
        'answers = "hello"',
        'needs = ["db"]',
        "line 4: services.web.needs: 'db' is not a service of this scenario",
    ),
    "a fault that comes and goes from the beginning": (
        'kind = "stopped"',
        'kind = "stopped"\nlasts_seconds = 2',
        "line 6: faults[0]: a fault that is there from the beginning does not come and go: say after_seconds",
    ),
    "a fault that stays and comes twice": (
        'kind = "stopped"',
        'kind = "stopped"\nafter_seconds = 2\ntimes = 2',
        "line 10: faults[0].times: a fault that stays comes once: say lasts_seconds",
    ),
    "a disk that fills up later": (
        'answers = "hello"\n\n[[faults]]\nservice = "web"\nkind = "stopped"',
        'disk_kib = 64\n[[faults]]\nservice = "web"\nkind = "disk-full"\nafter_seconds = 1',
        "web has a disk that is full from the beginning or never: leave out after_seconds",
    ),
    "a certificate that is not there": (
        'kind = "stopped"',
        'kind = "expired"',
        "web has no certificate that could expire: say tls = true in [services.web]",
    ),
    "a heartbeat that is not sent": (
        'kind = "stopped"',
        'kind = "silent"',
        "web sends no heartbeat that could stop: name one, as pings, in [services.web]",
    ),
    "a heartbeat that is not declared": (
        'answers = "hello"',
        'pings = "web"',
        "line 4: services.web.pings: there is no heartbeat 'web', add it as a [[probes.probe]]",
    ),
    "a probe that the daemon would refuse": (
        "[expect]",
        '[[probes.probe]]\nname = "web"\nkind = "http"\nurl = "{{web.url}}"\ninterval = "1ms"\n\n[expect]',
        "line 23: probes.probe[0].interval: the probe 'web': interval: 0.001 s cannot be kept",
    ),
    "a mark of a probe that nothing fills": (
        "[expect]",
        '[[probes.probe]]\nname = "web"\nkind = "http"\nurl = "{{wed.url}}"\n\n[expect]',
        "line 19: probes.probe[0]: the placeholder {{wed.url}} is unknown, did you mean 'web.url'?",
    ),
    "an unknown key of the probes": (
        "[expect]",
        "[probes]\nprobes = []\n\n[expect]",
        "line 20: probes: unknown key 'probes', did you mean 'probe'?",
    ),
    "a chat without anybody": (
        "[expect]",
        "[chat]\napprovers = []\n\n[expect]",
        "line 20: chat.approvers: must be some names",
    ),
    "an unknown key of the chat": (
        "[expect]",
        '[chat]\napprovers = ["alice"]\ntap = []\n\n[expect]',
        "line 21: chat: unknown key 'tap', did you mean 'taps'?",
    ),
    "a button that no message has": (
        "[expect]",
        '[chat]\napprovers = ["alice"]\n[[chat.taps]]\nby = "alice"\nbutton = "Maybe"\n\n[expect]',
        "must be one of Yes, No",
    ),
    "something said where there is no chat": (
        "tiers = [1]",
        'tiers = [1]\nchat = { shows = ["YES"] }',
        "line 22: expect.chat: nobody can say anything without a chat: add [chat] with its approvers",
    ),
    "an expected probe of a stranger": (
        "tiers = [1]",
        'tiers = [1]\nprobes = { wep = "up" }',
        "line 22: expect.probes.wep: there is no such probe",
    ),
    "an expected state that is none": (
        "tiers = [1]",
        'tiers = [1]\nprobes = { web = "well" }',
        "line 22: expect.probes[...]: must be states of probes by their names, each one of unknown, up",
    ),
    "no session, but its decision": (
        "tiers = [1]",
        "tiers = []",
        "line 19: expect: a decision comes with sessions: give both, or no decision and tiers = []",
    ),
    "an expected service of a stranger": (
        "tiers = [1]",
        'tiers = [1]\nservices = { wep = "up" }',
        "line 22: expect.services.wep: 'wep' is not a service",
    ),
}


@pytest.mark.parametrize(("part", "instead", "complaint"), REFUSALS.values(), ids=REFUSALS)
def test_a_wrong_file_is_one_sentence_with_line_and_remedy(
    tmp_path: Path, part: str, instead: str, complaint: str
) -> None:
    assert part in GOOD
    path = written(tmp_path, GOOD.replace(part, instead))
    with pytest.raises(ConfigurationError) as refusal:
        read(path)
    said = str(refusal.value)
    assert complaint in said
    assert said.startswith(f"{path}: ")
    assert "\n" not in said


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b'title = "x"\nnote = "\xff"\n')
    with pytest.raises(ConfigurationError, match="line 2: not UTF-8"):
        read(path)


def test_a_file_that_is_not_there_is_missing_input(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"nowhere\.toml: cannot be read \(No such file or directory\)"):
        find("nowhere.toml", cwd=tmp_path)


def test_a_name_that_is_nearly_one_of_ours_says_which(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="did you mean 'service-down'"):
        find("service-dwn", cwd=tmp_path)


def test_a_relative_path_starts_at_the_working_directory(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    assert find("mine.toml", cwd=tmp_path).name == "mine"


def test_at_least_the_promised_scenarios_are_shipped() -> None:
    assert {
        "healthy-estate",
        "service-down",
        "restart-does-not-help",
        "every-other-request",
        "flapping",
        "recovers-by-itself",
        "database-down",
        "alert-storm",
        "heartbeat-silent",
        "disk-full",
        "certificate-expiring",
        "certificate-expired",
        "hostile-log",
        "no-report",
        "the-liar",
        "approval-by-chat",
    } <= set(shipped())


SHAPES = [
    *(ScenarioAlerts, ScenarioService, Stopped, Failing, DiskFull, Silent, ExpiredCertificate),
    *(ScenarioStep, ExpectedOutcome, Within, Chat, ScenarioTap, ExpectedChat),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_key_is_explained_on_the_page_about_scenarios(shape: type[msgspec.Struct]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [key for key in shape.__struct_fields__ if f"`{key}`" not in page and f"{key} = " not in page] == []


def test_lines_are_found_through_arrays_of_tables_and_tables_in_their_last_entry() -> None:
    text = "[[a.b]]\nx = 1\n\n[[a.b]]\n# a comment\nx = 2\n[a.b.c]\ny = 1\n[[a.b.c.d]]\nz = 1\n"
    assert [line_of(text, place) for place in ("a.b[0].x", "a.b[1].x", "a.b[1].c.y", "a.b[1].c.d[0].z", "q")] == [
        2,
        6,
        8,
        10,
        None,
    ]


@pytest.mark.parametrize("name", ["service-down", "restart-does-not-help"])
def test_the_recorded_session_is_of_the_scenarios_as_they_are(name: str) -> None:
    recorded = EXCERPT.read_text(encoding="utf-8")
    scenario = find(name, cwd=PAGE.parent).scenario
    assert scenario.title in recorded, "record it again: make excerpt"
    words = [step.say for tier in scenario.tiers.values() for step in tier.steps if step.say is not None]
    assert [said for said in words if said not in recorded] == [], "record it again: make excerpt"
