"""The rungs of the ladder."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from claudeops.errors import ConfigurationError, MissingInputError
from claudeops.settings.environ import is_text
from claudeops.settings.files import load_prompt
from claudeops.settings.model import TierSettings
from claudeops.settings.names import (
    HARNESS_MODELS,
    HARNESSES,
    HIGHEST_TIER,
    PER_TIER,
    PROVIDER_SWITCHES,
    prompt_variable,
)
from claudeops.settings.reader import shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from claudeops.settings.limits import Budgets
    from claudeops.settings.reader import Reader

NAMES: Final = ("observe", "investigate", "remediate")

_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = re.compile(
    # What the daemon itself sets for a session, what would give away its own credentials, and what would be
    # loaded into the CLI's process.
    r"(ANTHROPIC_|CLAUDE|LD_|DYLD_)\w*|HOME|PATH|SHELL|TMPDIR|NODE_OPTIONS|BUN_OPTIONS|BASH_ENV|CODEX_HOME"
)

_PROVIDER: Final = re.compile(
    # Of the CLI, for Bedrock and Vertex: who is asked for the model in the place of the Messages API, and how.
    rf"{'|'.join(PROVIDER_SWITCHES)}|CLAUDE_CODE_SKIP_(BEDROCK|VERTEX)_AUTH"
    r"|ANTHROPIC_((BEDROCK|VERTEX)_BASE_URL|VERTEX_PROJECT_ID|SMALL_FAST_MODEL_AWS_REGION)"
)


def read_tiers(
    reader: Reader, environ: Mapping[str, str], *, max_tier: int, budgets: Budgets, root: Path
) -> tuple[TierSettings, ...]:
    """Return the tiers from 1 to ``max_tier``."""
    tiers = range(1, max_tier + 1)
    return tuple(_tier(reader, environ, tier, budget=budgets.tiers[tier - 1], root=root) for tier in tiers)


def idle_tiers(reader: Reader, max_tier: int) -> tuple[str, ...]:
    """Return a warning for every variable of a tier above ``max_tier``."""
    return tuple(
        f"{name} is set, but CLAUDEOPS_MAX_TIER is {max_tier}: it has no effect."
        for tier in range(max_tier + 1, HIGHEST_TIER + 1)
        for name in (variable.name.replace("{n}", str(tier)) for variable in PER_TIER)
        if reader.is_set(name)
    )


def _tier(reader: Reader, environ: Mapping[str, str], tier: int, *, budget: float, root: Path) -> TierSettings:
    prefix = f"CLAUDEOPS_TIER{tier}_"
    harness = reader.choice(f"{prefix}HARNESS" if reader.is_set(f"{prefix}HARNESS") else "CLAUDEOPS_HARNESS")
    model = _model(reader, f"{prefix}MODEL", harness)
    prompt_path, prompt_text = load_prompt(tier, reader.path(prompt_variable(tier)), root=root)
    return TierSettings(
        number=tier,
        name=NAMES[tier - 1] if tier <= len(NAMES) else f"tier{tier}",
        harness=harness,
        model=model,
        prompt_path=prompt_path,
        prompt_text=prompt_text,
        max_turns=reader.whole(f"{prefix}MAX_TURNS"),
        max_budget_usd=budget,
        allowed_tools=_tools(reader, tier, "ALLOWED_TOOLS"),
        disallowed_tools=_tools(reader, tier, "DISALLOWED_TOOLS"),
        env=MappingProxyType(_handed(reader, environ, f"{prefix}ENV")),
        home=_home(reader, f"{prefix}HOME"),
    )


def _model(reader: Reader, variable: str, harness: str) -> str:
    """Return the tier's model; the names in the list of variables are those of the first harness only."""
    if harness == HARNESSES[0] or reader.is_set(variable):
        model, lacking = reader.model(variable), f"tiers above {len(NAMES)} have no default"
    else:
        model, lacking = HARNESS_MODELS.get(harness), f"tiers on {harness} have no default"
    if model is None:
        remedy = "set it, or lower CLAUDEOPS_MAX_TIER" if harness == HARNESSES[0] else "set it to a model of that CLI"
        raise ConfigurationError(f"{variable} is not set, and {lacking}: {remedy}.")
    return model


def _tools(reader: Reader, tier: int, name: str) -> tuple[str, ...]:
    """Return a tier's own list, else the shared one: the two have never been added up."""
    own = f"CLAUDEOPS_TIER{tier}_{name}"
    return reader.tools(own if reader.is_set(own) else f"CLAUDEOPS_{name}")


def _handed(reader: Reader, environ: Mapping[str, str], variable: str) -> dict[str, str]:
    handed: dict[str, str] = {}
    for name in reader.names(variable):
        if not _VARIABLE_NAME.fullmatch(name):
            raise ConfigurationError(
                f"{variable} holds {shown(name)}, which is not the name of a variable: "
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
        handed[name] = environ[name]
    return handed


def _home(reader: Reader, variable: str) -> Path | None:
    home = reader.path(variable)
    if home is not None and not home.is_dir():
        raise MissingInputError(f"{variable} leads to {home}, which is not a directory: correct it, or unset it.")
    return home
