"""The settings as frozen values."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from claudeops.domain.alerts.rules import Rules
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.notice import Target
from claudeops.domain.schedules.plan import Plan
from claudeops.formats.network.headers import SecretHeader
from claudeops.formats.oidc import OidcClient
from claudeops.policy.tiers import Policy
from claudeops.settings.names import HARNESSES, PROVIDER_SWITCHES


@dataclass(frozen=True, kw_only=True, slots=True)
class TelegramChat:
    """A chat of a Telegram bot."""

    token: str = field(repr=False)
    chat: str  # its id
    api: str  # address of the Bot API, without a slash at its end


@dataclass(frozen=True, kw_only=True, slots=True)
class SlackChannel:
    """A channel of a Slack app."""

    bot_token: str = field(repr=False)
    app_token: str = field(default="", repr=False)  # for Socket Mode; "": there is none
    signing_secret: str = field(default="", repr=False)  # for answers by HTTP; "": there is none
    channel: str  # its id
    api: str  # address of the Web API, without a slash at its end


@dataclass(frozen=True, kw_only=True, slots=True)
class TierSettings:
    """The settings of one tier."""

    number: int
    name: str  # ``observe``, ``investigate``, ``remediate``, else ``tier<n>``
    harness: str
    model: str
    prompt_path: Path
    prompt_text: str = field(repr=False)  # read once, when the settings are loaded
    max_turns: int
    max_budget_usd: float
    allowed_tools: tuple[str, ...]  # empty: not narrowed
    disallowed_tools: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)  # given to the sessions; may hold secrets
    read: tuple[Path, ...]  # what the sessions see of the machine too, where they do not see all of it
    home: Path | None  # copied into each session's home

    @property
    def asks_messages_api(self) -> bool:
        """Whether its CLI calls the Messages API with our credentials, not another provider or with its own."""
        return self.harness == HARNESSES[0] and not any(
            self.env.get(name, "").strip() not in {"", "0", "false"} for name in PROVIDER_SWITCHES
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that the operator decides. ``repr()`` shows no secret."""

    # --- access to the model API
    anthropic_api_key: str | None = field(repr=False)
    oauth_token: str | None = field(repr=False)
    anthropic_base_url: str | None = field(repr=False)  # may hold a password; no slash at the end
    # --- when sessions start
    interval_seconds: float  # ignored when ``cron`` is set
    cron: str | None  # five fields of crontab(5)
    timezone: str  # IANA name, for ``cron``
    jitter_seconds: float
    site: str | None  # name of this installation; each name gets different jitter
    schedules_path: Path | None  # None: the one schedule of the variables above
    file_schedules: tuple[Plan, ...]  # that it holds
    follow_up_delay_seconds: float  # 0: nobody looks again
    # --- the ladder
    max_tier: int
    tiers: tuple[TierSettings, ...]  # 1 to ``max_tier``, in order
    dry_run: bool
    tier0: str  # ``inform``, ``off``, ``gate``
    tier0_max_age_seconds: float
    # --- one session
    harness: str  # of tiers without their own
    claude_bin: Path | None  # None: no tier uses it
    codex_bin: Path | None  # same, or it may not run
    caliban_bin: Path | None  # same
    allow_ungated: tuple[str, ...]
    max_concurrent_sessions: int
    session_timeout_seconds: float
    startup_timeout_seconds: float  # below the session timeout
    silence_timeout_seconds: float  # below the session timeout
    result_grace_seconds: float
    stop_grace_seconds: float
    drain_timeout_seconds: float
    approval_timeout_seconds: float
    approval_passkey: frozenset[int]  # the tiers whose approvals need a passkey's signature
    session_memory_mb: int  # MiB
    session_processes: int  # and threads
    session_file_mb: int  # MiB
    session_disk_mb: int  # MiB
    legacy_markers: bool
    hang_heuristics: bool
    background_tasks_off: bool
    repair_turn: bool
    cli_self_test: bool
    isolation: str  # ``auto``, ``bubblewrap``, ``user``, ``none``
    cell_network: str  # ``listed``: its own, with what is listed; ``shared``: the machine's
    meter: bool
    policy_path: Path | None  # None: the default policy
    policy: Policy = field(repr=False)  # checked when the settings are loaded
    alerts_path: Path | None  # None: nobody may send alerts
    alerts: Rules  # as the file was at the start
    alerts_env: Mapping[str, str]  # the variables by which senders sign, as far as they are set
    probes_path: Path  # it need not exist, unless it was named
    probes_named: bool
    probes_env: Mapping[str, str] = field(repr=False)  # variables that the file named at the start; may hold secrets
    headers: tuple[SecretHeader, ...] = field(repr=False)  # that the daemon adds to what sessions send
    mcp_config: Mapping[str, Mapping[str, object]] | None = field(repr=False)  # servers by name, variables filled in
    trusted_repos: Mapping[str, Mapping[str, object]] = field(repr=False)  # their servers by name, as written
    path: str  # PATH of the child: absolute directories only
    inherited_env: Mapping[str, str] = field(repr=False)  # locale, time zone, proxies, CA files
    proxies: Mapping[str, str] = field(
        repr=False
    )  # as the operator set them: unlike those above they may hold passwords
    # --- notices
    notify_path: Path | None  # None: only what the variable names
    notify_env: Mapping[str, str] = field(repr=False)  # variables that the file named at the start: secrets
    targets: tuple[Target, ...]
    addresses: Mapping[str, str] = field(repr=False)  # secrets, by the names of targets; of Apprise's alone
    telegram: Mapping[str, TelegramChat]
    slack: Mapping[str, SlackChannel]
    approvers: tuple[Approver, ...]
    digest_cron: str | None  # None: no sum is told
    # --- money
    chain_budget_usd: float
    daily_budget_usd: float
    # --- files and memory
    state_dir: Path
    results_dir: Path
    repos_dir: Path
    database_url: str = field(repr=False)  # ``sqlite:///<absolute path>`` or ``postgresql+psycopg://…``
    schema_path: Path
    schema_text: str = field(repr=False)  # JSON, as written in the file
    memory_budget_tokens: int  # 0: no memories in prompts
    retention_days: int
    disk_floor_mb: int  # 0: no floor
    # --- who may call
    listener: bool
    dashboard: bool  # pages and API
    dashboard_host: str  # an IP address
    dashboard_port: int  # 0: any free one
    public_url: str | None  # for links, without a slash at the end
    public_hosts: tuple[str, ...]  # of all the addresses that were given: who calls may name them
    tls_hosts: frozenset[str]  # those with https, as a Host header has them
    dashboard_insecure: bool  # the network is trusted: plain HTTP from another machine is as good as TLS
    trusted_proxy_secret: str | None = field(repr=False)
    oidc: OidcClient | None  # None: no identity provider says who people are
    metrics_allow: tuple[str, ...]  # networks, as CIDR: their peers read the metrics without a token
    chat_api_key: str | None = field(repr=False)
    # --- the daemon's own log
    log_level: str  # lower case
    log_format: str  # ``auto``, ``json``, ``console``
    # --- the service manager, if one started us
    notify_socket: str | None  # where it listens; a leading ``@`` marks an abstract name
    watchdog_seconds: float | None  # it considers us hung after so long without a sign of life
    # --- read and checked, but nothing acts on them yet
    dispatcher: str
    heartbeat_url: str | None = field(repr=False)
    webhook_model: str | None
    webhook_system_prompt: str | None = field(repr=False)
    # --- for the redactor
    secrets: tuple[str, ...] = field(repr=False)  # longest first, 6 characters or more each
    # --- for the cell
    private_files: tuple[Path, ...]  # configuration, and files that hold secrets: no session may see them

    @property
    def pages_url(self) -> str:
        """Where people reach the pages, without a slash at the end: as the operator says, else on this machine."""
        if self.public_url is not None:
            return self.public_url
        address = ipaddress.ip_address(self.dashboard_host)
        is_here = address.is_loopback or address.is_unspecified  # passkeys work for a name, and for no address
        host = "localhost" if is_here else f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004
        return f"http://{host}:{self.dashboard_port}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """Settings and the warnings about them, one sentence each, without secrets."""

    settings: Settings
    warnings: tuple[str, ...]
