"""Reads the tiers, and the limits that must fit each other: budgets, timeouts, the schedule.

A default yields to a lower limit that the operator set. Two values that the operator set and that contradict each other
are refused. A budget never rises by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final

from claudeops.errors import ConfigurationError, MissingInputError
from claudeops.files import NEVER_WHOLE, is_directory, is_file, is_there
from claudeops.formats.network.ssh_key import OWN_FORM_CHARACTERS, has_own_form
from claudeops.settings.files import load_prompt
from claudeops.settings.model import PER_TIER
from claudeops.settings.reader import VariableReader, fill
from claudeops.settings.sessions import TierSettings
from claudeops.settings.variables import (
    HARNESS_MODELS,
    HARNESSES,
    HIGHEST_TIER,
    PROVIDER_SWITCHES,
    is_text,
    prompt_variable,
    quoted,
)
from claudeops.settings.where import CHAIN_BUDGET, DAILY_BUDGET, budget_within, read_timezone

NAMES: Final = ("observe", "investigate", "remediate")

_CRON: Final = "CLAUDEOPS_CRON"
_INTERVAL: Final = "CLAUDEOPS_INTERVAL"
_JITTER: Final = "CLAUDEOPS_JITTER"

_SAMPLED_FIRES: Final = 32
_SAMPLE_START: Final = datetime(2024, 1, 1, tzinfo=UTC)  # fixed: the result must not depend on the day of the start

_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = re.compile(
    # What the daemon itself sets for a session, what would reveal its own credentials, and what would be loaded into
    # the process of the CLI.
    r"(ANTHROPIC_|CLAUDE|LD_|DYLD_)\w*|HOME|PATH|SHELL|TMPDIR|NODE_OPTIONS|BUN_OPTIONS|BASH_ENV|CODEX_HOME"
)

_PROVIDER: Final = re.compile(
    # Variables of the CLI for Bedrock and Vertex: which provider it calls instead of the Messages API, and how.
    rf"{'|'.join(PROVIDER_SWITCHES)}|CLAUDE_CODE_SKIP_(BEDROCK|VERTEX)_AUTH"
    r"|ANTHROPIC_((BEDROCK|VERTEX)_BASE_URL|VERTEX_PROJECT_ID|SMALL_FAST_MODEL_AWS_REGION)"
)


# --- tiers -------------------------------------------------------------------------------------------


def read_tiers(
    reader: VariableReader, environ: Mapping[str, str], *, budgets: Sequence[float], root: Path
) -> tuple[TierSettings, ...]:
    """Return the tiers from 1 on, each with its budget in US dollars."""
    return tuple(_tier(reader, environ, tier, budget=budget, root=root) for tier, budget in enumerate(budgets, 1))


def idle_tiers(reader: VariableReader, max_tier: int) -> tuple[str, ...]:
    """Return a warning for every variable of a tier above ``max_tier``."""
    return tuple(
        f"{name} is set, but CLAUDEOPS_MAX_TIER is {max_tier}: it has no effect."
        for tier in range(max_tier + 1, HIGHEST_TIER + 1)
        for name in (variable.name.replace("{n}", str(tier)) for variable in PER_TIER)
        if reader.is_set(name)
    )


def _tier(reader: VariableReader, environ: Mapping[str, str], tier: int, *, budget: float, root: Path) -> TierSettings:
    prefix = f"CLAUDEOPS_TIER{tier}_"
    harness = reader.choice(f"{prefix}HARNESS" if reader.is_set(f"{prefix}HARNESS") else "CLAUDEOPS_HARNESS")
    model = _model(reader, f"{prefix}MODEL", harness)
    prompt_path, prompt_text = load_prompt(tier, reader.path(prompt_variable(tier)), root=root)
    return fill(
        TierSettings,
        reader,
        tier=tier,
        number=tier,
        name=NAMES[tier - 1] if tier <= len(NAMES) else f"tier{tier}",
        harness=harness,
        model=model,
        prompt_path=prompt_path,
        prompt_text=prompt_text,
        max_budget_usd=budget,
        allowed_tools=_tools(reader, tier, "ALLOWED_TOOLS"),
        disallowed_tools=_tools(reader, tier, "DISALLOWED_TOOLS"),
        env=MappingProxyType(_environment(reader, environ, f"{prefix}ENV")),
        read=_shown(reader, f"{prefix}READ"),
        home=_home(reader, f"{prefix}HOME"),
    )


def _model(reader: VariableReader, variable: str, harness: str) -> str:
    """Return the tier's model; the defaults in the list of variables are those of the first harness only."""
    if harness == HARNESSES[0] or reader.is_set(variable):
        model, lacking = reader.model(variable), f"tiers above {len(NAMES)} have no default"
    else:
        model, lacking = HARNESS_MODELS.get(harness), f"tiers on {harness} have no default"
    if model is None:
        remedy = "set it, or lower CLAUDEOPS_MAX_TIER" if harness == HARNESSES[0] else "set it to a model of that CLI"
        raise ConfigurationError(f"{variable} is not set, and {lacking}: {remedy}.")
    return model


