"""Every setting, declared once: field, variable, default, bounds, meaning. Frozen values, grouped by subject.

The order of the fields is the order in which people see the variables. A field that is just what its variable says is
filled by itself, a derived one by `claudeops.settings.load`. What concerns sessions stands in `sessions`, and what
quick commands read alone in `where`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

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
from claudeops.settings.variables import (
    HIGHEST_TIER,
    Hides,
    ValueKind,
    Variable,
    address,
    choice,
    configuration,
    declared_by,
    derived,
    file,
    group,
    names,
    networks,
    secret,
    setting,
    settings_group,
    switch,
    text,
    tools,
    url,
    whole,
)
from claudeops.settings.where import ALERTS, POLICY, BudgetSettings, NodeSettings, PlaceSettings
from claudeops.structs import replace

if TYPE_CHECKING:  # whoever wants the declaration alone does not wait for these
    from claudeops.domain.alerts.rules import Rules
    from claudeops.domain.notices.approvers import Approver
    from claudeops.domain.notices.channels import ChannelAccess
    from claudeops.domain.notices.notice import Target
    from claudeops.formats.network.headers import SecretHeader
    from claudeops.formats.oidc import OidcClient
    from claudeops.policy.tiers import Policy


@settings_group
class ProbeSettings:
    """The file of probes. What it says is checked where it is read, again and again."""

    path: Path = derived(  # it need not exist, unless it was named
        configuration("CLAUDEOPS_PROBES_PATH", "TOML file with probes", "`/app/config/probes.toml`, if it is there")
    )
    named: bool = derived()
    env: Mapping[str, str] = derived(shown=False)  # variables that the file named at the start; may hold secrets


@settings_group
class AlertSettings:
    """The file of alerts."""

    path: Path | None = derived(  # None: nobody may send alerts
        ALERTS
    )
    rules: Rules = derived()  # as the file was at the start
    env: Mapping[str, str] = derived(shown=False)  # the variables by which senders sign, as far as they are set


@settings_group
class McpSettings:
    """The MCP servers of the sessions."""

    config: Mapping[str, Mapping[str, object]] | None = derived(  # by name, variables filled in
        configuration("CLAUDEOPS_MCP_CONFIG", "JSON file with the MCP servers of the sessions"), shown=False
    )
    trusted_repos: Mapping[str, Mapping[str, object]] = derived(  # their servers by name, as written
        names("CLAUDEOPS_TRUSTED_REPOS", "directories in `CLAUDEOPS_REPOS_DIR` whose MCP servers count too"),
        shown=False,
    )


@settings_group
class NoticeSettings:
    """Who is notified of what, and where; without a file only what the variable names."""

    addresses: Mapping[str, str] = derived(  # by the names of targets; of Apprise's alone
        secret(
            "CLAUDEOPS_APPRISE_URLS",
            "where notices from level warning on go; separated by spaces, or by commas before the next `service://`",
            hides=Hides.NOTHING,
        )
    )
    path: Path | None = derived(
        configuration(
            "CLAUDEOPS_NOTIFY_PATH",
            "TOML file with further targets, who is told what and when, and who may answer questions in chats",
            "`/app/config/notify.toml`, if it exists",
        )
    )
    env: Mapping[str, str] = derived(shown=False)  # variables that the file named at the start: secrets
    targets: tuple[Target, ...] = derived()
    chats: Mapping[str, ChannelAccess] = derived()  # of all other targets, by name
    approvers: tuple[Approver, ...] = derived()
    digest_cron: str | None = derived(  # None: no sum is sent
        text("CLAUDEOPS_DIGEST_CRON", "five crontab(5) fields at which the sum of the day is told")
    )


@settings_group
class ReportSettings:
    """The report of a session."""

    schema_path: Path = derived(
        file(
            "CLAUDEOPS_SCHEMA_PATH",
            "JSON schema (draft-07) of a session's report",
            "`/app/schemas/agent-response.json`, else the package's",
        )
    )
    schema_text: str = derived(shown=False)  # JSON, as written in the file


@settings_group
class UpkeepSettings:
    """What is kept, how long, and in how much room; and who notices when nothing is done any more."""

    memory_budget_tokens: int = setting(  # 0: no memories in prompts
        whole(
            "CLAUDEOPS_MEMORY_BUDGET",
            "2000",
            0,
            50_000,
            "tokens of memories in a prompt, without those of operators; 0 switches all of them off",
        )
    )
    retention_days: int = setting(
        whole("CLAUDEOPS_RETENTION_DAYS", "30", 1, 3650, "days until logs and details of sessions are removed")
    )
    disk_floor_mb: int = setting(
        whole(
            "CLAUDEOPS_DISK_FLOOR_MB",
            "512",
            0,
            1_048_576,
            "MiB of free disk below which no session starts; 0: no floor",
        )
    )
    heartbeat_url: str | None = setting(
        secret(
            "CLAUDEOPS_HEARTBEAT_URL",
            "address pinged after every healthy chain; whoever knows it may ping it",
            kind=ValueKind.SECRET_URL,
            hides=Hides.NOTICE,
        )
    )


@settings_group
class ListenerSettings:
    """Who may call, and how."""

    enabled: bool = setting(
        switch("CLAUDEOPS_LISTENER", "on", "listen: for people, alerts, heartbeats and questions about its health")
    )
    dashboard: bool = setting(
        switch("CLAUDEOPS_DASHBOARD", "on", "show pages and answer the API, besides what others send")
    )
    host: str = setting(
        address(
            "CLAUDEOPS_DASHBOARD_HOST",
            "127.0.0.1",
            "IP address to listen on; `0.0.0.0` or `::` for all, as the image sets it",
        )
    )
    port: int = setting(
        whole("CLAUDEOPS_DASHBOARD_PORT", "8080", 0, 65_535, "TCP port to listen on; 0: any free one, see the log")
    )
    public_url: str | None = derived(  # for links, without a slash at the end
        Variable(
            name="CLAUDEOPS_PUBLIC_URL",
            kind=ValueKind.URL,
            meaning="where people and programs reach the listener; several are separated by commas, and links have the "
            "first",
        )
    )
    public_hosts: tuple[str, ...] = derived()  # of all the addresses that were given: who calls may name them
    tls_hosts: frozenset[str] = derived()  # those with https, as a Host header has them
    insecure: bool = setting(  # plain HTTP from another machine is as good as TLS
        switch(
            "CLAUDEOPS_DASHBOARD_INSECURE",
            "false",
            "trust the network: over plain HTTP from another machine people may do more than look, and type passwords",
        )
    )
    trusted_proxy_secret: str | None = setting(
        secret(
            "CLAUDEOPS_TRUSTED_PROXY_SECRET",
            "secret by which a proxy may say who a person is, in `Remote-User`",
            kind=ValueKind.LONG_TOKEN,
        )
    )
    oidc: OidcClient | None = derived(  # all of them or none
        url(
            "CLAUDEOPS_OIDC_ISSUER",
            "identity provider at which people log in by OpenID Connect, exactly as it writes itself; needs "
            "`CLAUDEOPS_PUBLIC_URL` and `claudeops[oidc]`",
        ),
        text("CLAUDEOPS_OIDC_CLIENT_ID", "by which the identity provider knows claudeops"),
        secret("CLAUDEOPS_OIDC_CLIENT_SECRET", "secret of that client", kind=ValueKind.TOKEN),
        text(
            "CLAUDEOPS_OIDC_CLAIM",
            "claim of the ID token that names the user; `email` counts once the provider has verified it",
            "preferred_username",
        ),
    )
    metrics_allow: tuple[str, ...] = setting(
        networks(
            "CLAUDEOPS_METRICS_ALLOW",
            "networks whose peers read `/metrics` without a token, as 10.1.0.0/16; sessions call from 127.0.0.1",
        )
    )
    chat_api_key: str | None = setting(
        secret("CLAUDEOPS_CHAT_API_KEY", "key with which senders may post to `/api/v1/webhook`", kind=ValueKind.TOKEN)
    )

    @property
    def pages_url(self) -> str:
        """Where people reach the pages, without a slash at the end: as the operator says, else on this machine."""
        if self.public_url is not None:
            return self.public_url
        address = ipaddress.ip_address(self.host)
        is_here = address.is_loopback or address.is_unspecified  # passkeys work for a name, and for no address
        host = "localhost" if is_here else f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004
        return f"http://{host}:{self.port}"


@settings_group
class LogSettings:
    """The daemon's own log."""

    level: str = setting(
        choice("CLAUDEOPS_LOG_LEVEL", "info debug warning error critical", "least level that is logged")
    )
    format: str = setting(
        choice("CLAUDEOPS_LOG_FORMAT", "auto json console", "`auto` is console on a terminal, else JSON")
    )


