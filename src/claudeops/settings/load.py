"""Loads the operator's settings: one frozen `Settings` from the environment, and the policy.

The environment is passed in as a mapping. Loading reads the file system (directories, secret files, schema, prompts),
but starts nothing and writes nothing. ``docs/reference/settings.md`` explains each variable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from claudeops.domain.schedules.plan import Plan
from claudeops.errors import ConfigurationError, ErrorKind
from claudeops.policy.tiers import Document, Policy, PolicyFault, parse_policy, read_document
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
    is_text,
    known_secrets,
    proxy_warnings,
    quoted,
    watchdog_seconds,
    without_services,
)
from claudeops.settings.files import (
    default_policy_parts,
    default_policy_path,
    load_schema,
    policy_fragments,
    read_text,
)
from claudeops.settings.headers import load_secret_headers
from claudeops.settings.ladder import (
    Schedule,
    idle_schedule,
    idle_tiers,
    read_budgets,
    read_schedule,
    read_tiers,
    read_timeout,
)
from claudeops.settings.model import Loaded, Settings, TierSettings
from claudeops.settings.names import BROWSER_CREDENTIAL_PREFIX, GATED, HARNESSES
from claudeops.settings.notify import read_digest_cron, read_notify
from claudeops.settings.oidc import SECRET as OIDC_SECRET
from claudeops.settings.oidc import read_oidc
from claudeops.settings.places import find_cli, idle_programs, read_places, read_probes_file
from claudeops.settings.reader import (
    Reader,
    read_address,
    read_database_url,
    read_http_url,
    read_long_token,
    read_networks,
    read_public_urls,
    read_tier_list,
)
from claudeops.settings.schedules import VARIABLE as SCHEDULES_VARIABLE
from claudeops.settings.schedules import load_schedules, schedules_file
from claudeops.settings.servers import (
    idle_servers,
    read_mcp_servers,
    read_trusted_servers,
    referred_secrets,
    secrets_in,
)

_PARTS: Final = default_policy_parts()


POLICY_VARIABLE: Final = "CLAUDEOPS_POLICY_PATH"

_ROOT: Final = Path("/")
_KEY: Final = "ANTHROPIC_API_KEY"
_TOKEN: Final = "CLAUDE_CODE_OAUTH_TOKEN"  # noqa: S105 - the name of a variable
_SELF_TEST: Final = "CLAUDEOPS_CLI_SELF_TEST"
_MOST_BYTES: Final = 4 * 1024 * 1024


# Longer than forty lines, but flat: one line for each field, in the order of `Settings`.
def load_settings(environ: Mapping[str, str], *, cwd: Path, root: Path = _ROOT) -> Loaded:
    """Return the settings that ``environ`` describes.

    Relative paths start at ``cwd``, which is absolute; ``root`` is where ``/state``, ``/results``, ``/repos`` and
    ``/app`` are expected. Raises `ConfigurationError` for the first fault: one sentence with the variable, its value
    unless that may be a secret, and the remedy.
    """
    environ = without_services(environ)
    warnings = list(check_names(environ))
    reader = Reader(environ, cwd=cwd)
    key, token = _credentials(reader)
    max_tier = reader.whole("CLAUDEOPS_MAX_TIER")
    warnings += idle_tiers(reader, max_tier)
    schedule, budgets = read_schedule(reader), read_budgets(reader, max_tier)
    places = read_places(reader, cwd=cwd, root=root)
    warnings += places.warnings
    self_test = reader.switch(_SELF_TEST)
    if not self_test:
        warnings.append(f"{_SELF_TEST} is false: nothing checks that the gate holds with the claude CLI in use.")
    schedules_path = schedules_file(reader.path(SCHEDULES_VARIABLE), root=root)
    warnings += idle_schedule(reader, schedules_path)
    tiers = read_tiers(reader, environ, max_tier=max_tier, budgets=budgets, root=root)
    schema_path, schema_text = load_schema(reader.path("CLAUDEOPS_SCHEMA_PATH"), root=root)
    path = child_path(environ)
    policy_path = reader.path("CLAUDEOPS_POLICY_PATH")
    probes = read_probes_file(reader, environ, root=root)
    alerts_path = alerts_file(reader.path(ALERTS_VARIABLE), root=root)
    alerts = load_alerts(alerts_path, highest_tier=max_tier)
    alerts_env = signing_secrets(alerts, environ)
    used, ungated = {tier.harness for tier in tiers}, _ungated(reader)
    # A CLI that is not allowed to run is not looked for: the operator should first learn that it is not allowed.
    needed = sorted(used & {*GATED, *ungated})
    binaries = {name: find_cli(name, reader, path=path, cwd=cwd) for name in needed}
    warnings += idle_programs(reader, used)
    passed_on = inherited(environ)
    warnings += proxy_warnings(environ)
    own_servers = read_mcp_servers(reader, environ)
    trusted_servers = read_trusted_servers(reader, repos_dir=places.repos, own=own_servers or ())
    warnings += idle_servers(reader, repos_dir=places.repos)
    headers = load_secret_headers(reader, environ)
    notify = read_notify(reader, environ, timezone=schedule.timezone, root=root)
    secrets, short = known_secrets(
        (
            *_secrets(reader, environ, tiers, passed_on),
            *secrets_in({**(own_servers or {}), **trusted_servers}),
            *in_environment("named in the probes file", probes.environment),
            *notify.secrets(),
            *headers.secrets(),
            *in_environment("named in the file of alerts", alerts_env),
        )
    )
    warnings += short
    public_urls = read_public_urls(reader, "CLAUDEOPS_PUBLIC_URL")
    settings = Settings(
        anthropic_api_key=key,
        oauth_token=token,
        anthropic_base_url=read_http_url(reader, "ANTHROPIC_BASE_URL"),
        interval_seconds=schedule.interval,
        cron=schedule.cron,
        timezone=schedule.timezone,
        jitter_seconds=schedule.jitter,
        site=reader.text("CLAUDEOPS_SITE"),
        schedules_path=schedules_path,
        file_schedules=_schedules(schedules_path, schedule, max_tier=max_tier, site=reader.text("CLAUDEOPS_SITE")),
        follow_up_delay_seconds=reader.number("CLAUDEOPS_FOLLOW_UP_DELAY"),
        max_tier=max_tier,
        tiers=tiers,
        dry_run=reader.switch("CLAUDEOPS_DRY_RUN"),
        tier0=reader.choice("CLAUDEOPS_TIER0"),
        tier0_max_age_seconds=reader.number("CLAUDEOPS_TIER0_MAX_AGE"),
        harness=reader.choice("CLAUDEOPS_HARNESS"),
        claude_bin=binaries.get("claude"),
        codex_bin=binaries.get("codex"),
        caliban_bin=binaries.get("caliban"),
        allow_ungated=ungated,
        max_concurrent_sessions=reader.whole("CLAUDEOPS_MAX_CONCURRENT_SESSIONS"),
        session_timeout_seconds=reader.number("CLAUDEOPS_SESSION_TIMEOUT"),
        startup_timeout_seconds=read_timeout(reader, "CLAUDEOPS_STARTUP_TIMEOUT"),
        silence_timeout_seconds=read_timeout(reader, "CLAUDEOPS_SILENCE_TIMEOUT"),
        result_grace_seconds=reader.number("CLAUDEOPS_RESULT_GRACE"),
        stop_grace_seconds=reader.number("CLAUDEOPS_STOP_GRACE"),
        drain_timeout_seconds=reader.number("CLAUDEOPS_DRAIN_TIMEOUT"),
        approval_timeout_seconds=reader.number("CLAUDEOPS_APPROVAL_TIMEOUT"),
        approval_passkey=read_tier_list(reader, "CLAUDEOPS_APPROVAL_PASSKEY"),
        session_memory_mb=reader.whole("CLAUDEOPS_SESSION_MEMORY_MB"),
        session_processes=reader.whole("CLAUDEOPS_SESSION_PROCESSES"),
        session_file_mb=reader.whole("CLAUDEOPS_SESSION_FILE_MB"),
        session_disk_mb=reader.whole("CLAUDEOPS_SESSION_DISK_MB"),
        legacy_markers=reader.switch("CLAUDEOPS_LEGACY_MARKERS"),
        hang_heuristics=reader.switch("CLAUDEOPS_HANG_HEURISTICS"),
        background_tasks_off=reader.switch("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"),
        repair_turn=reader.switch("CLAUDEOPS_REPAIR_TURN"),
        cli_self_test=self_test,
        isolation=reader.choice("CLAUDEOPS_ISOLATION"),
        cell_network=reader.choice("CLAUDEOPS_CELL_NETWORK"),
        meter=reader.switch("CLAUDEOPS_METER"),
        policy_path=policy_path,
        policy=load_policy(policy_path),
        alerts_path=alerts_path,
        alerts=alerts,
        alerts_env=MappingProxyType(dict(alerts_env)),
        probes_path=probes.path,
        probes_named=probes.named,
        probes_env=MappingProxyType(probes.environment),
        headers=headers.headers,
        mcp_config=own_servers,
        trusted_repos=trusted_servers,
        path=path,
        inherited_env=MappingProxyType(passed_on),
        proxies=MappingProxyType({name: environ[name] for name in PROXIES if environ.get(name)}),
        notify_path=notify.path,
        notify_env=MappingProxyType(dict(notify.environment)),
        targets=notify.targets,
        addresses=MappingProxyType(dict(notify.addresses)),
        telegram=MappingProxyType(dict(notify.telegram)),
        slack=MappingProxyType(dict(notify.slack)),
        approvers=notify.approvers,
        digest_cron=read_digest_cron(reader),
        chain_budget_usd=budgets.chain,
        daily_budget_usd=budgets.daily,
        state_dir=places.state,
        results_dir=places.results,
        repos_dir=places.repos,
        database_url=read_database_url(reader, state_dir=places.state, cwd=cwd),
        schema_path=schema_path,
        schema_text=schema_text,
        memory_budget_tokens=reader.whole("CLAUDEOPS_MEMORY_BUDGET"),
        retention_days=reader.whole("CLAUDEOPS_RETENTION_DAYS"),
        disk_floor_mb=reader.whole("CLAUDEOPS_DISK_FLOOR_MB"),
        listener=reader.switch("CLAUDEOPS_LISTENER"),
        dashboard=reader.switch("CLAUDEOPS_DASHBOARD"),
        dashboard_host=read_address(reader, "CLAUDEOPS_DASHBOARD_HOST"),
        dashboard_port=reader.whole("CLAUDEOPS_DASHBOARD_PORT"),
        public_url=next(iter(public_urls), None),
        public_hosts=tuple(urlsplit(url).hostname or "" for url in public_urls),
        tls_hosts=frozenset(urlsplit(url).netloc.lower() for url in public_urls if url.startswith("https:")),
        dashboard_insecure=reader.switch("CLAUDEOPS_DASHBOARD_INSECURE"),
        trusted_proxy_secret=read_long_token(reader, "CLAUDEOPS_TRUSTED_PROXY_SECRET"),
        oidc=read_oidc(reader, public_urls),
        metrics_allow=read_networks(reader, "CLAUDEOPS_METRICS_ALLOW"),
        chat_api_key=reader.token("CLAUDEOPS_CHAT_API_KEY"),
        log_level=reader.choice("CLAUDEOPS_LOG_LEVEL"),
        log_format=reader.choice("CLAUDEOPS_LOG_FORMAT"),
        notify_socket=environ.get("NOTIFY_SOCKET") or None,
        watchdog_seconds=watchdog_seconds(environ, pid=os.getpid()),
        dispatcher=reader.choice("CLAUDEOPS_DISPATCHER"),
        heartbeat_url=read_http_url(reader, "CLAUDEOPS_HEARTBEAT_URL"),
        webhook_model=reader.model("CLAUDEOPS_WEBHOOK_MODEL"),
        webhook_system_prompt=reader.prose("CLAUDEOPS_WEBHOOK_SYSTEM_PROMPT"),
        secrets=secrets,
        private_files=_private_files(
            reader,
            (
                *probes.existing,
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
    if not (settings.anthropic_api_key or settings.oauth_token or settings.anthropic_base_url):
        raise ConfigurationError(
            f"There is no access to the model API: set {_KEY} or {_TOKEN} (or {_KEY}_FILE or {_TOKEN}_FILE), or "
            "ANTHROPIC_BASE_URL for a gateway that needs no key.",
            kind=ErrorKind.AUTH,
            operation="resolve_credentials",
            target=_KEY,
            hint=f"Set {_KEY} or {_TOKEN}; `claudeops doctor` tries it.",
        )


def _credentials(reader: Reader) -> tuple[str | None, str | None]:
    key, token = reader.token(_KEY), reader.token(_TOKEN)
    if key is not None and token is not None:
        # The CLI would silently prefer the key, and an operator who meant the subscription would pay by the token.
        raise ConfigurationError(
            f"Both {_KEY} and {_TOKEN} are set, which are two accounts: unset one of them.",
            kind=ErrorKind.AUTH,
            target=_KEY,
            hint="Unset one of them.",
        )
    return key, token


def _private_files(reader: Reader, found: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files that no session may see: those that variables name, and those found in their usual places."""
    return tuple(dict.fromkeys((*reader.private_files(), *found)))


