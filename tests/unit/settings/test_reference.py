"""What is written about the settings is true."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import pytest

from claudeops.settings import Settings, TierSettings
from claudeops.settings.environ import INHERITED
from claudeops.settings.names import GENERAL, KNOWN, PER_TIER, WITHOUT_EFFECT, Kind, Variable
from support.checkout import ROOT

# One entry a row of the reference, in its order.
DOCUMENTED = (*GENERAL, *PER_TIER)
REFERENCE = ROOT / "docs" / "reference" / "settings.md"

# Where the field of a setting is not called like its variable.
FIELDS = {
    "CLAUDE_CODE_OAUTH_TOKEN": "oauth_token",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "background_tasks_off",
    "CLAUDEOPS_PROMPT": "prompt_text",
    "CLAUDEOPS_TIER{n}_PROMPT": "prompt_text",
    "CLAUDEOPS_SCHEMA_PATH": "schema_text",
    "CLAUDEOPS_POLICY_PATH": "policy",
    "CLAUDEOPS_HEADERS_PATH": "headers",
    "CLAUDEOPS_MEMORY_BUDGET": "memory_budget_tokens",
    "CLAUDEOPS_APPRISE_URLS": "addresses",
    "CLAUDEOPS_OIDC_ISSUER": "oidc",  # one value: all of them or none
    "CLAUDEOPS_OIDC_CLIENT_ID": "oidc",
    "CLAUDEOPS_OIDC_CLIENT_SECRET": "oidc",
    "CLAUDEOPS_OIDC_CLAIM": "oidc",
}


def field_of(variable: Variable) -> str:
    """Return the field that holds a variable's value."""
    if variable.name in FIELDS:
        return FIELDS[variable.name]
    name = variable.name.removeprefix("CLAUDEOPS_").removeprefix("TIER{n}_").lower()
    return f"{name}_seconds" if variable.kind is Kind.SECONDS else name


def expected_rows() -> list[str]:
    """Return the table as the code has it."""
    rows = []
    for variable in DOCUMENTED:
        default = variable.default_note or ", ".join(f"`{default}`" for default in variable.defaults) or "none"
        bounds = f"{variable.bounds}, or a file by `{variable.name}_FILE`" if variable.secret else variable.bounds
        used = "yes" if variable.used else "not yet"
        rows.append(f"| `{variable.name}` | {default} | {bounds} | {variable.meaning} | {used} |")
    return rows


def test_table_is_what_the_code_does() -> None:
    rows = re.findall(r"^\| `[A-Z].*\|$", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert rows == expected_rows()


def test_every_variable_that_sessions_inherit_is_told() -> None:
    text = REFERENCE.read_text(encoding="utf-8")

    assert [name for name in (*INHERITED, "LC_*") if f"`{name}`" not in text] == []


def test_every_name_without_effect_is_told() -> None:
    text = REFERENCE.read_text(encoding="utf-8")

    assert [name for name in WITHOUT_EFFECT if f"`{name}`" not in text] == []


def test_every_variable_has_its_field_and_every_field_its_variable() -> None:
    fields = {field.name for cls in (Settings, TierSettings) for field in dataclasses.fields(cls)}
    # What is not the operator's to set: worked out from other settings or from the surroundings.
    derived = {
        "tiers",
        "path",
        "inherited_env",
        "proxies",
        "secrets",
        "private_files",
        "schema_path",
        "policy_path",
        "probes_named",
        "probes_env",
        "alerts",
        "alerts_env",
        "notify_env",
        "number",
        "name",
        "prompt_path",
        "file_schedules",
        "targets",
        "public_hosts",
        "telegram",  # these three: what the file of targets says
        "slack",
        "approvers",
    }
    derived |= {"tls_hosts"}  # of the public addresses
    derived |= {"notify_socket", "watchdog_seconds"}  # the service manager's

    assert {field_of(variable) for variable in DOCUMENTED} == fields - derived


@pytest.mark.parametrize("variable", DOCUMENTED, ids=lambda variable: variable.name)
def test_used_says_whether_the_code_outside_the_settings_reads_it(variable: Variable) -> None:
    field = field_of(variable)
    sources = (path for path in (ROOT / "src" / "claudeops").rglob("*.py") if path.parent.name != "settings")
    read = any(re.search(rf"\b(settings|tier)\.{field}\b", path.read_text(encoding="utf-8")) for path in sources)

    assert variable.used is read, f"set 'used' of {variable.name} to {read} in settings/names.py"


def test_default_of_every_variable_lies_within_its_own_bounds() -> None:
    for variable in KNOWN.values():
        default = variable.default
        if default is None:
            continue
        if variable.choices:
            assert default in variable.choices
        if variable.low is not None and variable.high is not None:
            assert variable.low <= float(default) <= variable.high


def test_settings_start_fast_without_the_slow_libraries() -> None:
    slow = "{'jsonschema', 'structlog', 'rich', 'sqlalchemy', 'claude_agent_sdk', 'asyncio', 'cronsim'}"
    program = f"import sys, claudeops.settings, claudeops.logs; sys.exit(', '.join({slow} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=240)

    assert done.stderr.strip() == ""
