"""Every environment variable that claudeops knows: name, default, bounds, meaning.

Data only, and the one place to change: the reader takes defaults and bounds from here, and a test compares the list
with ``docs/reference/settings.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

HIGHEST_TIER: Final = 9
"""The names of variables have one digit for the tier."""

FILE_SUFFIX: Final = "_FILE"
"""``<secret>_FILE`` names a file that holds the secret."""

HARNESSES: Final = ("claude", "codex", "caliban")
"""The kinds of CLI, the default first."""

GATED: Final = ("claude",)
"""Harnesses that ask before every tool call. The others run only where `CLAUDEOPS_ALLOW_UNGATED` names them."""

PROVIDER_SWITCHES: Final = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX")
"""Variables that make the ``claude`` CLI call another provider than the Messages API."""

HARNESS_MODELS: Final[Mapping[str, str]] = MappingProxyType({"codex": "gpt-5-codex"})
"""The default model of every tier on these harnesses; other harnesses except ``claude`` have none."""

BROWSER_CREDENTIAL_PREFIX: Final = "BROWSER_CRED_"
"""Prefix of log-ins for a browser. Sessions have none, but the values are still redacted."""

_ONE_DAY: Final = 86_400


class Kind(StrEnum):
    """What a value must look like, in words for the operator."""

    TEXT = "text"
    MODEL = "a model name or alias"
    SECONDS = "seconds"
    WHOLE = "a whole number"
    MONEY = "US dollars"
    SWITCH = "true or false"
    CHOICE = "one of the listed words"
    FILE = "path of a file"
    DIRECTORY = "path of a directory"
    PROGRAM = "path of a program, or its name on PATH"
    NAMES = "names, separated by commas"
    PATHS = "paths, separated by commas"
    TOOLS = "tool names or patterns like `Bash(docker ps:*)`, separated by commas"
    URL = "http:// or https:// URL"
    SECRET = "secret"  # noqa: S105 - a label, not a secret


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """One variable; ``{n}`` in its name stands for the number of a tier."""

    name: str
    kind: Kind
    meaning: str
    defaults: tuple[str, ...] = ()  # as an operator would write them; for ``{n}`` one for each tier
    default_note: str = ""  # for the documentation, where the default is computed
    low: float | None = None  # smallest valid value
    high: float | None = None  # greatest valid value
    choices: tuple[str, ...] = ()
    used: bool = True  # False: read and checked, but nothing acts on it yet
    secret: bool = False  # never shown; may come from ``<name>_FILE``

    @property
    def default(self) -> str | None:
        """The value of an unset variable, if there is one."""
        return self.defaults[0] if self.defaults else None

    @property
    def bounds(self) -> str:
        """What the value must be, as a phrase."""
        if self.choices:
            return ", ".join(self.choices)
        if self.low is not None and self.high is not None:
            unit = "" if self.kind is Kind.WHOLE else f" {self.kind}"
            return f"{_plain(self.low)} to {_plain(self.high)}{unit}"
        return str(self.kind)


def _plain(number: float) -> str:
    return f"{number:.12g}"


def prompt_variable(tier: int) -> str:
    """Return the name of the variable for a tier's prompt."""
    return "CLAUDEOPS_PROMPT" if tier == 1 else f"CLAUDEOPS_TIER{tier}_PROMPT"


# --- shorthands for the list -------------------------------------------------------------------------


def _limit(name: str, default: str, high: float, meaning: str, *, low: float = 0.1, used: bool = True) -> Variable:
    kind = Kind.SECONDS
    return Variable(name=name, kind=kind, defaults=(default,), low=low, high=high, meaning=meaning, used=used)


def _switch(name: str, default: str, meaning: str, *, used: bool = True) -> Variable:
    return Variable(name=name, kind=Kind.SWITCH, defaults=(default,), meaning=meaning, used=used)


def _count(name: str, defaults: str, low: int, high: int, meaning: str, *, used: bool = True) -> Variable:
    given = tuple(defaults.split())
    return Variable(name=name, kind=Kind.WHOLE, defaults=given, low=low, high=high, meaning=meaning, used=used)


def _money(name: str, defaults: str, meaning: str, *, used: bool = True) -> Variable:
    given = tuple(defaults.split())
    kind = Kind.MONEY
    return Variable(name=name, kind=kind, defaults=given, low=0.01, high=100_000, meaning=meaning, used=used)


