"""What quick commands read, declared apart from the other settings: where things are, what a day may cost, which files.

Raises `ConfigurationError` like all of the settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from claudeops.errors import ConfigurationError
from claudeops.files import is_directory
from claudeops.settings.reader import VariableReader, by_default, read_address_of_database, read_database_url
from claudeops.settings.variables import (
    HIGHEST_TIER,
    Hides,
    ValueKind,
    Variable,
    choice,
    configuration,
    declared_by,
    derived,
    directory,
    identifier,
    money,
    quoted,
    secret,
    setting,
    settings_group,
    text,
    whole,
)

STATE: Final = "CLAUDEOPS_STATE_DIR"
RESULTS: Final = "CLAUDEOPS_RESULTS_DIR"
DAILY_BUDGET: Final = "CLAUDEOPS_DAILY_BUDGET_USD"
CHAIN_BUDGET: Final = "CLAUDEOPS_CHAIN_BUDGET_USD"
DATABASE: Final = "CLAUDEOPS_DATABASE_URL"
TARGET_DATABASE: Final = "CLAUDEOPS_TARGET_DATABASE_URL"
NODE: Final = "CLAUDEOPS_NODE"
DISPATCHER: Final = "CLAUDEOPS_DISPATCHER"
PROCRASTINATE: Final = "procrastinate"
DEFAULT_SITE: Final = "main"

_ROOT: Final = Path("/")
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9._:@-]+")
_NAME_CHARACTERS: Final = 63


@settings_group
class PlaceSettings:
    """Where things are; all paths are absolute."""

    state_dir: Path = derived(directory(STATE, "database and daemon state", "`/state`, else `./.claudeops/state`"))
    results_dir: Path = derived(directory(RESULTS, "session logs", "`/results`, else `./.claudeops/results`"))
    repos_dir: Path = derived(
        directory("CLAUDEOPS_REPOS_DIR", "what is watched", "`/repos`, else `./.claudeops/repos`")
    )
    database_url: str = derived(  # ``sqlite:///<absolute path>`` or ``postgresql+psycopg://…``
        secret(
            DATABASE,
            "`sqlite:///` or `postgresql://` URL",
            hides=Hides.IN_URL,
            note="`sqlite:///<state directory>/claudeops.db`",
        )
    )
    target_database_url: str | None = derived(  # as above; None: not set
        secret(
            TARGET_DATABASE,
            "where `claudeops copy-database` copies the database to: `postgresql://` URL",
            hides=Hides.IN_URL,
        )
    )


@settings_group
class NodeSettings:
    """Which of the machines this is that work on one database."""

    name: str = derived(
        identifier(NODE, "name of this machine; events, logs and `claudeops list-nodes` say it", note="the host's name")
    )
    site: str = setting(
        Variable(
            name="CLAUDEOPS_SITE",
            kind=ValueKind.TEXT,
            defaults=(DEFAULT_SITE,),
            meaning="where this machine is; machines of one site reach the same services, and each site has other "
            "delays out of the jitter",
        )
    )
    dispatcher: str = setting(
        choice(
            DISPATCHER,
            f"local {PROCRASTINATE}",
            "`local`: one daemon alone works on the database; `procrastinate`: any number of daemons share it, on "
            "PostgreSQL",
        )
    )

    @property
    def jitter_site(self) -> str:
        """The site in what delays are made of; that of an installation without one is none."""
        return "" if self.site == DEFAULT_SITE else self.site

    @property
    def in_fleet(self) -> bool:
        """Whether other daemons may work on the same database."""
        return self.dispatcher == PROCRASTINATE


@settings_group
class BudgetSettings:
    """Money, in US dollars; no tier's is above the chain's, nor the chain's above the day's."""

    chain_usd: float = derived(
        money(CHAIN_BUDGET, "15", "a session and everything it led to; at most the daily budget")
    )
    daily_usd: float = setting(money(DAILY_BUDGET, "25", "everything within a day of `CLAUDEOPS_TIMEZONE`"))


POLICY: Final = configuration("CLAUDEOPS_POLICY_PATH", "TOML file with the rules for tool calls", "the one that ships")
ALERTS: Final = configuration("CLAUDEOPS_ALERTS_PATH", "TOML file of alerts", "`/app/config/alerts.toml`, if it exists")
MAX_TIER: Final = whole(
    "CLAUDEOPS_MAX_TIER", "3", 1, HIGHEST_TIER, "highest tier that may run; how many tiers there are"
)
TIMEZONE: Final = text(
    "CLAUDEOPS_TIMEZONE",
    "IANA time zone in which `CLAUDEOPS_CRON` is read, and at whose midnight a day's budget begins anew",
    "UTC",
)

_PLACES: Final = {variable.name: variable for _, variable in declared_by(PlaceSettings)}
_NODE: Final = {variable.name: variable for _, variable in declared_by(NodeSettings)}
_MONEY: Final = {variable.name: variable for variable in (*(each for _, each in declared_by(BudgetSettings)), TIMEZONE)}


def state_dir(environ: Mapping[str, str], *, cwd: Path, root: Path = _ROOT) -> Path:
    """Return the state directory as the settings have it."""
    return _state_dir(VariableReader(environ, _PLACES, cwd=cwd), cwd=cwd, root=root)


def database_url(environ: Mapping[str, str], *, cwd: Path, root: Path = _ROOT) -> str:
    """Return the address of the database as the settings have it."""
    reader = VariableReader(environ, _PLACES, cwd=cwd)
    return read_database_url(reader, state_dir=_state_dir(reader, cwd=cwd, root=root), cwd=cwd)


def target_database_url(environ: Mapping[str, str], *, cwd: Path) -> str | None:
    """Return the address of the database to copy to; ``None``: it is not set."""
    return read_address_of_database(VariableReader(environ, _PLACES, cwd=cwd), TARGET_DATABASE, cwd=cwd)


def shares_database(environ: Mapping[str, str], *, cwd: Path, url: str) -> bool:
    """Return whether other daemons may work on the database at ``url`` as well; raises for a SQLite file."""
    shares = VariableReader(environ, _NODE, cwd=cwd).choice(DISPATCHER) == PROCRASTINATE
    if shares:
        refuse_shared_file(url)
    return shares


def refuse_shared_file(url: str) -> None:
    """Raise `ConfigurationError` where the database that daemons are to share is a SQLite file."""
    if url.startswith("sqlite"):
        raise ConfigurationError(
            f"{DISPATCHER} is {PROCRASTINATE}, by which several daemons share a database, and {DATABASE} is that of a "
            f"SQLite file, which belongs to one: set a postgresql:// address there, or unset {DISPATCHER}."
        )


def results_dir(environ: Mapping[str, str], *, cwd: Path, root: Path = _ROOT) -> Path:
    """Return the directory of the sessions' logs as the settings have it."""
    reader = VariableReader(environ, _PLACES, cwd=cwd)
    return find_directory(reader, RESULTS, "results", os.W_OK | os.X_OK, cwd=cwd, root=root, may=os.access)[0]


