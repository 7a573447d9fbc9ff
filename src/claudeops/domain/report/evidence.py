"""The evidence behind a report that asks for nothing more.

The daemon does not know what a healthy answer looks like. It knows what was asked, when, and whether the call failed.
So it holds every such report to what it can know:

- Something was looked at, by a call that returned without an error.
- A service that was acted upon needs a look at that very service: requested after the last action on it had ended, and
  not failed. That holds for actions of this session, and for those of an earlier one of its chain that did not show the
  service healthy again. A look that was requested together with the action may have come before it, and the action
  itself is not a look.
- A report must not leave out a service which its chain has acted upon, or has found down; the report of a whole round
  none that the manifests name.
- An action that ended in an error, or has no result, contradicts the report, whatever was looked at since; unless
  another action on the same service came after it and worked.
- A probe of the daemon's own that sees a service down contradicts a report that calls it healthy, unless the session
  has acted on it since the probe looked.

A look is at a service when it asks for it by one of its names, as a host, or at an address that somebody else has
connected with it: an earlier session's report, or the words that started the chain. The report's own words connect
nothing. A look need not be a model's: an answer to a probe of the daemon's own is one too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from claudeops.domain.looks import Address, Look, addresses_in
from claudeops.domain.model import Handover, Report, ServiceCheck, ServiceStatus, ToolEnd
from claudeops.domain.probe.model import ProbeSight
from claudeops.domain.text import casefold_key, join_names

BROKEN: Final = frozenset({ServiceStatus.DOWN, ServiceStatus.UNREACHABLE})

_BETWEEN_WORDS: Final = str.maketrans(dict.fromkeys(",;()[]'\"", " "))


class Names:
    """The names of services. Two names of one service count as one, whatever their case."""

    def __init__(self, other_names: Mapping[str, str], cut: Callable[[str], str] = str) -> None:
        """Take the other names of services, and how a stored name is cut."""
        self._cut = cut
        self._canonical = {casefold_key(cut(other)): casefold_key(cut(name)) for other, name in other_names.items()}

    def of(self, name: str) -> str:
        """Return the canonical form of a name."""
        plain = casefold_key(self._cut(name))
        return self._canonical.get(plain, plain)


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenAction:
    """An action of the session, as the ledger has it."""

    kind: str
    service: str
    tool_use_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PastCheck:
    """A check of an earlier session of the chain; a healthy one was proven."""

    session_id: int
    service: str
    status: ServiceStatus
    detail: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """A text from outside the session, and its service; ``None``: whichever service it names."""

    text: str
    service: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Background:
    """What a session's chain has left before it."""

    acted_on: tuple[str, ...] = ()  # services that were acted upon and not shown healthy since
    down: tuple[str, ...] = ()  # services that were last found down or unreachable
    services: tuple[str, ...] = ()  # every service that was checked
    statements: tuple[Statement, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """How far a report can be believed."""

    looked: bool  # something was looked at, and answered
    lacks: tuple[str, ...] = ()  # clauses that say what is missing
    services: tuple[str, ...] = ()  # the services that these are about
    unproven: frozenset[str] = frozenset()  # canonical names of services that are healthy by the report's word alone
    names: Names

    def doubts(self, service: str) -> bool:
        """Tell whether nothing shows that a service is healthy."""
        return self.names.of(service) in self.unproven


NOTHING_BEFORE: Final = Background()


def background(
    *,
    checks: Sequence[PastCheck],
    actions: Iterable[tuple[int, str]],
    handovers: Iterable[Handover],
    request: str | None,
    names: Names,
) -> Background:
    """Return what earlier sessions have left. ``actions`` are pairs of session and service; all are in their order."""
    latest = {names.of(check.service): check for check in checks}
    shown_by = {names.of(check.service): check.session_id for check in checks if check.status is ServiceStatus.HEALTHY}
    acted = {names.of(name): name for session, name in actions if shown_by.get(names.of(name), -1) < session}
    statements = [Statement(text=check.detail, service=check.service) for check in checks if check.detail]
    statements += [Statement(text=failed) for handover in handovers for failed in handover.failed_checks]
    statements += [Statement(text=request)] if request else []
    return Background(
        acted_on=tuple(acted.values()),
        down=tuple(check.service for check in latest.values() if check.status in BROKEN),
        services=tuple(latest),
        statements=tuple(statements),
    )


def weigh(
    report: Report,
    *,
    looks: Sequence[Look],
    ends: Sequence[ToolEnd],
    actions: Sequence[TakenAction],
    before: Background,
    names: Names,
    expected: Iterable[str] = (),
    probes: Sequence[ProbeSight] = (),
    began_at: datetime | None = None,
) -> Proof:
    """Return how far a report can be believed that asks for nothing more.

    ``ends`` are in order of arrival; ``expected`` are the services that it must not leave out. ``probes`` are how the
    daemon's own stand now; the session began at ``began_at``.
    """
    reported = {names.of(check.service): check for check in report.services_checked}
    acted = _last_actions(actions, ends, names)
    in_question = {names.of(name): name for name in (*before.acted_on, *(last.service for last in acted.values()))}
    found_down = {names.of(name): name for name in before.down}
    written = {**found_down, **in_question, **{service: check.service for service, check in reported.items()}}
    sights = _Sights(probes=probes, names=names, acted=acted, began_at=began_at)
    ties = _Ties(before.statements, services=(*before.services, *written), names=names)

    def seen(service: str) -> bool:
        since = acted.get(service, _NEVER).ended_as
        asked = any(look.results_before > since and ties.bears(look, service) for look in looks)
        return asked or sights.show_up(service)

    unseen = [service for service in in_question if not seen(service)]
    failed = [service for service, last in acted.items() if last.failure]
    believed = {service for service, check in reported.items() if check.status not in BROKEN}
    contradicted = [service for service in failed if service in believed or service not in reported]
    denied = sights.denied(reported)
    unlooked = [service for service in unseen if service in believed]
    left_out = [service for service in {**in_question, **found_down} if service not in reported]
    lacks = [f"the {acted[service].kind} of {written[service]} {acted[service].failure}" for service in contradicted]
    lacks += [f"the probe {probe} sees {written[service]} down" for service, probe in denied.items()]
    for services, what in (
        (unlooked, "no look at {} came back after the last action"),
        (left_out, "{} was acted upon or found down, and is left out"),
    ):
        lacks += [what.format(join_names([written[service] for service in services]))] if services else []
    missing = _missing(expected, report, names)
    lacks += [f"{join_names(missing)} is expected and left out"] if missing else []
    about = dict.fromkeys((*contradicted, *denied, *unlooked, *left_out))
    return Proof(
        looked=bool(looks),
        lacks=tuple(lacks),
        services=tuple(dict.fromkeys((*(written[service] for service in about), *missing))),
        unproven=frozenset({*unseen, *failed, *denied}),
        names=names,
    )


def looks_at(service: str | None, looks: Iterable[Look], *, before: Background, names: Names) -> tuple[Look, ...]:
    """Return the looks that bear on a service; on none in particular (``None``) every look does."""
    if service is None:
        return tuple(looks)
    wanted = names.of(service)
    ties = _Ties(before.statements, services=(*before.services, wanted), names=names)
    return tuple(look for look in looks if ties.bears(look, wanted))


def _missing(expected: Iterable[str], report: Report, names: Names) -> tuple[str, ...]:
    """Return the expected services that a report leaves out, by any name and wherever it says that they run."""
    reported = {
        names.of(name)
        for check in report.services_checked
        for name in (check.service, check.service.rpartition("/")[2], check.service.removesuffix(".service"))
    }
    wanted = {names.of(name): name for name in expected}
    return tuple(name for service, name in wanted.items() if service not in reported)


def seen_by_probes(sights: Sequence[ProbeSight]) -> tuple[ServiceStatus, datetime] | None:
    """Return how all probes of one service see it now, and since when at the latest; ``None``: they do not know."""
    looks = [sight.began_at for sight in sights if sight.began_at is not None]
    if not sights or len(looks) < len(sights):
        return None
    if any(sight.is_down for sight in sights):
        return ServiceStatus.DOWN, max(looks)
    if all(sight.shows_up_after(datetime.min.replace(tzinfo=UTC)) for sight in sights):
        return ServiceStatus.HEALTHY, min(looks)
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class _LastAction:
    """The action on a service that ended last."""

    kind: str = ""
    service: str = ""
    ended_as: float  # its place among the results, from 0; infinite: no result came
    failure: str = ""  # a clause about it, if it did not work
    ended_at: datetime | None = None  # null: no result came


_NEVER: Final = _LastAction(ended_as=-1)


def _last_actions(actions: Iterable[TakenAction], ends: Iterable[ToolEnd], names: Names) -> dict[str, _LastAction]:
    placed = {end.tool_use_id: (place, end.is_error, end.ended_at) for place, end in enumerate(ends)}
    last: dict[str, _LastAction] = {}
    for deed in actions:
        service = names.of(deed.service)
        place, is_error, ended_at = placed.get(deed.tool_use_id, (math.inf, False, None))
        failure = "shows no result" if place == math.inf else "ended in an error" if is_error else ""
        if service not in last or place >= last[service].ended_as:
            last[service] = _LastAction(
                kind=deed.kind, service=deed.service, ended_as=place, failure=failure, ended_at=ended_at
            )
    return last


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sights:
    """What the daemon's own probes say to a report."""

    probes: Sequence[ProbeSight]
    names: Names
    acted: Mapping[str, _LastAction]  # by service
    began_at: datetime | None  # the session

    def show_up(self, service: str) -> bool:
        """Tell whether a probe has seen a service up after what was last done about it."""
        since = self.acted[service].ended_at if service in self.acted else self.began_at
        own = (sight for sight in self.probes if self.names.of(sight.service) == service)
        return since is not None and any(sight.shows_up_after(since) for sight in own)

    def denied(self, reported: Mapping[str, ServiceCheck]) -> dict[str, str]:
        """Return the services that are called healthy and that a probe sees down, each with the probe's name."""
        healthy = {service for service, check in reported.items() if check.status is ServiceStatus.HEALTHY}
        return {
            service: sight.probe
            for sight in self.probes
            if (service := self.names.of(sight.service)) in healthy and self._stands(sight, service)
        }

    def _stands(self, sight: ProbeSight, service: str) -> bool:
        """Tell whether a probe has seen its service down, and the session has done nothing about it since."""
        since = self.acted.get(service, _NEVER).ended_at
        return sight.is_down and (since is None or (sight.began_at is not None and sight.began_at > since))


class _Ties:
    """Which service answers at which address, according to texts from outside the session."""

    def __init__(self, statements: Iterable[Statement], *, services: Iterable[str], names: Names) -> None:
        self._names = names
        self._known = frozenset(map(names.of, services))
        self._paths: dict[tuple[str, int], dict[str, set[str]]] = {}
        for each in statements:
            found = addresses_in(each.text)
            owners = self._named_in(each.text) if each.service is None else frozenset({names.of(each.service)})
            if len(owners) == 1 and len({(address.host, address.port) for address in found}) == 1:
                for address in found:
                    paths = self._paths.setdefault((address.host, address.port), {})
                    paths.setdefault(address.path, set()).update(owners)

    def bears(self, look: Look, service: str) -> bool:
        """Tell whether a look is one at a service."""
        named_it = any(self._names.of(name) == service for name in look.names)
        return named_it or any(self._answers_for(address, service) for address in look.addresses)

    def _answers_for(self, address: Address, service: str) -> bool:
        if service in {self._names.of(address.host), self._names.of(address.host.partition(".")[0])}:
            return True
        paths = self._paths.get((address.host, address.port), {})
        # One server may answer for many services: then the path decides which of them is asked.
        return set().union(*paths.values()) == {service} or paths.get(address.path) == {service}

    def _named_in(self, text: str) -> frozenset[str]:
        words = {word.strip(".:") for word in text.casefold().translate(_BETWEEN_WORDS).split()}
        return self._known & set(map(self._names.of, {*words, text.partition(":")[0]}))
