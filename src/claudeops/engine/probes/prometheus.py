"""The kind `prometheus`: an expression against a threshold, of several series the worst.

A Prometheus that does not answer says nothing about the service: such a look has seen nothing.
"""

from __future__ import annotations

import math
from typing import Final
from urllib.parse import quote as percent

import msgspec

from claudeops.domain.probes.probe import ProbeState, PrometheusLook, Saw
from claudeops.engine.probes.exchange import ProbeQuestion, ask, url_of
from claudeops.engine.probes.results import Attempt, LookResult, blind, quote
from claudeops.engine.probes.stream import Means
from claudeops.structs import replace

_MOST_LABELS: Final = 4  # of a series that a detail names
_ABSENT: Final = {ProbeState.UP: Saw.UP, ProbeState.DEGRADED: Saw.DEGRADED, ProbeState.DOWN: Saw.DOWN}


class _Series(msgspec.Struct, frozen=True):
    labels: str
    value: float


async def look_prometheus(look: PrometheusLook, means: Means, attempt: Attempt) -> LookResult:
    """Evaluate the expression now; raises `LookFailedError`."""
    attempt.asks_other = True
    url = url_of(look.url)
    if url is None:
        raise blind("the URL of the Prometheus server is none that can be asked: write http(s)://host:port")
    target = f"{url.target.partition('?')[0].rstrip('/')}/api/v1/query?query={percent(look.expression, safe='')}"
    question = ProbeQuestion(target=target, authority=url.authority)
    answer = await ask(replace(url, target=target), means, attempt, question=question)
    document = answer.json(attempt)
    if not isinstance(document, dict) or document.get("status") != "success":
        words = document.get("error") if isinstance(document, dict) else None
        told = f": {quote(words)}" if isinstance(words, str) else ""
        raise blind(f"Prometheus refuses the expression with {answer.status}{told}")
    return _judged(look, [one for one in _series(document.get("data")) if not math.isnan(one.value)])


def _series(data: object) -> list[_Series]:
    """Return the values of a result that is a vector or a scalar; raises `LookFailedError` for other kinds."""
    match data:
        case {"resultType": "vector", "result": list(found)}:
            pass
        case {"resultType": "scalar", "result": pair}:
            found = [{"metric": {}, "value": pair}]
        case {"resultType": str(kind)}:
            raise blind(f"the expression gives a {quote(kind)}: write one that gives a number at one time")
        case _:
            raise blind("Prometheus answers with something that is not a result")
    series = []
    for one in found:
        match one:
            case {"metric": dict(metric), "value": [_, str(value)]}:
                try:
                    series.append(_Series(_labels(metric), float(value)))
                except ValueError:
                    raise blind(f"Prometheus answers with {quote(value)}, which is no number") from None
            case _:
                raise blind("Prometheus answers with a series that has no value: native histograms have none")
    return series


def _labels(metric: dict[object, object]) -> str:
    named = [f"{name}={value}" for name, value in sorted(map(_pair, metric.items())) if name != "__name__"]
    return f"{{{', '.join(named[:_MOST_LABELS])}}}" if named else ""


def _pair(pair: tuple[object, object]) -> tuple[str, str]:
    """Return a label as texts."""
    return str(pair[0]), str(pair[1])


def _judged(look: PrometheusLook, series: list[_Series]) -> LookResult:
    if not series:
        return LookResult(_ABSENT.get(look.absent, Saw.NOTHING), "the expression gives no value")
    wrong = [one for one in series if _is_beyond(look, one.value)]
    if wrong:
        worst = max(wrong, key=lambda one: _beyond(look, one.value))
        limit = f"above {look.above:g}" if _is_above(look, worst.value) else f"below {look.below:g}"
        more = f"; {len(wrong)} of {len(series)} series" if len(series) > 1 else ""
        return LookResult(Saw.DOWN, f"{worst.value:g} is {limit} {_named(worst)}{more}".strip())
    nearest = max(series, key=lambda one: _beyond(look, one.value))
    return LookResult(Saw.UP, f"{nearest.value:g} {_named(nearest)}".strip())


def _named(one: _Series) -> str:
    return quote(one.labels) if one.labels else ""


def _is_above(look: PrometheusLook, value: float) -> bool:
    return look.above is not None and value > look.above


def _is_beyond(look: PrometheusLook, value: float) -> bool:
    return _is_above(look, value) or (look.below is not None and value < look.below)


def _beyond(look: PrometheusLook, value: float) -> float:
    """Return how far a value is beyond the nearer threshold; negative within both."""
    distances = [value - look.above] if look.above is not None else []
    distances += [look.below - value] if look.below is not None else []
    return max(distances, default=0.0)
