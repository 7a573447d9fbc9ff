"""Loads the operator's settings: one frozen `Settings` from the environment, and the policy.

The environment is passed in as a mapping. Loading reads the file system (directories, secret files, schema, prompts),
but starts nothing and writes nothing. ``docs/reference/settings.md`` explains each variable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from claudeops.domain.schedules.plan import SchedulePlan
from claudeops.errors import ConfigurationError, ErrorKind
from claudeops.files import is_there
from claudeops.settings.alerts import VARIABLE as ALERTS_VARIABLE
from claudeops.settings.alerts import alerts_file, load_alerts, signing_secrets
from claudeops.settings.environ import (
    PROXIES,
    check_names,
    child_path,
    in_environment,
    in_notice_url,
    in_url,
    inherited,
    known_secrets,
    proxy_warnings,
    watchdog_seconds,
    without_services,
)
from claudeops.settings.files import load_schema
from claudeops.settings.headers import load_secret_headers
from claudeops.settings.ladder import check_schedule, idle_schedule, idle_tiers, read_budgets, read_tiers
from claudeops.settings.model import (
    KNOWN,
    AlertSettings,
    EnvironmentSettings,
    ListenerSettings,
    Loaded,
    LogSettings,
    McpSettings,
    NoticeSettings,
    PlannedSettings,
    ReportSettings,
    ServiceManagerSettings,
    Settings,
    UpkeepSettings,
)
from claudeops.settings.notify import Targets, read_digest_cron, read_notify
from claudeops.settings.oidc import read_oidc
from claudeops.settings.places import check_fleet, find_cli, idle_programs, read_places, read_probes_file
from claudeops.settings.policy import POLICY_VARIABLE, load_policy
from claudeops.settings.reader import VariableReader, fill, read_public_urls
from claudeops.settings.schedules import VARIABLE as SCHEDULES_VARIABLE
from claudeops.settings.schedules import load_schedules, schedules_file
from claudeops.settings.servers import (
    idle_servers,
    read_mcp_servers,
    read_trusted_servers,
    referred_secrets,
    secrets_in,
)
from claudeops.settings.sessions import (
    AccessSettings,
    ApprovalSettings,
    BoundSettings,
    CellSettings,
    CompletionSettings,
    LadderSettings,
    ScheduleSettings,
    SessionSettings,
    TierSettings,
    TimeoutSettings,
)
from claudeops.settings.variables import BROWSER_CREDENTIAL_PREFIX, GATED, HARNESSES, Hides, is_text, quoted
from claudeops.settings.where import BudgetSettings, NodeSettings, node_name

_ROOT: Final = Path("/")
_KEY: Final = "ANTHROPIC_API_KEY"
_TOKEN: Final = "CLAUDE_CODE_OAUTH_TOKEN"  # noqa: S105 - the name of a variable
_SELF_TEST: Final = "CLAUDEOPS_CLI_SELF_TEST"
_FOUND: Final[Mapping[Hides, Callable[[str, str], Iterable[tuple[str, str]]]]] = {
    Hides.ALL: lambda name, value: [(name, value)],
    Hides.IN_URL: in_url,
    Hides.NOTICE: in_notice_url,
}
"""What finds the secrets in the value of a variable."""


# Longer than forty lines, but flat: one entry for each group, in the order of `Settings`.
def load_settings(environ: Mapping[str, str], *, cwd: Path, root: Path = _ROOT) -> Loaded:
    """Return the settings that ``environ`` describes.

    Relative paths start at ``cwd``, which is absolute; ``root`` is where ``/state``, ``/results``, ``/repos`` and
    ``/app`` are expected. Raises `ConfigurationError` for the first fault: one sentence with the variable, its value
    unless that may be a secret, and the remedy.
    """
    environ = without_services(environ)
    warnings = list(check_names(environ))
    reader = VariableReader(environ, KNOWN, cwd=cwd)
    _check_credentials(reader)
    max_tier = reader.whole("CLAUDEOPS_MAX_TIER")
    warnings += idle_tiers(reader, max_tier)
    timezone = check_schedule(reader)
    node = fill(NodeSettings, reader, name=node_name(reader))
    chain_usd, tier_budgets = read_budgets(reader, max_tier)
    places, unusual = read_places(reader, cwd=cwd, root=root)
    check_fleet(node, places, reader)
    warnings += unusual
    if not reader.switch(_SELF_TEST):
        warnings.append(f"{_SELF_TEST} is false: nothing checks that the gate holds with the claude CLI in use.")
    schedules_path = schedules_file(reader.path(SCHEDULES_VARIABLE), root=root)
    warnings += idle_schedule(reader, schedules_path)
    tiers = read_tiers(reader, environ, budgets=tier_budgets, root=root)
    schema_path, schema_text = load_schema(reader.path("CLAUDEOPS_SCHEMA_PATH"), root=root)
    path = child_path(environ)
    policy_path = reader.path(POLICY_VARIABLE)
    probes = read_probes_file(reader, environ, root=root)
    alerts_path = alerts_file(reader.path(ALERTS_VARIABLE), root=root)
    alerts = load_alerts(alerts_path, highest_tier=max_tier)
    alerts_env = signing_secrets(alerts, environ)
    used = frozenset(tier.harness for tier in tiers)
    sessions = _sessions(reader, used, path=path, cwd=cwd)
    warnings += idle_programs(reader, used)
    passed_on = inherited(environ)
    warnings += proxy_warnings(environ)
    own_servers = read_mcp_servers(reader, environ)
    trusted_servers = read_trusted_servers(reader, repos_dir=places.repos_dir, own=own_servers or ())
    warnings += idle_servers(reader, repos_dir=places.repos_dir)
    headers = load_secret_headers(reader, environ)
    notify = read_notify(reader, environ, timezone=timezone, root=root)
    secrets, short = known_secrets(
        (
            *_secrets(reader, environ, tiers, passed_on),
            *secrets_in({**(own_servers or {}), **trusted_servers}),
            *in_environment("named in the probes file", probes.env),
            *notify.secrets(),
            *headers.secrets(),
            *in_environment("named in the file of alerts", alerts_env),
        )
    )
    warnings += short
    settings = Settings(
        access=fill(AccessSettings, reader),
        node=node,
        schedule=fill(
            ScheduleSettings,
            reader,
            timezone=timezone,
            path=schedules_path,
            plans=_schedules(schedules_path, timezone, max_tier=max_tier, site=node.jitter_site),
        ),
        ladder=fill(LadderSettings, reader),
        tiers=tiers,
        sessions=sessions,
        timeouts=fill(TimeoutSettings, reader),
        approvals=fill(ApprovalSettings, reader),
        bounds=fill(BoundSettings, reader),
        completion=fill(CompletionSettings, reader),
        cell=fill(CellSettings, reader),
        policy_path=policy_path,
        policy=load_policy(policy_path),
        probes=probes,
        alerts=AlertSettings(path=alerts_path, rules=alerts, env=MappingProxyType(dict(alerts_env))),
        headers=headers.headers,
        mcp=McpSettings(config=own_servers, trusted_repos=trusted_servers),
        notices=_notices(notify, read_digest_cron(reader)),
        budgets=fill(BudgetSettings, reader, chain_usd=chain_usd),
        places=places,
        report=ReportSettings(schema_path=schema_path, schema_text=schema_text),
        upkeep=fill(UpkeepSettings, reader),
        listener=_listener(reader),
        log=fill(LogSettings, reader),
        planned=fill(PlannedSettings, reader),
        environment=EnvironmentSettings(
            path=path, inherited=MappingProxyType(passed_on), proxies=MappingProxyType(_proxies(environ))
        ),
        service_manager=ServiceManagerSettings(
            socket=environ.get("NOTIFY_SOCKET") or None, watchdog_seconds=watchdog_seconds(environ, pid=os.getpid())
        ),
        secrets=secrets,
        private_files=_private_files(
            reader,
            (
                *((probes.path,) if is_there(probes.path) else ()),
                *(path for path in (schedules_path, alerts_path) if path),
                *notify.files,
                *headers.files,
            ),
        ),
    )
    return Loaded(settings=settings, warnings=tuple(warnings))


def require_credentials(settings: Settings) -> None:
    """Raise `ConfigurationError` unless the settings give access to the model API.

    Not checked when the settings are loaded, because a rehearsal needs no access. An address alone is enough, because a
    gateway may hold the key. Nothing is required for other CLIs than ``claude`` and for other providers than the
    Messages API: their credentials are given to their tiers.
    """
    if not any(tier.asks_messages_api for tier in settings.tiers):
        return
    if not (settings.access.api_key or settings.access.oauth_token or settings.access.base_url):
        raise ConfigurationError(
            f"There is no access to the model API: set {_KEY} or {_TOKEN} (or {_KEY}_FILE or {_TOKEN}_FILE), or "
            "ANTHROPIC_BASE_URL for a gateway that needs no key.",
            kind=ErrorKind.AUTH,
            operation="resolve_credentials",
            target=_KEY,
            hint=f"Set {_KEY} or {_TOKEN}; `claudeops doctor` tries it.",
        )


def _check_credentials(reader: VariableReader) -> None:
    key, token = reader.token(_KEY), reader.token(_TOKEN)
    if key is not None and token is not None:
        # The CLI would silently prefer the key, and an operator who meant the subscription would pay by the token.
        raise ConfigurationError(
            f"Both {_KEY} and {_TOKEN} are set, which are two accounts: unset one of them.",
            kind=ErrorKind.AUTH,
            target=_KEY,
            hint="Unset one of them.",
        )


def _sessions(reader: VariableReader, used: frozenset[str], *, path: str, cwd: Path) -> SessionSettings:
    ungated = _ungated(reader)
    # A CLI that is not allowed to run is not looked for: the operator should first learn that it is not allowed.
    needed = sorted(used & {*GATED, *ungated})
    binaries = {name: find_cli(name, reader, path=path, cwd=cwd) for name in needed}
    return fill(
        SessionSettings,
        reader,
        claude_bin=binaries.get("claude"),
        codex_bin=binaries.get("codex"),
        caliban_bin=binaries.get("caliban"),
        allow_ungated=ungated,
    )


def _notices(notify: Targets, digest_cron: str | None) -> NoticeSettings:
    return NoticeSettings(
        addresses=MappingProxyType(dict(notify.addresses)),
        path=notify.path,
        env=MappingProxyType(dict(notify.environment)),
        targets=notify.targets,
        chats=MappingProxyType(dict(notify.chats)),
        approvers=notify.approvers,
        digest_cron=digest_cron,
    )


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in PROXIES if environ.get(name)}


def _listener(reader: VariableReader) -> ListenerSettings:
    public_urls = read_public_urls(reader, "CLAUDEOPS_PUBLIC_URL")
    return fill(
        ListenerSettings,
        reader,
        public_url=next(iter(public_urls), None),
        public_hosts=tuple(urlsplit(url).hostname or "" for url in public_urls),
        tls_hosts=frozenset(urlsplit(url).netloc.lower() for url in public_urls if url.startswith("https:")),
        oidc=read_oidc(reader, public_urls),
    )


def _private_files(reader: VariableReader, found: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files that no session may see: those that variables name, and those found in their usual places."""
    return tuple(dict.fromkeys((*reader.private_files(), *found)))


