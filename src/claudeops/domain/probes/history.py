"""The history of a probe for pictures: five-minute buckets, and hours made of them.

A bucket keeps how often it was looked at, how often it failed, and the latencies as a histogram of fixed bounds, four
to a doubling. Histograms add up, in any order and grouping, so the quantiles of an hour or a year come from its
buckets. A quantile is at most 9.1 % off (half a bin, on a scale of logarithms) from a quarter of a millisecond to 65
seconds; what lies outside counts as the nearest bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from claudeops.domain.probes.probe import Observation, Saw
from claudeops.text import regex

BUCKET: Final = timedelta(minutes=5)
HOUR: Final = timedelta(hours=1)
KEPT_BUCKETS: Final = timedelta(days=90)
KEPT_HOURS: Final = timedelta(days=366)

_FIRST_MS: Final = 0.25  # lower bound of the first bin
_PER_DOUBLING: Final = 4
_BINS: Final = 18 * _PER_DOUBLING  # up to 65.5 s
_ENCODED: Final = regex.Pattern(r"(?:\d{1,2}:\d{1,15}(?:,\d{1,2}:\d{1,15})*)?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

RELATIVE_ERROR: Final = 2 ** (1 / (2 * _PER_DOUBLING)) - 1
"""By how much a quantile may be off, as a share of it."""


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen in one stretch of time. A look that could not look counts as none."""

    checks: int = 0
    failures: int = 0  # of these, looks that saw it down
    latencies: Mapping[int, int] = msgspec.field(
        default_factory=dict
    )  # number of a bin → looks that saw it work in that time

    def with_look(self, seen: Observation) -> Bucket:
        """Return the bucket with one more look."""
        if seen.saw is Saw.NOTHING:
            return self
        return merged((self, bucket_of(seen)))

    def quantile_ms(self, share: float) -> float | None:
        """Return the latency that this share of the looks stayed at or below; None where there is none."""
        count = sum(self.latencies.values())
        wanted = max(1, math.ceil(share * count))
        passed = 0
        for bin_number in sorted(self.latencies):
            passed += self.latencies[bin_number]
            if passed >= wanted:
                return _FIRST_MS * 2 ** ((bin_number + 0.5) / _PER_DOUBLING)
        return None

    @property
    def p50_ms(self) -> float | None:
        """The median latency."""
        return self.quantile_ms(0.5)

    @property
    def p95_ms(self) -> float | None:
        """The latency that one look in twenty exceeds."""
        return self.quantile_ms(0.95)

    @property
    def p99_ms(self) -> float | None:
        """The latency that one look in a hundred exceeds."""
        return self.quantile_ms(0.99)

    def encoded(self) -> str:
        """Return the histogram as a column stores it: ``31:9,32:1``."""
        return ",".join(f"{bin_number}:{count}" for bin_number, count in sorted(self.latencies.items()) if count)


def bucket_of(seen: Observation) -> Bucket:
    """Return a bucket of one look."""
    if seen.saw is Saw.NOTHING:
        return Bucket()
    if seen.saw is Saw.DOWN or seen.latency_ms is None:
        return Bucket(checks=1, failures=int(seen.saw is Saw.DOWN))
    return Bucket(checks=1, latencies={_bin(seen.latency_ms): 1})


def merged(buckets: Iterable[Bucket]) -> Bucket:
    """Return several buckets as one."""
    checks = failures = 0
    latencies = Counter[int]()
    for bucket in buckets:
        checks += bucket.checks
        failures += bucket.failures
        latencies.update(bucket.latencies)
    return Bucket(checks=checks, failures=failures, latencies=dict(latencies))


def decoded(checks: int, failures: int, latencies: str) -> Bucket:
    """Return a bucket as it was stored; a histogram that cannot be read is left out."""
    pairs = latencies.split(",") if latencies and _ENCODED.fullmatch(latencies) else []
    counts = ((int(number), int(count)) for number, _, count in (pair.partition(":") for pair in pairs))
    kept = Counter[int]()
    for number, count in counts:
        kept[min(number, _BINS - 1)] += count
    return Bucket(checks=checks, failures=failures, latencies=dict(kept))


def start_of(at: datetime, width: timedelta = BUCKET) -> datetime:
    """Return when the stretch of time began that a moment belongs to, UTC."""
    return at.astimezone(UTC) - (at - _EPOCH) % width


def rolled_up(buckets: Mapping[datetime, Bucket], width: timedelta = HOUR) -> dict[datetime, Bucket]:
    """Return buckets, by their beginnings, as fewer and longer ones."""
    grouped: dict[datetime, list[Bucket]] = {}
    for start, bucket in buckets.items():
        grouped.setdefault(start_of(start, width), []).append(bucket)
    return {start: merged(group) for start, group in sorted(grouped.items())}


def _bin(latency_ms: float) -> int:
    if not latency_ms > _FIRST_MS:  # also what is no number
        return 0
    ratio = latency_ms / _FIRST_MS
    if math.isinf(ratio):  # also where the latency itself is not
        return _BINS - 1
    return min(_BINS - 1, int(math.log2(ratio) * _PER_DOUBLING))
