"""A policy file in the old form becomes one in the new form that allows the same, or less with the reason in it."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.policy.migrate import migrate
from claudeops.policy.tiers import parse_policy, tier_policy
from support.policy_cases import DEFAULT_TEXT, SCOPE, judged

OLD = """\
extends = "default"  # and ours

# Backups
[[commands]]
name = "backupctl"
line = "status|show [a-z]+|list -n [0-9]{1,3}(?: [a-z]+)?"
hint = "only looks"

[[commands]]
name = "restic stats"
tier = 2
tokens = '[a-z0-9]+'

[[commands]]
name = "say"
inert = true
options = "-n"
arguments = "any*"

[[commands]]
name = "certs show"
long_options = true
options = "-keystore=path -v"

[[commands]]
name = "run-parts"
ordered = true
options = "--list"
arguments = "path+"

[[commands]]
name = "peek"
tokens = '[a-z]+'
excludes = "secret"

[tiers.3]
actions = ["restart"]
"""


def kind(command: str, tier: int = 3) -> VerdictKind:
    policy = parse_policy(migrate(OLD), default=DEFAULT_TEXT)
    return judged(command, tier_policy(policy, tier), SCOPE).kind


@pytest.mark.parametrize(
    "command",
    [
        "backupctl status",
        "backupctl show nightly",
        "backupctl list -n 20",
        "backupctl list -n 20 nightly",
        "restic stats latest a1b2",
        "say -n 'what it is' \"$?\"",
        "certs show -v -keystore /srv/notes.txt",
        "run-parts --list /etc/hosts",
    ],
)
def test_what_the_old_form_allowed_is_allowed(command: str) -> None:
    assert kind(command) is VerdictKind.ALLOW


@pytest.mark.parametrize(
    "command",
    [
        "backupctl",
        "backupctl show nightly; backupctl prune",
        "backupctl status now",
        "backupctl show 'a b'",
        "backupctl show",
        "backupctl list -n 2000",
        "restic stats --password-file=x",
        "certs show -keystore /etc/shadow",
        "peek a",
    ],
)
def test_what_it_did_not_allow_is_not(command: str) -> None:
    assert kind(command) is not VerdictKind.ALLOW


def test_the_tier_of_a_rule_stays() -> None:
    assert (kind("restic stats latest", 1), kind("restic stats latest", 2)) == (VerdictKind.DENY, VerdictKind.ALLOW)


def test_what_has_no_new_form_stays_as_a_comment_with_the_reason() -> None:
    text = migrate(OLD)
    assert "# This rule has no form in which every word is known: write it with options and arguments.\n" in text
    assert '#   excludes = "secret"' in text
    assert 'name = "peek"' not in [line for line in text.splitlines() if not line.startswith("#")]


def test_comments_and_other_tables_stay_as_they_are() -> None:
    text = migrate(OLD)
    assert text.startswith('extends = "default"  # and ours\n\n# Backups\n[[commands]]\nname = "backupctl"\n')
    assert text.endswith('[tiers.3]\nactions = ["restart"]\n')
    assert 'hint = "only looks"' in text


@pytest.mark.parametrize("text", [migrate(OLD), DEFAULT_TEXT], ids=["migrated", "default"])
def test_a_file_in_the_new_form_is_not_changed(text: str) -> None:
    assert migrate(text) == text
