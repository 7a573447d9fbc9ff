"""Where a trial takes place: directories, a model that is scripted, sessions that do what the plan says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from claudeops.domain.chains.escalation import EscalationRules, TierChoice
from claudeops.domain.owner import Owner
from claudeops.domain.probes.probe import HeartbeatLook, PingVerb, Probe
from claudeops.domain.sessions import NewSession, Trigger
from claudeops.engine.gate.approval_key import ensure_key
from claudeops.scripted_api.script import Script
from kill_matrix.databases import DatabaseKind, Templates, TrialDatabase
from kill_matrix.plan import Cli, Plan
from support.operating import DUMMY_KEY, conclude, look
from support.stores import Database, opened

STAND_IN: Final = Path(__file__).parents[1] / "support" / "stand_in_cli.py"
MODELS: Final[Mapping[int, str]] = {1: "claude-haiku-4-5", 2: "claude-sonnet-4-5", 3: "claude-opus-4-5"}
FAMILIES: Final[Mapping[int, str]] = {1: "haiku", 2: "sonnet", 3: "opus"}
MAX_TOKENS: Final = 2000
_AWAY_DAYS: Final = 3  # longer than the interval
_CHANGE: Final = "docker restart web"
WELL: Final = "web"  # also the service that is acted upon
BROKEN: Final = "shop"
HEARD: Final = "backup"
_MISSED: Final = {
    DatabaseKind.SQLITE: (
        "UPDATE schedule_fires SET due_at = strftime('%Y-%m-%d %H:%M:%f000', due_at, '-{days} days')"
        " WHERE rowid = {place}"
    ),
    DatabaseKind.POSTGRESQL: (
        "UPDATE schedule_fires SET due_at = due_at - interval '{days} days' WHERE ctid = '{place}'"
    ),
}
_PLACE: Final = {DatabaseKind.SQLITE: "rowid", DatabaseKind.POSTGRESQL: "ctid"}  # of a row
PROBES: Final = (WELL, BROKEN, HEARD)
"""The probes of a trial and their services: one that is up, one that is down, and a heartbeat that is heard."""

PINGED_AT: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
_BEAT: Final = Probe(name=HEARD, service=HEARD, look=HeartbeatLook(every=366 * 86400.0), origin="the kill matrix")
_PROBES: Final = """
[defaults]
interval = "1s"
failures = 1
successes = 1

[[probe]]
name = "{well}"
kind = "tcp"
host = "127.0.0.1"
port = {port}

[[probe]]
name = "{broken}"
kind = "tcp"
host = "127.0.0.1"
port = {closed}

