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
- A service for which the chain was started (by an alert, an incident, a request) is reported healthy with a look at
  that very service, or has been shown healthy by an earlier session of the chain since its latest alert. A look around
  is none, and *degraded* asks for the next tier.
- An action that ended in an error, or has no result, contradicts the report, whatever was looked at since; unless
  another action on the same service came after it and worked.
- A probe of the daemon's own that sees a service down contradicts a report that calls it healthy, unless the session
  has acted on it since the probe looked.

A look is at a service when it asks for it by one of its names, as a host, or at an address that somebody else has
connected with it: an earlier session's report, the words that started the chain, or an alert. The report's own words
connect nothing. Where a chain was started for a host, any look that ran there by ssh is one at it. A look need not be
a model's: an answer to a probe of the daemon's own is one too.

Services that were acted upon are compared strictly: a restart in one place proves nothing about another. Those for
which a chain was started may be called by less or more than their whole name (`claudeops.domain.report.meanings`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from claudeops.domain.actions import PastAction
from claudeops.domain.calls import ToolEnd
from claudeops.domain.looks import Address, EvidenceLook, addresses_in
from claudeops.domain.probes.probe import ProbeSight
from claudeops.domain.report.meanings import KnownServices, Meanings
from claudeops.domain.report.report import PastCheck, Report, ServiceCheck, ServiceStatus
from claudeops.domain.sessions import Handover
from claudeops.text import join_names

__all__ = [
    "BROKEN",
    "NOTHING_BEFORE",
    "Background",
    "ChainCause",
    "KnownServices",
    "Proof",
    "Statement",
    "background",
    "looks_at",
    "seen_by_probes",
    "weigh",
]

BROKEN: Final = frozenset({ServiceStatus.DOWN, ServiceStatus.UNREACHABLE})

_BETWEEN_WORDS: Final = str.maketrans(dict.fromkeys(",;()[]'\"", " "))


class ChainCause(msgspec.Struct, frozen=True, kw_only=True):
    """A service for which a chain was started."""

    service: str
    since: datetime | None = None  # of its latest alert; None: there is none


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """A text from outside the session, and its service; ``None``: whichever service it names."""

    text: str
    service: str | None = None


class Background(msgspec.Struct, frozen=True, kw_only=True):
    """What a session's chain has left before it."""

    acted_on: tuple[str, ...] = ()  # services that were acted upon and not shown healthy since
    down: tuple[str, ...] = ()  # services that were last found down or unreachable
    services: tuple[str, ...] = ()  # every service that was checked
    statements: tuple[Statement, ...] = ()
    causes: tuple[str, ...] = ()  # services that the chain was started for, and has not shown healthy since


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """How far a report can be believed."""

    looked: bool  # something was looked at, and answered
    lacks: tuple[str, ...] = ()  # clauses that say what is missing
    services: tuple[str, ...] = ()  # the services that these are about
    unproven: frozenset[str] = frozenset()  # canonical names of services that are healthy by the report's word alone
    looked_at: frozenset[str] = frozenset()  # canonical names of reported services with a look, or a probe's answer
    causes: tuple[str, ...] = ()  # services that the chain was started for, and has not shown healthy yet
    names: KnownServices

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
    names: KnownServices,
    causes: Iterable[ChainCause] = (),
    said: Iterable[Statement] = (),
) -> Background:
    """Return what earlier sessions have left. ``actions`` are pairs of session and service; all are in their order.

    ``said``: what alerts say of their services.
    """
    latest = {names.of(check.service): check for check in checks}
    healthy = [check for check in checks if check.status is ServiceStatus.HEALTHY]
    shown_by = {names.of(check.service): check.session_id or 0 for check in healthy}
    acted = {names.of(name): name for session, name in actions if shown_by.get(names.of(name), -1) < session}
    statements = [Statement(text=check.detail, service=check.service) for check in checks if check.detail]
    statements += [Statement(text=failed) for handover in handovers for failed in handover.failed_checks]
    statements += [Statement(text=request)] if request else []
    started_for = _unsettled(causes, latest.values(), acted, names)
    return Background(
        acted_on=tuple(acted.values()),
        down=tuple(check.service for check in latest.values() if check.status in BROKEN),
        services=tuple(latest),
        statements=(*statements, *said),
        causes=started_for,
    )