def _schedules(path: Path | None, only: Schedule, *, max_tier: int, site: str | None) -> tuple[Plan, ...]:
    if path is None:
        return ()
    return load_schedules(path, highest_tier=max_tier, timezone=only.timezone, site=site)


def _ungated(reader: Reader) -> tuple[str, ...]:
    names = reader.names("CLAUDEOPS_ALLOW_UNGATED")
    for name in names:
        if name not in HARNESSES:
            raise ConfigurationError(
                f"CLAUDEOPS_ALLOW_UNGATED holds {quoted(name)}, which is not a harness: "
                f"list some of {', '.join(HARNESSES)}, separated by commas, or unset it."
            )
    return names


def _secrets(
    reader: Reader, environ: Mapping[str, str], tiers: tuple[TierSettings, ...], passed_on: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    for name in (_KEY, _TOKEN, "CLAUDEOPS_CHAT_API_KEY", "CLAUDEOPS_TRUSTED_PROXY_SECRET", OIDC_SECRET):
        yield name, reader.secret(name) or ""
    for name in ("CLAUDEOPS_DATABASE_URL", "ANTHROPIC_BASE_URL"):
        yield from in_url(name, reader.secret(name) or "")
    yield from in_notice_url("CLAUDEOPS_HEARTBEAT_URL", reader.secret("CLAUDEOPS_HEARTBEAT_URL") or "")
    for name, value in environ.items():
        if name.startswith(BROWSER_CREDENTIAL_PREFIX) and is_text(value):
            yield name, value
    yield from chain.from_iterable(in_environment("handed to sessions", tier.env) for tier in tiers)
    yield from in_environment("passed on to sessions", passed_on)
    yield from in_environment("of the daemon", {name: environ[name] for name in PROXIES if name in environ})
    yield from referred_secrets(reader, environ)


# --- policy -----------------------------------------------------------------------------------------


def load_policy(named: Path | None, *, parts: tuple[Path, ...] = _PARTS) -> Policy:
    """Return the policy of the named file, else the default, which ``parts`` hold.

    Raises `ConfigurationError` with file, line and remedy.
    """
    if named is None:
        return _default(parts)
    text = read_text(named, origin=POLICY_VARIABLE, what="policy", limit=_MOST_BYTES)
    try:
        return parse_policy(text, default=default_text(parts), fragments=fragment_texts())
    except PolicyFault as fault:
        raise _refusal(fault, named, parts) from None


def policy_of(text: str) -> Policy:
    """Return the policy of a file's text. Raises `ConfigurationError` with line and remedy."""
    try:
        return parse_policy(text, default=default_text(), fragments=fragment_texts())
    except PolicyFault as fault:
        place = f"in what it extends, {fault.extended}, line" if fault.extended else "line"
        raise ConfigurationError(f"The policy file: {place} {fault.line}: {fault}.") from None


def policy_document(environ: Mapping[str, str], *, cwd: Path, file: Path | None) -> tuple[Path, Document]:
    """Return the policy that is in force as its file has it, and where that is; ``file`` stands before the variable.

    The default is a directory. Raises `ConfigurationError` with file, line and remedy.
    """
    named = file or Reader(environ, cwd=cwd).path(POLICY_VARIABLE)
    try:
        if named is None:
            return default_policy_path(), read_document(default_text())
        text = read_text(named, origin=POLICY_VARIABLE, what="policy", limit=_MOST_BYTES)
        return named, read_document(text, default=default_text(), fragments=fragment_texts())
    except PolicyFault as fault:
        raise _refusal(fault, named) from None


def default_text(parts: tuple[Path, ...] = _PARTS) -> str:
    """Return the text of the policy that ships: its parts, one after another."""
    origin = f"The default of {POLICY_VARIABLE}"
    return "\n".join(read_text(path, origin=origin, what="policy", limit=_MOST_BYTES) for path in parts)


def fragment_texts() -> dict[str, str]:
    """Return the texts of the shipped fragments, by name."""
    return {
        name: read_text(path, origin=f"The fragment {name}", what="policy", limit=_MOST_BYTES)
        for name, path in policy_fragments().items()
    }


@cache
def _default(parts: tuple[Path, ...]) -> Policy:
    try:
        return parse_policy(default_text(parts))
    except PolicyFault as fault:
        raise _refusal(fault, None, parts) from None


def _refusal(fault: PolicyFault, named: Path | None, parts: tuple[Path, ...] = _PARTS) -> ConfigurationError:
    """Return the sentence for a fault in the named file, or in what it extends; without a name, in the default."""
    origin, path, line = POLICY_VARIABLE, named, fault.line
    if fault.extended in policy_fragments():
        origin, path = f"The fragment {fault.extended}", policy_fragments()[fault.extended]
    elif fault.extended or path is None:
        origin = f"The default of {POLICY_VARIABLE}"
        path, line = _part_line(fault.line, parts)
    return ConfigurationError(f"{origin}: {path}, line {line}: {fault}.")


def _part_line(line: int, parts: tuple[Path, ...]) -> tuple[Path, int]:
    """Return the part that a line of the default's whole text is from, and the line's number in it."""
    for path in parts[:-1]:
        count = default_text((path,)).count("\n") + 1
        if line <= count:
            return path, line
        line -= count
    return parts[-1], line