def _tools(reader: VariableReader, tier: int, name: str) -> tuple[str, ...]:
    """Return a tier's own list, else the shared one; the two are never combined."""
    own = f"CLAUDEOPS_TIER{tier}_{name}"
    return reader.tools(own if reader.is_set(own) else f"CLAUDEOPS_{name}")


def _environment(reader: VariableReader, environ: Mapping[str, str], variable: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for name in reader.names(variable):
        if not _VARIABLE_NAME.fullmatch(name):
            raise ConfigurationError(
                f"{variable} holds {quoted(name)}, which is not the name of a variable: "
                "list names only, separated by commas, and set their values as variables of the daemon."
            )
        if _PROVIDER.fullmatch(name):
            if reader.switch("CLAUDEOPS_METER"):
                raise ConfigurationError(
                    f"{variable} names {name}, which leads the CLI past the meter: set CLAUDEOPS_METER to off, or "
                    "remove it."
                )
        elif _RESERVED.fullmatch(name):
            raise ConfigurationError(
                f"{variable} names {name}, which sessions get from the daemon alone or not at all: remove it."
            )
        if name not in environ:
            raise ConfigurationError(f"{variable} names {name}, which is not set: set {name}, or remove it.")
        if not is_text(environ[name]):
            raise ConfigurationError(f"{variable} names {name}, which holds bytes that are not UTF-8: remove it.")
        given[name] = environ[name]
    return given


def _shown(reader: VariableReader, variable: str) -> tuple[Path, ...]:
    paths = reader.paths(variable)
    for path in paths:
        if not is_there(path):
            raise MissingInputError(f"{variable} leads to {path}, where there is nothing: correct it, or take it away.")
        if path.resolve() in NEVER_WHOLE:
            raise ConfigurationError(
                f"{variable} names {path}, which holds secrets and is never shown whole: name what is needed below it."
            )
        if is_file(path) and has_own_form(_beginning(path)):
            raise ConfigurationError(
                f"{variable} names {path}, a private key of ssh: move it into the directory of "
                f"{variable.removesuffix('READ')}HOME, from where an agent has it."
            )
    return paths


def _beginning(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(OWN_FORM_CHARACTERS).decode(errors="replace")
    except OSError:  # neither can a session of this user read it
        return ""


def _home(reader: VariableReader, variable: str) -> Path | None:
    home = reader.path(variable)
    if home is not None and not is_directory(home):
        raise MissingInputError(f"{variable} leads to {home}, which is not a directory: correct it, or unset it.")
    return home


# --- budgets and timeouts ----------------------------------------------------------------------------


def read_budgets(reader: VariableReader, max_tier: int) -> tuple[float, tuple[float, ...]]:
    """Return the budget of a chain, and those of the tiers 1 to ``max_tier``, in US dollars."""
    daily = reader.number(DAILY_BUDGET)
    chain = budget_within(reader, CHAIN_BUDGET, daily, DAILY_BUDGET)
    names = (f"CLAUDEOPS_TIER{tier}_MAX_BUDGET_USD" for tier in range(1, max_tier + 1))
    return chain, tuple(budget_within(reader, name, chain, CHAIN_BUDGET) for name in names)


# --- schedule ----------------------------------------------------------------------------------------


def check_schedule(reader: VariableReader) -> str:
    """Return the time zone of the schedule, once interval, cron and jitter are found to fit each other."""
    timezone, cron = read_timezone(reader), reader.text(_CRON)
    interval, jitter = reader.number(_INTERVAL), reader.number(_JITTER)
    if cron is not None and reader.is_set(_INTERVAL):
        raise ConfigurationError(f"Both {_CRON} and {_INTERVAL} are set: unset one of them.")
    gap = interval if cron is None else _shortest_gap(cron)
    if jitter >= gap:
        period = f"{_INTERVAL}, which is {gap:g} s" if cron is None else f"the {gap:g} s between two times of {_CRON}"
        raise ConfigurationError(f"{_JITTER} is {jitter:g} s, not below {period}: lower the jitter.")
    return timezone


def idle_schedule(reader: VariableReader, file: Path | None) -> tuple[str, ...]:
    """Return a warning for every variable of a schedule that a file of schedules overrides."""
    return tuple(
        f"{name} is set, but the schedules come from {file}: it has no effect."
        for name in (_INTERVAL, _CRON, _JITTER)
        if file is not None and reader.is_set(name)
    )


def _shortest_gap(cron: str) -> float:
    """Return the shortest gap, in seconds, between the next times of a crontab(5) expression."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - needed by few installations

    refusal = ConfigurationError(
        f"{_CRON} is {quoted(cron)}, which is not five crontab(5) fields that ever come due: "
        "set minute, hour, day, month and weekday, such as '*/30 * * * *'."
    )
    if len(cron.split()) != 5:  # noqa: PLR2004 - cronsim takes a sixth field, for seconds; crontab(5) has five
        raise refusal
    try:
        # StopIteration: it never comes due. AssertionError, ValueError: how cronsim 2.8 reports some odd fields.
        fires = CronSim(cron, _SAMPLE_START)
        times = [next(fires) for _ in range(_SAMPLED_FIRES)]
    except (CronSimError, StopIteration, AssertionError, ValueError):
        raise refusal from None
    return min((later - sooner).total_seconds() for sooner, later in pairwise(times))