[[probe]]
name = "{heard}"
kind = "heartbeat"
every = "366d"
"""
_PROMPT: Final = "go on " * 3000
"""More bytes than `World._usage` ever says that it has tokens: no token is less than a byte."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the daemons of one node live, one after the other."""

    root: Path

    @property
    def state(self) -> Path:
        """What a daemon keeps between its starts."""
        return self.root / "state"

    @property
    def results(self) -> Path:
        """Where the logs of sessions are."""
        return self.root / "results"

    @property
    def sessions(self) -> Path:
        """Where workspaces are while sessions run."""
        return self.state / "sessions"

    def output(self, number: int) -> Path:
        """Return the log of the n-th daemon."""
        return self.root / f"daemon-{number}.log"


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """The places of one trial."""

    root: Path
    plan: Plan
    database: TrialDatabase

    @classmethod
    def make(cls, root: Path, plan: Plan, templates: Templates) -> Self:
        """Make the directories, and a database from a migrated one unless the first daemon is to make it."""
        for machine in _machines(root, plan):
            for place in (machine.state, machine.results):
                place.mkdir(parents=True)
        if plan.nodes > 1:  # by which all of them prove what people have answered
            first, *others = _machines(root, plan)
            ensure_key(first.state)
            for machine in others:
                shutil.copy(first.state / "approval.key", machine.state)
        for name in ("home", "repos/estate"):
            (root / name).mkdir(parents=True)
        (root / "repos" / "estate" / "CLAUDE-OPS.md").write_text("# web\n", encoding="utf-8")
        kind, file = DatabaseKind(plan.database), root / "state" / "claudeops.db"
        world = cls(root=root, plan=plan, database=templates.copy(kind, file, is_empty=plan.from_empty))
        steps = {str(tier): world._steps(tier) for tier in MODELS}
        (root / "steps.json").write_text(json.dumps(steps), encoding="utf-8")
        return world

    @property
    def machines(self) -> Sequence[Machine]:
        """Where daemons live: as many as there are nodes."""
        return _machines(self.root, self.plan)

    @property
    def asked(self) -> int:
        """How many chains somebody asks for: those that wait at first, and with several nodes one for each strike."""
        return self.plan.queued + (len(self.plan.strikes) if self.plan.nodes > 1 else 0)

    def environment(self, api_url: str, machine: Machine) -> dict[str, str]:
        """Return the whole environment of a daemon."""
        told = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.root / "home"),
            "ANTHROPIC_BASE_URL": api_url,
            "ANTHROPIC_API_KEY": DUMMY_KEY,
            "CLAUDEOPS_STATE_DIR": str(machine.state),
            "CLAUDEOPS_RESULTS_DIR": str(machine.results),
            "CLAUDEOPS_REPOS_DIR": str(self.root / "repos"),
            "CLAUDEOPS_CLI_SELF_TEST": "false",
            "CLAUDEOPS_LISTENER": "off",  # many daemons run at once, and there is one default port
            "CLAUDEOPS_ISOLATION": self.plan.isolation,
            "CLAUDEOPS_INTERVAL": "86400",
            "CLAUDEOPS_FOLLOW_UP_DELAY": "1" if self.plan.follows else "0",
            # What a killed call may have cost counts until it is known: that must not end the trial.
            "CLAUDEOPS_DAILY_BUDGET_USD": "1000",
            "CLAUDEOPS_CHAIN_BUDGET_USD": "300",
            "CLAUDEOPS_STOP_GRACE": "4",
            "CLAUDEOPS_DRAIN_TIMEOUT": str(self.plan.drain),
        }
        if self.plan.cli is Cli.STAND_IN:
            told["CLAUDEOPS_CLAUDE_BIN"] = str(STAND_IN)
            told["STAND_IN_STEPS"] = str(self.root / "steps.json")
            told |= {f"CLAUDEOPS_TIER{tier}_ENV": "STAND_IN_STEPS" for tier in MODELS}
        if self.plan.watched:
            told["CLAUDEOPS_PROBES_PATH"] = str(self._probes)
        if DatabaseKind(self.plan.database) is not DatabaseKind.SQLITE:
            told["CLAUDEOPS_DATABASE_URL"] = self.database.url
        if self.plan.nodes > 1:
            told |= {"CLAUDEOPS_DISPATCHER": "procrastinate", "CLAUDEOPS_NODE": machine.root.name}
        return told

    @property
    def _probes(self) -> Path:
        return self.root / "probes.toml"

    def declare_probes(self, *, port: int, closed: int) -> None:
        """Write the file of probes: of a port that answers, of one that does not, and of a heartbeat."""
        ports = {"port": port, "closed": closed}
        self._probes.write_text(_PROBES.format(well=WELL, broken=BROKEN, heard=HEARD, **ports), encoding="utf-8")

    async def ping(self) -> None:
        """Ping the heartbeat once, as somebody's job did before the first daemon started."""
        nobody = Owner(name="nobody", pid=1, process_started_at=1.0, boot_id="none")
        async with opened(Database(self.database.url)) as store:
            await store.probes.enrol((_BEAT,), nobody, now=PINGED_AT)
            await store.probes.ping(HEARD, PingVerb.SUCCESS, at=PINGED_AT)

    def hide_logs(self, *, hidden: bool) -> set[str]:
        """Take the logs of sessions away, as a disk that is not mounted, or put them back; return their names."""
        away, (machine,) = self.root / "results-away", self.machines
        away.mkdir(exist_ok=True)
        source, target = (machine.results, away) if hidden else (away, machine.results)
        names = {path.name for path in source.iterdir()}
        for name in names:
            (source / name).rename(target / name)
        return names

    def miss_a_due_time(self) -> None:
        """Let the time pass in which a due time comes and goes without a daemon: what was fired was fired earlier."""
        kind = DatabaseKind(self.plan.database)
        for fire in self.database.rows(f"SELECT {_PLACE[kind]} AS place FROM schedule_fires ORDER BY due_at"):  # noqa: S608
            # Oldest first: no two of them are the same at any moment.
            self.database.execute(_MISSED[kind].format(days=_AWAY_DAYS, place=fire["place"]))

    async def queue(self, chains: int) -> None:
        """Queue chains beside those of the schedule, as an operator does."""
        if not chains:
            return
        choices = tuple(TierChoice(number=tier, model=family) for tier, family in FAMILIES.items())
        rules = EscalationRules(max_tier=3, dry_run=False, tiers=choices)
        async with opened(Database(self.database.url)) as store:
            for _ in range(chains):
                new = NewSession(tier=1, trigger=Trigger.API, model=FAMILIES[1])
                await store.queue.enqueue(new, rules=rules, now=datetime.now(UTC))

    def script(self) -> Script:
        """Return what the model API says."""
        tiers = {
            family: {"model": family, "steps": self._answers(tier), "repeat_last": True}
            for tier, family in FAMILIES.items()
        }
        return Script.from_mapping({"tiers": tiers})

    # --- what sessions do -------------------------------------------------------------------------------

    def _escalates(self, tier: int) -> bool:
        return tier < self.plan.tiers

    def _status(self, tier: int) -> str:
        """Return what a report says of the service: nobody looks at it after the change, so not that it is well."""
        return "down" if self._escalates(tier) else "degraded"

    def _usage(self, tier: int) -> dict[str, int]:
        return {
            "input_tokens": 10 * self.plan.usage + tier,
            "output_tokens": 2 + self.plan.usage % 97,
            "cache_creation_input_tokens": self.plan.usage,
            "cache_read_input_tokens": 3 * self.plan.usage,
        }

    def _commands(self, tier: int) -> Sequence[str]:
        """Return what is run: looks, and behind them a change where the tier may change things."""
        return ("uptime",) * self.plan.looks if tier == 1 else ("uptime", _CHANGE)

    def _answers(self, tier: int) -> Sequence[Mapping[str, object]]:
        if self.plan.cli is Cli.STAND_IN:
            return [{"text": "I think.", "usage": self._usage(tier), "times": 1000}]
        looks = [{**look(command), "usage": self._usage(tier)} for command in self._commands(tier)]
        ending = conclude(needed=self._escalates(tier), status=self._status(tier))
        return [*looks, {**ending, "usage": self._usage(tier)}]

    def _steps(self, tier: int) -> Sequence[Mapping[str, object]]:
        """Return what the stand-in does; its report says by which session it was given."""
        init = {"type": "system", "subtype": "init", "permissionMode": "dontAsk", "tools": ["Bash"], "mcp_servers": []}
        steps: list[Mapping[str, object]] = [{"frame": init}]
        for number, command in enumerate(self._commands(tier)):
            steps.append({"ask_model": _asked(tier)})
            steps.append({"tool": {"id": f"toolu_{number}", "name": "Bash", "input": {"command": command}}})
        document = conclude(
            needed=self._escalates(tier),
            status=self._status(tier),
            summary="report of {{session_id}}",
            events=[{"level": "info", "service": "web", "message": "seen by {{session_id}}"}],
        )["report"]
        steps.append({"ask_model": _asked(tier)})
        steps.append({"result": {"structured_output": document, "result": json.dumps(document)}})
        return steps


def _machines(root: Path, plan: Plan) -> Sequence[Machine]:
    if plan.nodes == 1:
        return (Machine(root),)
    return tuple(Machine(root / f"node-{number}") for number in range(1, plan.nodes + 1))


def _asked(tier: int) -> Mapping[str, object]:
    return {
        "model": MODELS[tier],
        "max_tokens": MAX_TOKENS,
        "stream": True,
        "messages": [{"role": "user", "content": _PROMPT}],
        "metadata": {"user_id": json.dumps({"session_id": "{{session_id}}"})},
    }