def _schedules(path: Path | None, timezone: str, *, max_tier: int, site: str) -> tuple[SchedulePlan, ...]:
    if path is None:
        return ()
    return load_schedules(path, highest_tier=max_tier, timezone=timezone, site=site)


def _ungated(reader: VariableReader) -> tuple[str, ...]:
    names = reader.names("CLAUDEOPS_ALLOW_UNGATED")
    for name in names:
        if name not in HARNESSES:
            raise ConfigurationError(
                f"CLAUDEOPS_ALLOW_UNGATED holds {quoted(name)}, which is not a harness: "
                f"list some of {', '.join(HARNESSES)}, separated by commas, or unset it."
            )
    return names


def _secrets(
    reader: VariableReader, environ: Mapping[str, str], tiers: tuple[TierSettings, ...], passed_on: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    for name, variable in KNOWN.items():
        if (find := _FOUND.get(variable.hides)) is not None:
            yield from find(name, reader.secret(name) or "")
    for name, value in environ.items():
        if name.startswith(BROWSER_CREDENTIAL_PREFIX) and is_text(value):
            yield name, value
    yield from chain.from_iterable(in_environment("handed to sessions", tier.env) for tier in tiers)
    yield from in_environment("passed on to sessions", passed_on)
    yield from in_environment("of the daemon", {name: environ[name] for name in PROXIES if name in environ})
    yield from referred_secrets(reader, environ)