def node_name(reader: VariableReader, *, host: str | None = None) -> str:
    """Return the name of this machine: as the operator has it, else the host's, as far as it is a name."""
    named = reader.identifier(NODE)
    if named is not None:
        return named
    plain = _NO_NAME.sub("-", os.uname().nodename if host is None else host).lstrip("._:@-")[:_NAME_CHARACTERS]
    return plain or "node"


def day_budget(environ: Mapping[str, str], *, cwd: Path) -> tuple[float, str]:
    """Return what all sessions of a day may spend, in US dollars, and the time zone of the day."""
    reader = VariableReader(environ, _MONEY, cwd=cwd)
    return reader.number(DAILY_BUDGET), reader.text(TIMEZONE.name) or "UTC"


def budgets(environ: Mapping[str, str], *, cwd: Path) -> tuple[float, float, str]:
    """Return what a chain and all sessions of a day may spend, in US dollars, and the time zone of the day."""
    reader = VariableReader(environ, _MONEY, cwd=cwd)
    daily = reader.number(DAILY_BUDGET)
    return budget_within(reader, CHAIN_BUDGET, daily, DAILY_BUDGET), daily, read_timezone(reader)


def budget_within(reader: VariableReader, name: str, ceiling: float, ceiling_name: str) -> float:
    """Return a budget in US dollars; a default yields to a lower ceiling, a value that was set does not."""
    value = reader.number(name)
    if value <= ceiling:
        return value
    if not reader.is_set(name):
        return ceiling
    raise ConfigurationError(
        f"{name} is {value:g} USD, above {ceiling_name}, which is {ceiling:g} USD"
        f"{by_default(reader, ceiling_name)}: lower the first, or raise the second."
    )


def read_timezone(reader: VariableReader) -> str:
    """Return the name of the time zone; raises `ConfigurationError` for one that is not known."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - the quickest commands need no zone

    name = reader.text(TIMEZONE.name) or "UTC"
    try:
        ZoneInfo(name)
    # ValueError: a path instead of a name; OSError: the name of a directory of zones.
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigurationError(
            f"CLAUDEOPS_TIMEZONE is {quoted(name)}, which is not an IANA time zone: "
            "set one such as Europe/Berlin or UTC."
        ) from None
    return name


def find_directory(
    reader: VariableReader,
    variable: str,
    name: str,
    access: int,
    *,
    cwd: Path,
    root: Path,
    may: Callable[[Path, int], bool],
) -> tuple[Path, Path]:
    """Return where a directory is, and its usual place."""
    usual = root / name
    named = reader.path(variable)
    if named is not None:
        return named, usual
    return (usual if is_directory(usual) and may(usual, access) else cwd / ".claudeops" / name), usual


def _state_dir(reader: VariableReader, *, cwd: Path, root: Path) -> Path:
    return find_directory(reader, STATE, "state", os.W_OK | os.X_OK, cwd=cwd, root=root, may=os.access)[0]