def _choice(name: str, choices: str, meaning: str, *, used: bool = True) -> Variable:
    """Return a variable with a closed set of values; the first one is the default."""
    words = tuple(choices.split())
    return Variable(name=name, kind=Kind.CHOICE, defaults=words[:1], choices=words, meaning=meaning, used=used)


def _secret(name: str, meaning: str, *, used: bool = True) -> Variable:
    return Variable(name=name, kind=Kind.SECRET, meaning=meaning, used=used, secret=True)


def _plan(name: str, kind: Kind, meaning: str) -> Variable:
    """Return a variable without a default that nothing uses yet."""
    return Variable(name=name, kind=kind, meaning=meaning, used=False)


def _given(name: str, kind: Kind, meaning: str, note: str = "") -> Variable:
    return Variable(name=name, kind=kind, meaning=meaning, default_note=note)


# --- the list ----------------------------------------------------------------------------------------

GENERAL: Final[tuple[Variable, ...]] = (
    # --- access to the model API
    _secret("ANTHROPIC_API_KEY", "API key; contradicts `CLAUDE_CODE_OAUTH_TOKEN`"),
    _secret("CLAUDE_CODE_OAUTH_TOKEN", "long-lived subscription token; contradicts `ANTHROPIC_API_KEY`"),
    _given("ANTHROPIC_BASE_URL", Kind.URL, "address of the model API or of a gateway to it"),
    # --- when sessions start
    _limit("CLAUDEOPS_INTERVAL", "3600", 2_678_400, "time between two scheduled chains", low=1),
    _given("CLAUDEOPS_CRON", Kind.TEXT, "five crontab(5) fields instead of the interval; 0 and 7 are Sunday"),
    Variable(
        name="CLAUDEOPS_TIMEZONE",
        kind=Kind.TEXT,
        defaults=("UTC",),
        meaning="IANA time zone in which `CLAUDEOPS_CRON` is read, and at whose midnight a day's budget begins anew",
    ),
    _limit("CLAUDEOPS_JITTER", "0", _ONE_DAY, "greatest delay added to a due time; below the interval", low=0),
    _given("CLAUDEOPS_SITE", Kind.TEXT, "name of this installation; several get different delays out of the jitter"),
    _given(
        "CLAUDEOPS_SCHEDULES_PATH",
        Kind.FILE,
        "TOML file with schedules, instead of the one that the variables above describe",
        "`/app/config/schedules.toml`, if it exists",
    ),
    _limit(
        "CLAUDEOPS_FOLLOW_UP_DELAY",
        "900",
        _ONE_DAY,
        "from a repair to the look whether it holds; 0: nobody looks",
        low=0,
    ),
    # --- the ladder
    _count("CLAUDEOPS_MAX_TIER", "3", 1, HIGHEST_TIER, "highest tier that may run; how many tiers there are"),
    _switch("CLAUDEOPS_DRY_RUN", "false", "observe only: wishes to escalate are recorded, not followed"),
    _choice("CLAUDEOPS_TIER0", "inform off gate", "what probes are for when a chain is due"),
    _limit(
        "CLAUDEOPS_TIER0_MAX_AGE",
        "86400",
        2_678_400,
        "with `gate`: age of a model's last verdict from which a chain starts all the same",
        low=1,
    ),
    _given(
        "CLAUDEOPS_PROMPT", Kind.FILE, "prompt of tier 1", "`tier1-observe.md` of `/app/prompts`, else the package's"
    ),
    _given(
        "CLAUDEOPS_ALLOWED_TOOLS", Kind.TOOLS, "narrows what the policy allows, for tiers without a list of their own"
    ),
    _given("CLAUDEOPS_DISALLOWED_TOOLS", Kind.TOOLS, "forbids tools, for tiers without a list of their own"),
    # --- one session
    _choice("CLAUDEOPS_HARNESS", " ".join(HARNESSES), "kind of CLI, for tiers that name none of their own"),
    _given("CLAUDEOPS_CLAUDE_BIN", Kind.PROGRAM, "the `claude` CLI", "`claude` on `PATH`, else the bundled one"),
    _given("CLAUDEOPS_CODEX_BIN", Kind.PROGRAM, "the `codex` CLI, where a tier uses it", "`codex` on `PATH`"),
    _given("CLAUDEOPS_CALIBAN_BIN", Kind.PROGRAM, "the `caliban` CLI, where a tier uses it", "`caliban` on `PATH`"),
    _given("CLAUDEOPS_ALLOW_UNGATED", Kind.NAMES, "harnesses without a gate that may run all the same"),
    _count("CLAUDEOPS_MAX_CONCURRENT_SESSIONS", "2", 1, 64, "sessions at once; above 1, one is kept for tier 1"),
    _limit("CLAUDEOPS_SESSION_TIMEOUT", "1800", _ONE_DAY, "wall clock of one session"),
    _limit("CLAUDEOPS_STARTUP_TIMEOUT", "60", 3600, "until the first line; below the session's"),
    _limit(
        "CLAUDEOPS_SILENCE_TIMEOUT",
        "600",
        _ONE_DAY,
        "without a sign of life, or for one tool call; below the session's",
    ),
    _limit("CLAUDEOPS_RESULT_GRACE", "30", 3600, "after the result line until the process must have ended"),
    _limit("CLAUDEOPS_STOP_GRACE", "10", 600, "the whole ladder from a polite stop to SIGKILL"),
    _limit("CLAUDEOPS_DRAIN_TIMEOUT", "60", _ONE_DAY, "wait for running sessions when the daemon stops", low=0),
    _limit("CLAUDEOPS_APPROVAL_TIMEOUT", "900", _ONE_DAY, "wait for a person's answer, then deny"),
    Variable(
        name="CLAUDEOPS_APPROVAL_PASSKEY",
        kind=Kind.NAMES,
        defaults=("off",),
        meaning="tiers whose approvals need a yes that a passkey signs, as `3` or `2,3`; `off`: none",
    ),
    _count(
        "CLAUDEOPS_SESSION_MEMORY_MB",
        "4096",
        256,
        1_048_576,
        "MiB for one session's processes together; files that are in memory come on top of it",
    ),
    _count("CLAUDEOPS_SESSION_PROCESSES", "1024", 128, 32_768, "processes and threads of one session at once"),
    _count("CLAUDEOPS_SESSION_FILE_MB", "1024", 16, 1_048_576, "MiB of one file that a session writes"),
    _count(
        "CLAUDEOPS_SESSION_DISK_MB",
        "2048",
        64,
        1_048_576,
        "MiB of all files of one session; at level `bubblewrap` in memory, where that fits beside its processes",
    ),
    _switch("CLAUDEOPS_LEGACY_MARKERS", "true", "read text markers and the handoff file when no report was delivered"),
    _switch("CLAUDEOPS_HANG_HEURISTICS", "true", "notice sessions that ended with a question or a background task"),
    _switch(
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
        "false",
        "background tasks are not looked for when a session ends; sessions get this variable in any case",
    ),
    _switch("CLAUDEOPS_REPAIR_TURN", "true", "ask once more, in the same session, for a missing report"),
    _switch("CLAUDEOPS_CLI_SELF_TEST", "true", "try the gate of a CLI that was not seen before"),
    _choice("CLAUDEOPS_ISOLATION", "auto bubblewrap user none", "what a session is locked into"),
    _choice(
        "CLAUDEOPS_CELL_NETWORK", "listed shared", "whether a session in bubblewrap reaches what is listed, or all"
    ),
    _switch("CLAUDEOPS_METER", "on", "send model calls through the daemon, to count and limit them"),
    _given("CLAUDEOPS_POLICY_PATH", Kind.FILE, "TOML file with the rules for tool calls", "the one that ships"),
    _given("CLAUDEOPS_PROBES_PATH", Kind.FILE, "TOML file with probes", "`/app/config/probes.toml`, if it is there"),
    _given("CLAUDEOPS_ALERTS_PATH", Kind.FILE, "TOML file of alerts", "`/app/config/alerts.toml`, if it exists"),
    _given(
        "CLAUDEOPS_HEADERS_PATH",
        Kind.FILE,
        "TOML file of headers with secrets that the daemon adds to what sessions send",
    ),
    _given("CLAUDEOPS_MCP_CONFIG", Kind.FILE, "JSON file with the MCP servers of the sessions"),
    _given(
        "CLAUDEOPS_TRUSTED_REPOS",
        Kind.NAMES,
        "directories in `CLAUDEOPS_REPOS_DIR` whose MCP servers count too",
    ),
    # --- notices
    _secret(
        "CLAUDEOPS_APPRISE_URLS",
        "where notices from level warning on go; separated by spaces, or by commas before the next `service://`",
    ),
    _given(
        "CLAUDEOPS_NOTIFY_PATH",
        Kind.FILE,
        "TOML file with further targets, who is told what and when, and who may answer questions in chats",
        "`/app/config/notify.toml`, if it exists",
    ),
    _given("CLAUDEOPS_DIGEST_CRON", Kind.TEXT, "five crontab(5) fields at which the sum of the day is told"),
    # --- money
    _money("CLAUDEOPS_CHAIN_BUDGET_USD", "15", "a session and everything it led to; at most the daily budget"),
    _money("CLAUDEOPS_DAILY_BUDGET_USD", "25", "everything within a day of `CLAUDEOPS_TIMEZONE`"),
    # --- files and memory
    _given("CLAUDEOPS_STATE_DIR", Kind.DIRECTORY, "database and daemon state", "`/state`, else `./.claudeops/state`"),
    _given("CLAUDEOPS_RESULTS_DIR", Kind.DIRECTORY, "session logs", "`/results`, else `./.claudeops/results`"),
    _given("CLAUDEOPS_REPOS_DIR", Kind.DIRECTORY, "what is watched", "`/repos`, else `./.claudeops/repos`"),
    Variable(
        name="CLAUDEOPS_DATABASE_URL",
        kind=Kind.SECRET,
        default_note="`sqlite:///<state directory>/claudeops.db`",
        meaning="`sqlite:///` or `postgresql://` URL",
        secret=True,
    ),
    _given(
        "CLAUDEOPS_SCHEMA_PATH",
        Kind.FILE,
        "JSON schema (draft-07) of a session's report",
        "`/app/schemas/agent-response.json`, else the package's",
    ),
    _count(
        "CLAUDEOPS_MEMORY_BUDGET",
        "2000",
        0,
        50_000,
        "tokens of memories in a prompt, without those of operators; 0 switches all of them off",
    ),
    _count("CLAUDEOPS_RETENTION_DAYS", "30", 1, 3650, "days until logs and details of sessions are removed"),
    _count(
        "CLAUDEOPS_DISK_FLOOR_MB", "512", 0, 1_048_576, "MiB of free disk below which no session starts; 0: no floor"
    ),
    _secret("CLAUDEOPS_HEARTBEAT_URL", "address pinged after every healthy chain; whoever knows it may ping it"),
    # --- who may call
    _switch("CLAUDEOPS_LISTENER", "on", "listen: for people, alerts, heartbeats and questions about its health"),
    _switch("CLAUDEOPS_DASHBOARD", "on", "show pages and answer the API, besides what others send"),
    Variable(
        name="CLAUDEOPS_DASHBOARD_HOST",
        kind=Kind.TEXT,
        defaults=("127.0.0.1",),
        meaning="IP address to listen on; `0.0.0.0` or `::` for all, as the image sets it",
    ),
    _count("CLAUDEOPS_DASHBOARD_PORT", "8080", 0, 65_535, "TCP port to listen on; 0: any free one, see the log"),
    _given(
        "CLAUDEOPS_PUBLIC_URL",
        Kind.URL,
        "where people and programs reach the listener; several are separated by commas, and links have the first",
    ),
    _switch(
        "CLAUDEOPS_DASHBOARD_INSECURE",
        "false",
        "trust the network: over plain HTTP from another machine people may do more than look, and type passwords",
    ),
    _secret("CLAUDEOPS_TRUSTED_PROXY_SECRET", "secret by which a proxy may say who a person is, in `Remote-User`"),
    _given(
        "CLAUDEOPS_OIDC_ISSUER",
        Kind.URL,
        "identity provider at which people log in by OpenID Connect, exactly as it writes itself; needs "
        "`CLAUDEOPS_PUBLIC_URL` and `claudeops[oidc]`",
    ),
    _given("CLAUDEOPS_OIDC_CLIENT_ID", Kind.TEXT, "by which the identity provider knows claudeops"),
    _secret("CLAUDEOPS_OIDC_CLIENT_SECRET", "secret of that client"),
    Variable(
        name="CLAUDEOPS_OIDC_CLAIM",
        kind=Kind.TEXT,
        defaults=("preferred_username",),
        meaning="claim of the ID token that names the user; `email` counts once the provider has verified it",
    ),
    _given(
        "CLAUDEOPS_METRICS_ALLOW",
        Kind.NAMES,
        "networks whose peers read `/metrics` without a token, as 10.1.0.0/16; sessions call from 127.0.0.1",
    ),
    _secret("CLAUDEOPS_CHAT_API_KEY", "key with which senders may post to `/api/v1/webhook`"),
    # --- the daemon's own log
    _choice("CLAUDEOPS_LOG_LEVEL", "info debug warning error critical", "least level that is logged"),
    _choice("CLAUDEOPS_LOG_FORMAT", "auto json console", "`auto` is console on a terminal, else JSON"),
    # --- known, nothing uses them yet
    _choice("CLAUDEOPS_DISPATCHER", "local procrastinate", "who gives queued sessions to a node", used=False),
    _plan("CLAUDEOPS_WEBHOOK_MODEL", Kind.MODEL, "model that reads alerts"),
    _plan("CLAUDEOPS_WEBHOOK_SYSTEM_PROMPT", Kind.TEXT, "system prompt of that model"),
)

