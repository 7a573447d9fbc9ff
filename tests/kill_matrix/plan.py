"""What happens in a trial, all of it drawn from one number."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final, Self

from claudeops.structs import replace
from kill_matrix.points import POINTS, Phase, Point
from kill_matrix.victims import SessionProcess, Victims

_HITS_DAEMON: Final = frozenset({Victims.DAEMON, Victims.BOTH, Victims.GUARDIAN_AND_DAEMON})
_HITS_CLI: Final = frozenset({Victims.CLI, Victims.BOTH})
_HITS_WRAPPER: Final = frozenset({Victims.GUARDIAN, Victims.GUARDIAN_AND_DAEMON})
_LONGEST_SECONDS: Final = 1.6  # from the start of a daemon; a chain of the stand-in takes about so long
_LONGEST_REAL_SECONDS: Final = 4.0
_VISITS: Final = (1, 1, 1, 2, 2, 3)
_MANY_VISITS: Final = frozenset({Phase.SESSION, Phase.END})  # in the other ones a daemon may come by once
_STRIDE: Final = 37  # no divisor of the number of points: those of one phase do not come in a row
_WITH_SESSION: Final = tuple(point for point in POINTS if point.place.phase is Phase.SESSION)
_AGAIN: Final = tuple(point for point in POINTS if point.place.phase in {Phase.RESTART, Phase.SESSION, Phase.END})
_PROBING: Final = frozenset(point.label for point in POINTS if point.place.phase is Phase.WATCH)
_FOLLOWING: Final = frozenset(point.label for point in POINTS if point.place.phase is Phase.FOLLOW)
_ANSWERED: Final = frozenset(label for label in _FOLLOWING if "by probes" in label)
_MIGRATING: Final = frozenset(point.label for point in POINTS if "migration" in point.place.label)
_HIDING: Final = 0.05
_SOON: Final = 0.3
_RETURNING: Final = 0.5
_PAUSED: Final = 0.2
_PAUSE_SECONDS: Final = (0.5, 4.0, 4.0, 18.0)
"""Shorter than anything; longer than a transaction may stand still (3 s); longer than the lease of a role (15 s)."""

_ONCE: Final = ("chain", "change", "failures", "planned", "answer")
"""What a trial has once: a change, its failures in the queue, its chain, the look at what that has changed, and what
was found by it. A daemon that is asked to stop there may well finish it, and leave nothing to the next one."""
_WATCHED: Final = 0.05
_COMPLETE: Final = (
    "after result on disk",
    "before child cleaned up",
    "after child cleaned up",
    "after log closed",
    "before end",
)
_AMENDING: Final = ("before amend", "after amend's statements", "after amend", "before lost ones looked for")
_WEIGHTS: Final[Mapping[Victims, int]] = {
    Victims.DAEMON: 10,
    Victims.BOTH: 4,
    Victims.CLI: 3,
    Victims.GUARDIAN: 2,
    Victims.GUARDIAN_AND_DAEMON: 2,
}


class Cli(StrEnum):
    """Who plays the sessions."""

    STAND_IN = "stand-in"
    REAL = "real"


class Blow(StrEnum):
    """By what a daemon is struck; everybody else gets SIGKILL."""

    KILL = "SIGKILL"
    TERM = "SIGTERM"
    INT = "SIGINT"
    TWICE = "SIGTERM and SIGINT"
    PAUSE = "SIGSTOP"  # and after some seconds SIGCONT

    @property
    def is_polite(self) -> bool:
        """Whether it is a request, after which a daemon ends by itself, with status 0."""
        return self not in {Blow.KILL, Blow.PAUSE}

    @property
    def signals(self) -> Sequence[signal.Signals]:
        """What is sent."""
        return [signal.Signals[name] for name in self.value.split(" and ")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Strike:
    """One signal, or several at once."""

    victims: Victims
    blow: Blow = Blow.KILL
    label: str | None = None  # of the point; None: after a time
    visit: int = 1  # so many times a daemon comes to the point before it is struck there
    after_seconds: float = 0.0  # since the start of that daemon
    seconds: float = 0.0  # for which it stands still, if it is not killed

    @classmethod
    def from_document(cls, document: object) -> Self | None:
        """Return what `document` made of it."""
        if not isinstance(document, dict):
            return None
        blow = Blow(document.get("blow", Blow.KILL))
        return cls(**{**document, "victims": Victims(document["victims"]), "blow": blow})

    def document(self) -> dict[str, object]:
        """Return it in the form in which another process gets it."""
        return asdict(self)

    @property
    def hits_daemon(self) -> bool:
        """Whether the daemon is among the victims."""
        return self.victims in _HITS_DAEMON

    def hits(self, processes: Sequence[SessionProcess]) -> Iterator[int]:
        """Return the pids of those that are victims."""
        for process in processes:
            if self.victims in (_HITS_WRAPPER if process.wraps else _HITS_CLI):
                yield process.pid

    def __str__(self) -> str:
        when = f"after {self.after_seconds:.3f} s" if self.label is None else f"{self.label} (visit {self.visit})"
        return f"{self.who} {when}"

    @property
    def who(self) -> str:
        """Return who is struck, and by what where that is no SIGKILL."""
        return self.victims.value if self.blow is Blow.KILL else f"{self.victims} by {self.blow}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """One trial."""

    seed: int
    cli: Cli
    isolation: str
    tiers: int  # the chain goes so far up
    looks: int  # model calls and tool calls of each session
    usage: int  # makes the tokens of a trial its own
    from_empty: bool  # the first daemon makes the database
    queued: int = 0  # chains that wait before the first daemon starts
    hides: bool = False  # the logs that the first daemon wrote are not there while the second one runs
    soon: bool = False  # a daemon follows within the interval; else each comes when a due time was missed
    drain: int = 60  # seconds
    watched: bool = False  # probes look at three services, of which one is down
    follows: bool = False  # somebody looks again at what was changed
    nodes: int = 1  # daemons that work on the database at the same time
    database: str = "sqlite"  # as `DatabaseKind` has it
    returns: bool = True  # of several nodes: one that has died is back at once; else when the others have settled all
    strikes: tuple[Strike, ...]  # one for each daemon; the last daemon is not struck

    @classmethod
    def from_document(cls, document: Mapping[str, object]) -> Self:
        """Return what `document` made of it."""
        strikes = document["strikes"]
        assert isinstance(strikes, list)
        known = tuple(strike for one in strikes if (strike := Strike.from_document(one)) is not None)
        return cls(**{**document, "cli": Cli(str(document["cli"])), "strikes": known})  # type: ignore[arg-type]

    def document(self) -> dict[str, object]:
        """Return it in the form in which it is kept: what a seed stands for may change, a plan does not."""
        return asdict(self)

    def __str__(self) -> str:
        struck = ", then ".join(map(str, self.strikes))
        told = f"seed {self.seed}: {self.cli} CLI, isolation {self.isolation}, {self.tiers} tiers, {self.queued} queued"
        nodes = "" if self.nodes == 1 else f", {self.nodes} nodes" + ("" if self.returns else ", back late")
        return f"{told}, {self.database}{nodes}; {struck}"


def plan_of(seed: int, *, real_cli: bool | None = None) -> Plan:
    """Return the trial of a seed. ``real_cli``: which CLI, where that is not left to the seed.

    Below 0 they are those of `polite_plan_of`.
    """
    if seed < 0:
        return polite_plan_of(-1 - seed)
    dice = random.Random(seed)  # noqa: S311 - dice that fall the same way every time
    real = dice.random() < 0.04  # drawn in any case: the rest of a seed's plan is the same with either CLI
    cli = Cli.REAL if (real if real_cli is None else real_cli) else Cli.STAND_IN
    isolation = dice.choice(("none", "none", "bubblewrap"))
    tiers, looks = dice.choice((1, 1, 2, 3)), dice.choice((1, 1, 1, 2))
    usage, empty, queued = dice.randrange(1, 1000), dice.random() < 0.1, dice.choice((0, 0, 0, 0, 0, 0, 1, 2))
    strikes = tuple(_strikes(seed, dice, longest=_LONGEST_SECONDS if cli is Cli.STAND_IN else _LONGEST_REAL_SECONDS))
    if hides := dice.random() < _HIDING:
        strikes = _around_a_lost_log(dice)
    probing = _is_struck(strikes, _PROBING | _ANSWERED)  # whose heartbeat is in the database before the first daemon is
    from_empty = (empty and not probing) or _is_struck(strikes, _MIGRATING)
    soon, watched, follows = (dice.random() < chance for chance in (_SOON, _WATCHED, _WATCHED))
    follows = follows or _is_struck(strikes, _FOLLOWING)
    return Plan(
        seed=seed,
        cli=cli,
        isolation=isolation,
        tiers=max(2, tiers) if follows else tiers,
        looks=looks,
        usage=usage,
        from_empty=from_empty,
        queued=0 if from_empty else queued,
        strikes=strikes,
        hides=hides,
        soon=not hides and soon,
        watched=not from_empty and (watched or probing),
        follows=follows,
    )


def _is_struck(strikes: Sequence[Strike], labels: frozenset[str]) -> bool:
    return any(strike.label in labels for strike in strikes)


# --- of several nodes -------------------------------------------------------------------------------------


def fleet_plan_of(seed: int, nodes: int, *, real_cli: bool | None = None) -> Plan:
    """Return the trial of a seed with several nodes, which need PostgreSQL; in some a daemon is stopped a while.

    No due time is missed, because one that lives is there; a chain is asked for with each strike instead.
    """
    plan, dice = plan_of(seed, real_cli=real_cli), random.Random(f"{nodes} nodes, {seed}")  # noqa: S311 - as above
    return replace(
        plan,
        nodes=nodes,
        database="postgresql",
        strikes=tuple(_paused(strike, dice) for strike in plan.strikes),
        returns=dice.random() < _RETURNING,
        hides=False,
        soon=True,
    )


def _paused(strike: Strike, dice: random.Random) -> Strike:
    """Return a strike by which, sometimes, a daemon stands still instead of being killed."""
    is_paused, seconds = dice.random() < _PAUSED, dice.choice(_PAUSE_SECONDS)
    if strike.blow is not Blow.KILL or strike.victims is not Victims.DAEMON or not is_paused:
        return strike
    return replace(strike, blow=Blow.PAUSE, seconds=seconds)


# --- polite ones ------------------------------------------------------------------------------------------


def polite_plan_of(number: int) -> Plan:
    """Return one of the trials in which daemons are asked to stop, at every point, by every polite blow.

    One round after the other, `POLITE_ROUND` trials each: SIGTERM, SIGINT, both at once.
    """
    which, place = divmod(number, POLITE_ROUND)
    blow = (Blow.TERM, Blow.INT, Blow.TWICE)[which]
    points = _POLITE_COURSES[place]
    dice = random.Random(number)  # noqa: S311 - as above
    strikes: list[Strike] = []
    for point in points:
        if point is None:
            after = round(dice.uniform(0.0, _LONGEST_SECONDS), 3)
            strikes.append(Strike(victims=Victims.DAEMON, blow=blow, after_seconds=after))
            continue
        if point.place.phase is Phase.RESTART:
            strikes.append(Strike(victims=Victims.DAEMON, label=_killed_before(point)))
        strikes.append(Strike(victims=Victims.DAEMON, blow=blow, label=point.label))
    return Plan(
        seed=-1 - number,
        cli=Cli.STAND_IN,
        isolation=dice.choice(("none", "none", "bubblewrap")),
        tiers=3,  # a daemon may go on with the second one, and has to come by what inserts a next one
        looks=1,
        usage=dice.randrange(1, 1000),
        from_empty=points[0] is not None and points[0].label in _MIGRATING,
        strikes=tuple(strikes),
        drain=dice.choice((0, 60)),
        watched=_is_struck(strikes, _PROBING | _ANSWERED),
        follows=_is_struck(strikes, _FOLLOWING),
    )


def _killed_before(point: Point) -> str:
    """Return where a daemon is killed, so that the next one comes by a point of its recovery."""
    return "after result on disk" if "recovered end" in point.label else "after gate's answer"


def _polite_courses() -> Iterator[Sequence[Point | None]]:
    """Yield the points of one round, some for each trial: a daemon for each of them, one after the other.

    ``None``: after a time.
    """
    migrating = [point for point in POINTS if point.label in _MIGRATING]
    # What follows a loss is inserted by the first daemon that takes over: a second loss is given up.
    restarting = sorted(
        (point for point in POINTS if point.place.phase is Phase.RESTART),
        key=lambda point: "recovery inserted" not in point.label,
    )
    apart = [point for point in POINTS if point.label in _PROBING | _FOLLOWING]
    others = [point for point in POINTS if point not in (*migrating, *restarting, *apart)]
    for number, point in enumerate(migrating):  # only the first daemon has something to migrate
        yield (point, *others[number * 2 : number * 2 + 2])
    yield from _in_pieces(others[2 * len(migrating) :], 3)
    once = [point for point in apart if any(name in point.label for name in _ONCE)]
    yield from _in_pieces([point for point in apart if point not in once], 3)
    yield from _in_pieces(once, 1)
    half = (len(restarting) + 1) // 2
    yield from (restarting[first::half] for first in range(half))
    yield from [(None,) * 3] * 2


def _in_pieces(points: Sequence[Point], size: int) -> Iterator[Sequence[Point]]:
    return (points[first : first + size] for first in range(0, len(points), size))


def _strikes(seed: int, dice: random.Random, *, longest: float) -> Iterator[Strike]:
    """Yield the strikes of a trial. Seeds that follow each other go through all points, every tenth is about time."""
    turn = seed - (seed + 1) // 10
    point = None if seed % 10 == 9 else POINTS[turn * _STRIDE % len(POINTS)]
    if point is not None and point.place.phase is Phase.RESTART:
        yield Strike(victims=Victims.DAEMON, label=dice.choice(_WITH_SESSION).label)
    yield _at(point, dice) if point else _after(dice, longest)
    for chance in (0.35, 0.3):
        if dice.random() >= chance:
            return
        yield _at(dice.choice(_AGAIN), dice) if dice.random() < 0.6 else _after(dice, longest)


def _around_a_lost_log(dice: random.Random) -> tuple[Strike, ...]:
    """Return the strikes by which a session ends as lost although its log is whole, and is then amended."""
    labels = (dice.choice(_COMPLETE), "after lose", dice.choice(_AMENDING))
    return tuple(Strike(victims=Victims.DAEMON, label=label) for label in labels)


def _at(point: Point, dice: random.Random) -> Strike:
    phase = point.place.phase
    # Where no CLI runs, there is the daemon to be struck; the dice fall all the same.
    victims = _victims(dice)
    visit = dice.choice(_VISITS)
    return Strike(
        victims=victims if phase is Phase.SESSION else Victims.DAEMON,
        label=point.label,
        visit=visit if phase in _MANY_VISITS else 1,
    )


def _after(dice: random.Random, longest: float) -> Strike:
    return Strike(victims=_victims(dice), after_seconds=round(dice.uniform(0.0, longest), 3))


_POLITE_COURSES: Final = tuple(_polite_courses())
POLITE_ROUND: Final = len(_POLITE_COURSES)
POLITE_ROUNDS: Final = 3


def _victims(dice: random.Random) -> Victims:
    return dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
