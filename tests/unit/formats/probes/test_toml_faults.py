"""What operators read about a file of theirs that is wrong: whole sentences, which all readers of TOML keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pytest

from claudeops.formats.alerts import read_rules
from claudeops.formats.network.headers import read_headers
from claudeops.formats.notices import read_document as read_targets
from claudeops.formats.probes.declaration import read_probes
from claudeops.formats.schedules import Surroundings, read_plans
from claudeops.policy.policy_file import read_document as read_policy
from claudeops.text.toml_file import TomlFault

READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "alerts": lambda text: read_rules(text, highest_tier=3),
    "headers": read_headers,
    "policy": read_policy,
    "probes": lambda text: read_probes(text, file="probes.toml"),
    "schedules": lambda text: read_plans(text, Surroundings(highest_tier=3, prompt_file=str)),
    "targets": lambda text: read_targets(text, timezone="UTC"),
}
KINDS: Final = {
    "alerts": "a file of alerts",
    "headers": "a file of headers",
    "policy": "a policy",
    "probes": "a probes file",
    "schedules": "a file of schedules",
    "targets": "a file of targets",
}
HEADER: Final = '[[headers]]\nhost = "a.example"\nname = "X-Key"\nvalue = "${KEY}"\n'
LONG: Final = "k" * 50


def fault_of(kind: str, text: str) -> tuple[int, str]:
    with pytest.raises(TomlFault) as caught:
        READERS[kind](text)
    return caught.value.line, str(caught.value)


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("\n\nx\n", 3, "this is not TOML: Expected '=' after a key in a key/value pair"),
        ("x = [", 1, "this is not TOML: Invalid value"),
        ("x = [\n1,\n", 3, "this is not TOML: Invalid value"),
        ("x = 1\nx = 2\n", 2, "this is not TOML: Cannot overwrite a value"),
    ],
)
def test_what_is_not_toml_has_its_line_in_every_file(kind: str, text: str, line: int, said: str) -> None:
    assert fault_of(kind, text) == (line, said)


@pytest.mark.parametrize("kind", READERS)
def test_what_is_nested_too_deeply_is_refused_in_every_file(kind: str) -> None:
    assert fault_of(kind, "a = " + "[" * 3000) == (1, f"this is nested too deeply to be {KINDS[kind]}")


@pytest.mark.parametrize(
    ("kind", "text", "line", "said"),
    [
        ("alerts", "\nstrom = 1\n", 2, "the key 'strom' is not known here: did you mean 'storm'?"),
        (
            "alerts",
            "[storm]\nzzz = 1\n",
            2,
            "the key 'zzz' is not known here: known are sessions, window",
        ),
        (
            "alerts",
            f"\n{LONG} = 1\n[storm]\n",
            2,
            (
                f"the key '{LONG[:40]}' is not known here: known are self_inflicted, reopen_within, "
                "follow_dependencies, defaults, flapping, storm, source, rule, inhibit, heartbeat"
            ),
        ),
        ("alerts", "[storm]\nsessions = '1'\n", 2, "sessions: this is a text in quotes: write a whole number"),
        (
            "alerts",
            "[storm]\nwindow = []\n",
            2,
            "window: this is a list in brackets: write a number or a text in quotes",
        ),
        ("alerts", "\n[[source]]\nname = 'a'\n", 2, "'kind' is missing: add it"),
        ("alerts", "[[source]]\nname = 'a'\nkind = 'x'\n", 3, "kind: invalid enum value 'x': correct it"),
        ("probes", "zzz = 1\n", 1, "the key 'zzz' is not known here: known are defaults, probe"),
        (
            "probes",
            "[[probe]]\nname = 'a'\n",
            1,
            (
                "the probe 'a': 'kind' is missing: add one of http, tcp, tls, dns, icmp, postgres, mysql, redis, "
                "prometheus, docker, kubernetes, systemd, command, heartbeat"
            ),
        ),
        (
            "probes",
            "[[probe]]\nname = 'a'\nkind = 'tcp'\nhost = 'h'\nport = true\n",
            5,
            "the probe 'a': port: this is true or false: write a whole number",
        ),
        (
            "schedules",
            f"[[schedule]]\n{LONG} = 1\n",
            2,
            (
                f"the key '{LONG}' is not known here: known are name, cron, interval, jitter, timezone, tier, prompt, "
                "prompt_file, services, budget_usd, site, quiet_hours, overlap, misfire_grace, enabled"
            ),
        ),
        (
            "schedules",
            "schedule = 3\n",
            1,
            "Expected 'array', got 'int' - at '$.schedule': write every schedule as a table, [[schedule]]",
        ),
        ("schedules", "[[schedule]]\nname = 3\n", 2, "name: Expected 'str', got 'int'"),
        ("schedules", "\n[[schedule]]\n", 2, "Object missing required field 'name'"),
        (
            "targets",
            f"[[approvers]]\nname = 'a'\n{LONG} = 1\n",
            3,
            f"the key '{LONG[:40]}' is not known here: known are name, telegram_id, slack_user_id, tiers, services",
        ),
        ("targets", "[[approvers]]\nname = 3\n", 2, "name: Expected 'str', got 'int'"),
        ("headers", f"{HEADER}tls = 'x'\n", 5, "tls: Expected 'bool', got 'str'"),
        ("headers", "\n[[header]]\n", 2, "the key 'header' is not known here: headers stand under [[headers]]"),
        ("headers", f"{HEADER}hots = 'x'\n", 5, "the key 'hots' is not known here: did you mean 'host'?"),
        ("policy", "\nteirs = 1\n", 2, "the key 'teirs' is not known here: did you mean 'tiers'?"),
        (
            "policy",
            "[tiers.1]\nzzz = 1\n",
            2,
            (
                "the key 'zzz' is not known here: known are actions, ask, hosts, "
                "network, not_in_estate, not_understood, read, services, tools, urls, write"
            ),
        ),
        ("policy", "[tiers.1]\ntools = 3\n", 2, "tiers.1.tools: Expected `array`, got `int`"),
    ],
)
def test_a_fault_is_told_in_these_words(kind: str, text: str, line: int, said: str) -> None:
    assert fault_of(kind, text) == (line, said)