PER_TIER: Final[tuple[Variable, ...]] = (
    Variable(
        name="CLAUDEOPS_TIER{n}_HARNESS",
        kind=Kind.CHOICE,
        default_note="`CLAUDEOPS_HARNESS`",
        choices=HARNESSES,
        meaning="kind of CLI of the tier",
    ),
    Variable(
        name="CLAUDEOPS_TIER{n}_MODEL",
        kind=Kind.MODEL,
        defaults=("haiku", "sonnet", "opus"),
        meaning="model of the tier; `gpt-5-codex` on `codex`; no default on `caliban`, nor on `claude` above tier 3",
    ),
    Variable(
        name="CLAUDEOPS_TIER{n}_PROMPT",
        kind=Kind.FILE,
        default_note="`tier2-investigate.md`, `tier3-remediate.md` of `/app/prompts`, else the package's",
        meaning="prompt of the tier, from 2 on (tier 1: `CLAUDEOPS_PROMPT`); no default above tier 3",
    ),
    _count("CLAUDEOPS_TIER{n}_MAX_TURNS", "30 60 100", 1, 1000, "turns of one session; above tier 3 as tier 3"),
    _money("CLAUDEOPS_TIER{n}_MAX_BUDGET_USD", "0.50 2 10", "one session; at most the chain's; above tier 3 as tier 3"),
    _given("CLAUDEOPS_TIER{n}_ALLOWED_TOOLS", Kind.TOOLS, "instead of `CLAUDEOPS_ALLOWED_TOOLS`"),
    _given("CLAUDEOPS_TIER{n}_DISALLOWED_TOOLS", Kind.TOOLS, "instead of `CLAUDEOPS_DISALLOWED_TOOLS`"),
    _given("CLAUDEOPS_TIER{n}_ENV", Kind.NAMES, "variables of the daemon that the sessions get too"),
    _given("CLAUDEOPS_TIER{n}_READ", Kind.PATHS, "what the sessions see of this machine too, in bubblewrap; read-only"),
    _given("CLAUDEOPS_TIER{n}_HOME", Kind.DIRECTORY, "copied into each session's home: kubeconfig, ssh configuration"),
)

WITHOUT_EFFECT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "CLAUDEOPS_SUMMARY_MODEL": "every session writes its summary itself",
        "CLAUDEOPS_BROWSER_ALLOWED_ORIGINS": "claudeops gives sessions no browser",
    }
)
"""Names that installations may still set, and why nothing reads them. Not an error, so that upgrades do not fail."""


def _of_tier(variable: Variable, tier: int) -> Variable:
    # Tiers above the third have the turns and the budget of the third, but no default model.
    last = tier if variable.kind is Kind.MODEL else min(tier, len(variable.defaults))
    own = variable.defaults[last - 1 : last] if variable.defaults else ()
    return replace(variable, name=variable.name.replace("{n}", str(tier)), defaults=own)


def _known() -> dict[str, Variable]:
    tiers = [_of_tier(variable, tier) for tier in range(1, HIGHEST_TIER + 1) for variable in PER_TIER]
    known = {variable.name: variable for variable in (*GENERAL, *tiers)}
    del known["CLAUDEOPS_TIER1_PROMPT"]  # its name has always been CLAUDEOPS_PROMPT
    return known


KNOWN: Final[Mapping[str, Variable]] = _known()
"""Every variable by its full name, without the ``_FILE`` variants."""
