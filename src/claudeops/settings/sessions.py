"""The settings of sessions, declared once: when they start, what runs them, what bounds them and stands around them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from claudeops.settings.variables import (
    HARNESSES,
    ONE_DAY,
    ONE_MONTH,
    PROVIDER_SWITCHES,
    Hides,
    ValueKind,
    Variable,
    choice,
    configuration,
    derived,
    directory,
    file,
    money,
    names,
    program,
    seconds,
    secret,
    setting,
    settings_group,
    switch,
    text,
    tier_list,
    tools,
    url,
    whole,
)
from claudeops.settings.where import MAX_TIER, TIMEZONE

if TYPE_CHECKING:  # whoever wants the declaration alone does not wait for these
    from claudeops.domain.schedules.plan import SchedulePlan

STOP_GRACE: Final = "CLAUDEOPS_STOP_GRACE"
TAKEOVER: Final = "CLAUDEOPS_TAKEOVER_TIMEOUT"
ROOM_SECONDS: Final = 13.0
"""By how much at least a take-over is later than a stop lasts: a sign of life may wait for its turn (5 s) and stand
still (3 s), and what is left of a stopped session is written within 5 s."""


@settings_group
class AccessSettings:
    """Access to the model API."""

    api_key: str | None = setting(
        secret("ANTHROPIC_API_KEY", "API key; contradicts `CLAUDE_CODE_OAUTH_TOKEN`", kind=ValueKind.TOKEN)
    )
    oauth_token: str | None = setting(
        secret(
            "CLAUDE_CODE_OAUTH_TOKEN",
            "long-lived subscription token; contradicts `ANTHROPIC_API_KEY`",
            kind=ValueKind.TOKEN,
        )
    )
    base_url: str | None = setting(  # may hold a password; no slash at the end
        url("ANTHROPIC_BASE_URL", "address of the model API or of a gateway to it", hides=Hides.IN_URL)
    )


@settings_group
class ScheduleSettings:
    """When sessions start."""

    interval_seconds: float = setting(  # ignored when ``cron`` is set
        seconds("CLAUDEOPS_INTERVAL", "3600", ONE_MONTH, "time between two scheduled chains", low=1)
    )
    cron: str | None = setting(
        text("CLAUDEOPS_CRON", "five crontab(5) fields instead of the interval; 0 and 7 are Sunday")
    )
    timezone: str = derived(TIMEZONE)  # IANA name
    jitter_seconds: float = setting(
        seconds("CLAUDEOPS_JITTER", "0", ONE_DAY, "greatest delay added to a due time; below the interval", low=0)
    )
    path: Path | None = derived(  # None: the one schedule of the variables above
        configuration(
            "CLAUDEOPS_SCHEDULES_PATH",
            "TOML file with schedules, instead of the one that the variables above describe",
            "`/app/config/schedules.toml`, if it exists",
        )
    )
    plans: tuple[SchedulePlan, ...] = derived()  # that the file holds
    follow_up_seconds: float = setting(
        seconds(
            "CLAUDEOPS_FOLLOW_UP_DELAY",
            "900",
            ONE_DAY,
            "from a repair to the look whether it holds; 0: nobody looks",
            low=0,
        )
    )


@settings_group
class LadderSettings:
    """How far a chain may escalate."""

    max_tier: int = setting(MAX_TIER)
    dry_run: bool = setting(
        switch("CLAUDEOPS_DRY_RUN", "false", "observe only: wishes to escalate are recorded, not followed")
    )
    tier0: str = setting(choice("CLAUDEOPS_TIER0", "inform off gate", "what probes are for when a chain is due"))
    tier0_max_age_seconds: float = setting(
        seconds(
            "CLAUDEOPS_TIER0_MAX_AGE",
            "86400",
            ONE_MONTH,
            "with `gate`: age of a model's last verdict from which a chain starts all the same",
            low=1,
        )
    )


@settings_group
class TierSettings:
    """The settings of one tier."""

    number: int = derived()
    name: str = derived()  # ``observe``, ``investigate``, ``remediate``, else ``tier<n>``
    harness: str = derived(
        Variable(
            name="CLAUDEOPS_TIER{n}_HARNESS",
            kind=ValueKind.CHOICE,
            default_note="`CLAUDEOPS_HARNESS`",
            choices=HARNESSES,
            meaning="kind of CLI of the tier",
        )
    )
    model: str = derived(
        Variable(
            name="CLAUDEOPS_TIER{n}_MODEL",
            kind=ValueKind.MODEL,
            defaults=("haiku", "sonnet", "opus"),
            meaning="model of the tier; `gpt-5-codex` on `codex`; no default on `caliban`, nor on `claude` above "
            "tier 3",
        )
    )
    prompt_path: Path = derived(
        file(
            "CLAUDEOPS_TIER{n}_PROMPT",
            "prompt of the tier, from 2 on (tier 1: `CLAUDEOPS_PROMPT`); no default above tier 3",
            "`tier2-investigate.md`, `tier3-remediate.md` of `/app/prompts`, else the package's",
        )
    )
    prompt_text: str = derived(shown=False)  # read once, when the settings are loaded
    max_turns: int = setting(
        whole("CLAUDEOPS_TIER{n}_MAX_TURNS", "30 60 100", 1, 1000, "turns of one session; above tier 3 as tier 3")
    )
    max_budget_usd: float = derived(
        money(
            "CLAUDEOPS_TIER{n}_MAX_BUDGET_USD", "0.50 2 10", "one session; at most the chain's; above tier 3 as tier 3"
        )
    )
    allowed_tools: tuple[str, ...] = derived(  # empty: not narrowed
        tools("CLAUDEOPS_TIER{n}_ALLOWED_TOOLS", "instead of `CLAUDEOPS_ALLOWED_TOOLS`")
    )
    disallowed_tools: tuple[str, ...] = derived(
        tools("CLAUDEOPS_TIER{n}_DISALLOWED_TOOLS", "instead of `CLAUDEOPS_DISALLOWED_TOOLS`")
    )
    env: Mapping[str, str] = derived(  # may hold secrets
        names("CLAUDEOPS_TIER{n}_ENV", "variables of the daemon that the sessions get too"), shown=False
    )
    read: tuple[Path, ...] = derived(
        Variable(
            name="CLAUDEOPS_TIER{n}_READ",
            kind=ValueKind.PATHS,
            meaning="what the sessions see of this machine too, in bubblewrap; read-only",
        )
    )
    home: Path | None = derived(
        directory("CLAUDEOPS_TIER{n}_HOME", "copied into each session's home: kubeconfig, ssh configuration")
    )

    @property
    def asks_messages_api(self) -> bool:
        """Whether its CLI calls the Messages API with our credentials, not another provider or with its own."""
        return self.harness == HARNESSES[0] and not any(
            self.env.get(name, "").strip() not in {"", "0", "false"} for name in PROVIDER_SWITCHES
        )


@settings_group
class SessionSettings:
    """What runs sessions, and how many at once. A program is None where no tier uses it, or it may not run."""

    harness: str = setting(  # of tiers without their own
        choice("CLAUDEOPS_HARNESS", " ".join(HARNESSES), "kind of CLI, for tiers that name none of their own")
    )
    claude_bin: Path | None = derived(
        program("CLAUDEOPS_CLAUDE_BIN", "the `claude` CLI", "`claude` on `PATH`, else the bundled one")
    )
    codex_bin: Path | None = derived(
        program("CLAUDEOPS_CODEX_BIN", "the `codex` CLI, where a tier uses it", "`codex` on `PATH`")
    )
    caliban_bin: Path | None = derived(
        program("CLAUDEOPS_CALIBAN_BIN", "the `caliban` CLI, where a tier uses it", "`caliban` on `PATH`")
    )
    allow_ungated: tuple[str, ...] = derived(
        names("CLAUDEOPS_ALLOW_UNGATED", "harnesses without a gate that may run all the same")
    )
    max_concurrent: int = setting(
        whole("CLAUDEOPS_MAX_CONCURRENT_SESSIONS", "2", 1, 64, "sessions at once; above 1, one is kept for tier 1")
    )
    max_of_site: int = setting(
        whole(
            "CLAUDEOPS_MAX_SESSIONS_OF_SITE",
            "0",
            0,
            10_000,
            "sessions at once on all machines of this one's site; above 1, one is kept for tier 1; 0: no limit",
        )
    )
    max_in_all: int = setting(
        whole(
            "CLAUDEOPS_MAX_SESSIONS_IN_ALL",
            "0",
            0,
            10_000,
            "sessions at once on all machines of the database; above 1, one is kept for tier 1; 0: no limit",
        )
    )


@settings_group
class TimeoutSettings:
    """How long a session, and each part of its life, may take."""

    session_seconds: float = setting(seconds("CLAUDEOPS_SESSION_TIMEOUT", "1800", ONE_DAY, "wall clock of one session"))
    startup_seconds: float = setting(
        seconds(
            "CLAUDEOPS_STARTUP_TIMEOUT",
            "60",
            3600,
            "until the first line; below the session's",
            below="CLAUDEOPS_SESSION_TIMEOUT",
        )
    )
    silence_seconds: float = setting(
        seconds(
            "CLAUDEOPS_SILENCE_TIMEOUT",
            "600",
            ONE_DAY,
            "without a sign of life, or for one tool call; below the session's",
            below="CLAUDEOPS_SESSION_TIMEOUT",
        )
    )
    result_grace_seconds: float = setting(
        seconds("CLAUDEOPS_RESULT_GRACE", "30", 3600, "after the result line until the process must have ended")
    )
    stop_grace_seconds: float = setting(
        seconds(STOP_GRACE, "10", 600, "the whole ladder from a polite stop to SIGKILL")
    )
    drain_seconds: float = setting(
        seconds("CLAUDEOPS_DRAIN_TIMEOUT", "60", ONE_DAY, "wait for running sessions when the daemon stops", low=0)
    )
    takeover_seconds: float = setting(
        seconds(
            TAKEOVER,
            "60",
            3600,
            "after the last sign of life of one of several daemons until others take over from it; the same for all, "
            f"and at least {ROOM_SECONDS:g} s more than `{STOP_GRACE}`",
            low=15,
        )
    )
    log_grace_seconds: float = setting(
        seconds(
            "CLAUDEOPS_LOG_GRACE",
            "600",
            ONE_DAY,
            "a dead daemon's session waits for one that has its log; then it is lost",
            low=0,
        )
    )


@settings_group
class ApprovalSettings:
    """What a person is asked for."""

    timeout_seconds: float = setting(
        seconds("CLAUDEOPS_APPROVAL_TIMEOUT", "900", ONE_DAY, "wait for a person's answer, then deny")
    )
    passkey_tiers: frozenset[int] = setting(  # whose approvals need a passkey's signature
        tier_list(
            "CLAUDEOPS_APPROVAL_PASSKEY",
            "off",
            "tiers whose approvals need a yes that a passkey signs, as `3` or `2,3`; `off`: none",
        )
    )


@settings_group
class BoundSettings:
    """What one session may use of the machine."""

    memory_mb: int = setting(
        whole(
            "CLAUDEOPS_SESSION_MEMORY_MB",
            "4096",
            256,
            1_048_576,
            "MiB for one session's processes together; files that are in memory come on top of it",
        )
    )
    processes: int = setting(
        whole("CLAUDEOPS_SESSION_PROCESSES", "1024", 128, 32_768, "processes and threads of one session at once")
    )
    file_mb: int = setting(
        whole("CLAUDEOPS_SESSION_FILE_MB", "1024", 16, 1_048_576, "MiB of one file that a session writes")
    )
    disk_mb: int = setting(
        whole(
            "CLAUDEOPS_SESSION_DISK_MB",
            "2048",
            64,
            1_048_576,
            "MiB of all files of one session; at level `bubblewrap` in memory, where that fits beside its processes",
        )
    )


@settings_group
class CompletionSettings:
    """What is looked for when a session ends."""

    legacy_markers: bool = setting(
        switch(
            "CLAUDEOPS_LEGACY_MARKERS", "true", "read text markers and the handoff file when no report was delivered"
        )
    )
    hang_heuristics: bool = setting(
        switch("CLAUDEOPS_HANG_HEURISTICS", "true", "notice sessions that ended with a question or a background task")
    )
    background_tasks_off: bool = setting(
        switch(
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
            "false",
            "background tasks are not looked for when a session ends; sessions get this variable in any case",
        )
    )
    repair_turn: bool = setting(
        switch("CLAUDEOPS_REPAIR_TURN", "true", "ask once more, in the same session, for a missing report")
    )


@settings_group
class CellSettings:
    """What stands around a session: the tried gate, the walls, the meter."""

    cli_self_test: bool = setting(
        switch("CLAUDEOPS_CLI_SELF_TEST", "true", "try the gate of a CLI that was not seen before")
    )
    isolation: str = setting(
        choice("CLAUDEOPS_ISOLATION", "auto bubblewrap user none", "what a session is locked into")
    )
    network: str = setting(  # ``listed``: its own, with what is listed; ``shared``: the machine's
        choice(
            "CLAUDEOPS_CELL_NETWORK", "listed shared", "whether a session in bubblewrap reaches what is listed, or all"
        )
    )
    meter: bool = setting(
        switch("CLAUDEOPS_METER", "on", "send model calls through the daemon, to count and limit them")
    )
