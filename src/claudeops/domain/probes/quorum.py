"""What several sites make of a probe together: each has its own view, and as many as its quorum must agree.

Pure. A view is how a probe stands at one site, by the looks of that site alone. A site whose view is missing or too old
knows nothing, and nothing is guessed for it: the probe takes a state only if it would take the same one whatever that
site saw. So it is down when a quorum sees it down, and not down when so many see it work that the rest are no quorum.
In between nothing is known: after as many looks in a row as make any other probe unknown, so that a node may start
again in the meantime.

How many looks it takes until it is down, or up again, is counted by each site; all of them together take the state at
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from claudeops.domain.probes.news import effects_of
from claudeops.domain.probes.probe import MOST_DETAIL, Observation, Probe, ProbeState, Saw, Standing
from claudeops.domain.probes.record import Observed, StoredProbe, is_recent
from claudeops.domain.probes.state_machine import settled, step
from claudeops.structs import replace
from claudeops.text import join_names

_BEST_FIRST: Final = (Saw.UP, Saw.DEGRADED, Saw.DOWN)
_SEEN: Final = {ProbeState.UP: Saw.UP, ProbeState.DEGRADED: Saw.DEGRADED, ProbeState.DOWN: Saw.DOWN}
_WORDS: Final = {Saw.DOWN: "down at", Saw.DEGRADED: "degraded at", Saw.UP: "up at", Saw.NOTHING: "not known at"}


def seen_in(view: Standing) -> Saw:
    """Return what a site sees, by all its looks."""
    return Saw.NOTHING if view.state is ProbeState.UNKNOWN else _SEEN.get(settled(view), Saw.NOTHING)


def agreed(seen: Sequence[Saw], quorum: int) -> Saw:
    """Return the worst that as many sites as ``quorum`` see, or worse; `Saw.NOTHING`: it depends on those that do not.

    ``seen``: by each site that is to look.
    """
    least, most = (_worst_of(seen, quorum, guess) for guess in (Saw.UP, Saw.DOWN))
    return least if least is most else Saw.NOTHING


def _worst_of(seen: Sequence[Saw], quorum: int, guess: Saw) -> Saw:
    """Return what a quorum sees, if each site that sees nothing saw ``guess``."""
    known = [guess if saw is Saw.NOTHING else saw for saw in seen]
    return sorted(known, key=_BEST_FIRST.index)[-quorum]


def together(before: StoredProbe, views: Iterable[Observed], probe: Probe, *, now: datetime) -> Observed:
    """Return how a probe stands by the views of its sites, with what its change writes; ``before`` is its row.

    ``views`` are those of sites where a daemon looks. `Observed.site` is one that sees it as it is, if it is not well:
    whoever mends it should be there.
    """
    recent = {view.site: view for view in views if is_recent(probe, view.standing.last_checked_at, now)}
    seen = {site: seen_in(recent[site].standing) if site in recent else Saw.NOTHING for site in probe.sites}
    saw = agreed(list(seen.values()), probe.quorum)
    agreeing = [recent[site] for site, each in seen.items() if each is saw and site in recent]
    # What all say is as old as the oldest look that it needs.
    looks = sorted((view.standing for view in agreeing), key=lambda view: view.last_checked_at or now)
    oldest = looks[0] if saw is not Saw.NOTHING else None
    observation = Observation(
        saw=saw,
        at=now,
        detail=_sentence(seen, probe.quorum if oldest is None else 0, "" if oldest is None else oldest.detail),
        latency_ms=None if oldest is None else oldest.latency_ms,
    )
    unwell = saw in {Saw.DEGRADED, Saw.DOWN}
    causes = [view.standing.explained_by for view in agreeing if unwell and view.standing.explained_by]
    counted = _counted(before.standing, saw, probe)
    following = step(counted, observation, probe, explained_by=causes[0] if causes else "")
    effects = effects_of(before.standing, following, probe)
    looked_at = before.standing.last_checked_at if oldest is None else oldest.last_checked_at
    return Observed(
        probe=probe,
        site=agreeing[0].site if unwell else "",
        standing=replace(following.standing, last_checked_at=looked_at),
        healthy_since=before.healthy_since if saw is Saw.NOTHING else _healthy_since(agreeing, saw),
        tellings=() if effects is None else (effects,),
    )


def _counted(standing: Standing, saw: Saw, probe: Probe) -> Standing:
    """Return a standing that wants one look more to be what the sites see: they have counted theirs."""
    failures, successes = probe.failures - 1, probe.successes - 1
    match saw:
        case Saw.DOWN:
            return replace(standing, failures=failures, degradations=failures)
        case Saw.DEGRADED:
            return replace(standing, failures=0, degradations=failures, successes=max(standing.successes, successes))
        case Saw.UP:
            ups = max(standing.ups, successes)
            return replace(standing, successes=max(standing.successes, successes), ups=ups)
        case _:
            return standing


def _healthy_since(agreeing: Sequence[Observed], saw: Saw) -> datetime | None:
    """Return since when every look of all that see it up has seen it up."""
    found = [view.healthy_since for view in agreeing if view.healthy_since is not None]
    return max(found) if saw is Saw.UP and len(found) == len(agreeing) else None


def _sentence(seen: Mapping[str, Saw], wanted: int, detail: str) -> str:
    """Return which sites see what, and what one of them saw; ``wanted``: so many would have to agree, and do not."""
    sites = {saw: [site for site, each in seen.items() if each is saw] for saw in _WORDS}
    parts = [f"{_WORDS[saw]} {join_names(found)}" for saw, found in sites.items() if found]
    parts += [f"{wanted} must agree that it is down"] if wanted else []
    return f"{', '.join(parts)}{': ' if detail else ''}{detail}"[:MOST_DETAIL]