@settings_group
class PlannedSettings:
    """Read and checked; nothing acts on them yet."""

    webhook_model: str | None = setting(
        Variable(name="CLAUDEOPS_WEBHOOK_MODEL", kind=ValueKind.MODEL, meaning="model that reads alerts", used=False)
    )
    webhook_system_prompt: str | None = setting(
        Variable(
            name="CLAUDEOPS_WEBHOOK_SYSTEM_PROMPT",
            kind=ValueKind.PROSE,
            meaning="system prompt of that model",
            used=False,
        )
    )


@settings_group
class EnvironmentSettings:
    """What sessions and the daemon take over from the daemon's own environment."""

    path: str = derived()  # PATH of the child: absolute directories only
    inherited: Mapping[str, str] = derived(shown=False)  # locale, time zone, proxies, CA files
    proxies: Mapping[str, str] = derived(shown=False)  # as the operator set them: they may hold passwords


@settings_group
class ServiceManagerSettings:
    """The service manager, if one started us."""

    socket: str | None = derived()  # where it listens; a leading ``@`` marks an abstract name
    watchdog_seconds: float | None = derived()  # it considers us hung after so long without a sign of life


@settings_group
class Settings:
    """Everything that the operator decides. ``repr()`` shows no secret."""

    access: AccessSettings = group(AccessSettings)
    node: NodeSettings = group(NodeSettings)
    schedule: ScheduleSettings = group(ScheduleSettings)
    ladder: LadderSettings = group(LadderSettings)
    tiers: tuple[TierSettings, ...] = derived(  # 1 to the highest, in order
        file("CLAUDEOPS_PROMPT", "prompt of tier 1", "`tier1-observe.md` of `/app/prompts`, else the package's"),
        tools("CLAUDEOPS_ALLOWED_TOOLS", "narrows what the policy allows, for tiers without a list of their own"),
        tools("CLAUDEOPS_DISALLOWED_TOOLS", "forbids tools, for tiers without a list of their own"),
    )
    sessions: SessionSettings = group(SessionSettings)
    timeouts: TimeoutSettings = group(TimeoutSettings)
    approvals: ApprovalSettings = group(ApprovalSettings)
    bounds: BoundSettings = group(BoundSettings)
    completion: CompletionSettings = group(CompletionSettings)
    cell: CellSettings = group(CellSettings)
    policy_path: Path | None = derived(  # None: the default policy
        POLICY
    )
    policy: Policy = derived(shown=False)  # checked when the settings are loaded
    probes: ProbeSettings = group(ProbeSettings)
    alerts: AlertSettings = group(AlertSettings)
    headers: tuple[SecretHeader, ...] = derived(  # that the daemon adds to what sessions send
        configuration(
            "CLAUDEOPS_HEADERS_PATH", "TOML file of headers with secrets that the daemon adds to what sessions send"
        ),
        shown=False,
    )
    mcp: McpSettings = group(McpSettings)
    notices: NoticeSettings = group(NoticeSettings)
    budgets: BudgetSettings = group(BudgetSettings)
    places: PlaceSettings = group(PlaceSettings)
    report: ReportSettings = group(ReportSettings)
    upkeep: UpkeepSettings = group(UpkeepSettings)
    listener: ListenerSettings = group(ListenerSettings)
    log: LogSettings = group(LogSettings)
    planned: PlannedSettings = group(PlannedSettings)
    environment: EnvironmentSettings = group(EnvironmentSettings)
    service_manager: ServiceManagerSettings = group(ServiceManagerSettings)
    secrets: tuple[str, ...] = derived(shown=False)  # for the redactor: longest first, 6 characters or more each
    private_files: tuple[Path, ...] = derived()  # configuration, and files that hold secrets: no session may see them


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Settings and the warnings about them, one sentence each, without secrets."""

    settings: Settings
    warnings: tuple[str, ...]


# --- every variable ----------------------------------------------------------------------------------

GENERAL: Final = tuple(variable for _, variable in declared_by(Settings))
"""The variables of all tiers together."""

PER_TIER: Final = tuple(variable for _, variable in declared_by(TierSettings))
"""The variables that each tier has for itself."""


def _of_tier(variable: Variable[object], tier: int) -> Variable[object]:
    # Tiers above the third have the turns and the budget of the third, but no default model.
    last = tier if variable.kind is ValueKind.MODEL else min(tier, len(variable.defaults))
    own = variable.defaults[last - 1 : last] if variable.defaults else ()
    return replace(variable, name=variable.name.replace("{n}", str(tier)), defaults=own)


def _known() -> dict[str, Variable[object]]:
    tiers = [_of_tier(variable, tier) for tier in range(1, HIGHEST_TIER + 1) for variable in PER_TIER]
    known = {variable.name: variable for variable in (*GENERAL, *tiers)}
    del known["CLAUDEOPS_TIER1_PROMPT"]  # its name has always been CLAUDEOPS_PROMPT
    return known


KNOWN: Final[Mapping[str, Variable[object]]] = _known()
"""Every variable by its full name, without the ``_FILE`` variants."""
