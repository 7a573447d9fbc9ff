"""Probes, looks and standings for tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from claudeops.domain.estate.estate import Estate, Manifest, Service, StatementSource
from claudeops.domain.probes.probe import Observation, Probe, ProbeState, Saw, Standing, TcpLook
from claudeops.domain.probes.state_machine import ProbeStep, step
from claudeops.structs import replace

NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
LETTERS: Final = {"U": Saw.UP, "D": Saw.DEGRADED, "F": Saw.DOWN, "?": Saw.NOTHING}
"""What a look sees, as tests write it; F is for failed."""


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def probe(name: str = "shop", **changes: object) -> Probe:
    """Return a probe that is down after three failures and up after two successes."""
    plain = Probe(name=name, look=TcpLook(host=name, port=80), service=name, origin="probes.toml:1")
    return replace(plain, **changes)  # type: ignore[arg-type]  # a test names its fields


def saw(letter: str, at: datetime = NOON, **changes: object) -> Observation:
    """Return what a look saw."""
    seen = Observation(saw=LETTERS[letter], at=at, detail=f"saw {letter}")
    return replace(seen, **changes)  # type: ignore[arg-type]  # as above


def looked(
    looks: Iterable[str],
    about: Probe | None = None,
    *,
    start: Standing | None = None,
    at: datetime = NOON,
    apart: float = 30.0,
    explained_by: str = "",
) -> Iterator[ProbeStep]:
    """Yield the step of each look; they are ``apart`` seconds from each other, the first one at ``at``."""
    standing = start or Standing()
    for count, letter in enumerate(each for each in looks if each != " "):
        made = step(standing, saw(letter, at + seconds(apart * count)), about or probe(), explained_by=explained_by)
        standing = made.standing
        yield made


def after(looks: str, about: Probe | None = None, **changes: object) -> Standing:
    """Return how a probe stands after some looks."""
    *_, last = looked(looks, about, **changes)  # type: ignore[arg-type]  # as above
    return last.standing


def standing(state: ProbeState = ProbeState.UP, since: datetime = NOON, **changes: object) -> Standing:
    """Return how a probe stands that took its state at some time and was looked at just then."""
    count = 9 if state is ProbeState.UP else 0
    plain = Standing(state=state, since=since, last_checked_at=since, successes=count, ups=count, beneath=state)
    if state is ProbeState.DOWN:
        plain = replace(plain, failures=3, degradations=3, detail="refused")
    return replace(plain, **changes)  # type: ignore[arg-type]  # as above


def service(name: str, address: str = "", **changes: object) -> Service:
    """Return a service of a manifest."""
    plain = Service(name=name, address=address, source=StatementSource(path="media/CLAUDE-OPS.md", line=7))
    return replace(plain, **changes)  # type: ignore[arg-type]  # as above


def estate(*services: Service, repository: str = "media", hosts: tuple[str, ...] = ()) -> Estate:
    """Return an estate of one manifest."""
    return Estate(manifests=(Manifest(repository=repository, services=services, hosts=hosts),))