def _unsettled(
    causes: Iterable[ChainCause], latest: Iterable[PastCheck], acted: Iterable[str], names: KnownServices
) -> tuple[str, ...]:
    """Return the services that started a chain and that it has not shown healthy since."""
    wanted: dict[str, ChainCause] = {}
    for cause in causes:
        known = wanted.setdefault(names.of(cause.service), cause)
        if cause.since is not None and (known.since is None or known.since < cause.since):
            wanted[names.of(cause.service)] = cause
    meant = Meanings(wanted, names)
    changed = set(acted)
    healthy = {check.service: check.at for check in latest if check.status is ServiceStatus.HEALTHY}
    settled = {
        service
        for name, at in healthy.items()
        if names.of(name) not in changed
        for service in meant.of(name)
        if (since := wanted[service].since) is None or at >= since
    }
    return tuple(cause.service for service, cause in wanted.items() if service not in settled)


def weigh(
    report: Report,
    *,
    looks: Sequence[EvidenceLook],
    ends: Sequence[ToolEnd],
    actions: Sequence[PastAction],
    before: Background,
    names: KnownServices,
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
    own = (Statement(text=service, service=service) for service in before.causes)  # an alert's may be an address
    ties = _Ties((*before.statements, *own), services=(*before.services, *before.causes, *written), names=names)
    seen = _Seen(looks=looks, ties=ties, sights=sights, acted=acted, names=names)
    alone = _SeenLoosely.of(reported, seen)

    unseen = [service for service in in_question if not seen.strictly(service)]
    failed = [service for service, last in acted.items() if last.failure]
    believed = {service for service, check in reported.items() if check.status not in BROKEN}
    contradicted = [service for service in failed if service in believed or service not in reported]
    denied = sights.denied(reported)
    unlooked = [service for service in unseen if service in believed]
    left_out = [service for service in {**in_question, **found_down} if service not in reported]
    lacks = [f"the {acted[service].kind} of {written[service]} {acted[service].failure}" for service in contradicted]
    lacks += [f"the probe {probe} sees {written[service]} down" for service, probe in denied.items()]
    lacks += _clause("no look at {} came back after the last action", [written[service] for service in unlooked])
    lacks += _clause("{} was acted upon or found down, and is left out", [written[service] for service in left_out])
    missing = _missing(expected, report, names)
    lacks += _clause("{} is expected and left out", missing)
    about = [written[service] for service in dict.fromkeys((*contradicted, *denied, *unlooked, *left_out))]
    cause = _weigh_causes(before.causes, report, seen, alone, besides=(*about, *missing))
    return Proof(
        looked=bool(looks),
        lacks=(*lacks, *cause.lacks),
        services=tuple(dict.fromkeys((*about, *missing, *cause.services))),
        unproven=frozenset({*unseen, *failed, *denied, *cause.unproven}),
        looked_at=frozenset(service for service in reported if alone.shows(service)) | cause.seen,
        causes=cause.left,
        names=names,
    )


def _clause(what: str, services: Sequence[str]) -> list[str]:
    return [what.format(join_names(services))] if services else []


class _CauseProof(msgspec.Struct, frozen=True, kw_only=True):
    """What a report lacks about the services for which its chain was started."""

    lacks: tuple[str, ...]
    services: tuple[str, ...]
    unproven: frozenset[str]  # canonical names, as reported
    seen: frozenset[str]  # the same of those that were looked at
    left: tuple[str, ...]  # those that are not shown healthy


def _weigh_causes(
    causes: Sequence[str], report: Report, seen: _Seen, alone: _SeenLoosely, *, besides: Iterable[str]
) -> _CauseProof:
    """Return what a report lacks about ``causes``; about ``besides`` something is said already.

    ``alone`` is what was seen of each reported service by itself.
    """
    names = seen.names
    meanings = Meanings(causes, names)
    loosely = _SeenLoosely.of(causes, seen, by_hosts=True)
    said: dict[str, list[ServiceCheck]] = {service: [] for service in causes}
    for check in report.services_checked:
        for service in meanings.of(check.service):
            said[service].append(check)
    left_out = [service for service, checks in said.items() if not checks]
    unlooked: list[str] = []
    unwell: list[str] = []
    unproven: set[str] = set()
    shown: set[str] = set()
    for service, checks in said.items():
        unseen = _unseen(service, checks, loosely, alone)
        unproven |= set(unseen)
        statuses = {check.status for check in checks}
        if ServiceStatus.DEGRADED in statuses:
            unwell.append(service)
        elif unseen and statuses.isdisjoint(BROKEN):
            unlooked += unseen.values() if loosely.shows(service) else [service]
        elif not unseen and statuses == {ServiceStatus.HEALTHY}:
            shown.add(service)
    known = set(map(names.of, besides))
    unlooked, left_out = ([each for each in some if names.of(each) not in known] for some in (unlooked, left_out))
    return _CauseProof(
        lacks=(
            *_clause("no look at {} came back without an error", unlooked),
            *_clause("the chain is about {}, which the report leaves out", left_out),
            *_clause("{} is reported degraded, yet the report does not escalate", unwell),
        ),
        services=(*unlooked, *left_out, *unwell),
        unproven=frozenset(unproven),
        seen=frozenset(names.of(check.service) for checks in said.values() for check in checks) - unproven,
        left=tuple(service for service in causes if service not in shown),
    )


def _unseen(cause: str, checks: Sequence[ServiceCheck], loosely: _SeenLoosely, alone: _SeenLoosely) -> dict[str, str]:
    """Return the checks of a cause that nobody has looked at, by canonical name.

    A look at the cause is one at the service that it means. Where several are reported, which differ in where they
    run, each needs its own.
    """
    names = loosely.seen.names
    reported = {names.of(check.service): check.service for check in checks}
    if not loosely.shows(cause):
        return reported
    length = len(names.place_and_name(cause))
    narrower = [service for service in reported if len(names.place_and_name(service)) > length]
    unseen = [service for service in narrower if not alone.shows(service)] if len(narrower) > 1 else []
    return {service: reported[service] for service in unseen}


def looks_at(
    service: str | None, looks: Iterable[EvidenceLook], *, before: Background, names: KnownServices
) -> tuple[EvidenceLook, ...]:
    """Return the looks that bear on a service; on none in particular (``None``) every look does."""
    if service is None:
        return tuple(looks)
    wanted = names.of(service)
    ties = _Ties(before.statements, services=(*before.services, wanted), names=names)
    return tuple(look for look in looks if ties.bears(look, wanted))


def _missing(expected: Iterable[str], report: Report, names: KnownServices) -> tuple[str, ...]:
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


class _LastAction(msgspec.Struct, frozen=True, kw_only=True):
    """The action on a service that ended last."""

    kind: str = ""
    service: str = ""
    ended_as: float  # its place among the results, from 0; infinite: no result came
    failure: str = ""  # a clause about it, if it did not work
    ended_at: datetime | None = None  # null: no result came


_NEVER: Final = _LastAction(ended_as=-1)


def _last_actions(
    actions: Iterable[PastAction], ends: Iterable[ToolEnd], names: KnownServices
) -> dict[str, _LastAction]:
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


class _Sights(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon's own probes say to a report."""

    probes: Sequence[ProbeSight]
    names: KnownServices
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


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at after what was last done about it."""

    looks: Sequence[EvidenceLook]
    ties: _Ties
    sights: _Sights
    acted: Mapping[str, _LastAction]  # by service
    names: KnownServices

    def strictly(self, service: str) -> bool:
        """Tell whether a service was looked at by exactly its name or address, or a probe has seen it up."""
        return self.asked(service, self.acted.get(service, _NEVER).ended_as) or self.sights.show_up(service)

    def asked(self, service: str, since: float) -> bool:
        """Tell whether a look at exactly this service was requested after a result."""
        return any(look.results_before > since and self.ties.bears(look, service) for look in self.looks)


class _SeenLoosely(msgspec.Struct, frozen=True, kw_only=True):
    """The same for services whose names may leave out where they run."""

    seen: _Seen
    places: Mapping[str, Sequence[int]]  # of looks by such names: how many results had come before each
    since: Mapping[str, float]  # when the last action on a service ended
    probed: frozenset[str]  # services that a probe has seen up

    @classmethod
    def of(cls, services: Iterable[str], seen: _Seen, *, by_hosts: bool = False) -> _SeenLoosely:
        """Match all names once. ``by_hosts``: a look that ran on a host is one at that host, whatever it asked."""
        meanings = Meanings(services, seen.names)
        places: dict[str, list[int]] = {}
        for look in seen.looks:
            hosts = [*(address.host for address in look.addresses), *(look.hosts if by_hosts else ())]
            hosts += [host.partition(".")[0] for host in hosts]
            for service in {service for name in (*look.names, *hosts) for service in meanings.of(name)}:
                places.setdefault(service, []).append(look.results_before)
        since: dict[str, float] = {}
        for last in seen.acted.values():
            for service in meanings.of(last.service):
                since[service] = max(last.ended_as, since.get(service, _NEVER.ended_as))
        up = [sight.service for sight in seen.sights.probes if seen.sights.show_up(seen.names.of(sight.service))]
        probed = frozenset(service for name in up for service in meanings.of(name))
        return cls(seen=seen, places=places, since=since, probed=probed)

    def shows(self, service: str) -> bool:
        """Tell whether a service was looked at, or a probe has seen it up."""
        since = self.since.get(service, _NEVER.ended_as)
        looked = any(place > since for place in self.places.get(service, ()))
        return looked or service in self.probed or self.seen.asked(self.seen.names.of(service), since)


class _Ties:
    """Which service answers at which address, according to texts from outside the session."""

    def __init__(self, statements: Iterable[Statement], *, services: Iterable[str], names: KnownServices) -> None:
        self._names = names
        self._known = frozenset(map(names.of, services))
        self._paths: dict[tuple[str, int], dict[str, set[str]]] = {}  # by host and port, owners by path
        for each in statements:
            found = addresses_in(each.text)
            owners = self._named_in(each.text) if each.service is None else frozenset({names.of(each.service)})
            if len(owners) == 1 and len({(address.host, address.port) for address in found}) == 1:
                for address in found:
                    paths = self._paths.setdefault((address.host, address.port), {})
                    paths.setdefault(address.path, set()).update(owners)
        everybody = {place: set().union(*paths.values()) for place, paths in self._paths.items()}
        self._sole = {place: next(iter(owners)) for place, owners in everybody.items() if len(owners) == 1}

    def bears(self, look: EvidenceLook, service: str) -> bool:
        """Tell whether a look is one at a service."""
        named_it = any(self._names.of(name) == service for name in look.names)
        return named_it or any(self._answers_for(address, service) for address in look.addresses)

    def _answers_for(self, address: Address, service: str) -> bool:
        if service in {self._names.of(address.host), self._names.of(address.host.partition(".")[0])}:
            return True
        place = (address.host, address.port)
        # One server may answer for many services: then the path decides which of them is asked.
        return self._sole.get(place) == service or self._paths.get(place, {}).get(address.path) == {service}

    def _named_in(self, text: str) -> frozenset[str]:
        words = {word.strip(".:") for word in text.casefold().translate(_BETWEEN_WORDS).split()}
        return self._known & set(map(self._names.of, {*words, text.partition(":")[0]}))
