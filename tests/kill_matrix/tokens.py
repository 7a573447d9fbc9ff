"""What the scripted API served beside what was booked, call by call.

A call is *told* when its booking says that the answer was seen to its end: then both figures must be the same, token by
token. Any other call was cut off, and what became of it behind the meter's back nobody can know: its booking must
count, in money, at least what was served.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from claudeops.domain.spending.prices import price_of
from claudeops.domain.spending.tokens import TokenUsage
from claudeops.scripted_api.requests import RequestKind, Served, Traffic
from kill_matrix.databases import Row
from kill_matrix.plan import Cli
from kill_matrix.records import Records

_SLACK_USD: Final = 1e-9
_KINDS: Final = (
    ("input_tokens", "input_tokens"),
    ("output_tokens", "output_tokens"),
    ("cache_read_input_tokens", "cache_read_tokens"),
    ("cache_creation_input_tokens", "cache_write_tokens"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sums:
    """Over some calls."""

    served: int = 0  # tokens of every kind
    booked: int = 0
    cut_off: int = 0  # calls that were not seen to their end
    served_to_cut_off: int = 0  # tokens that the API served to those
    served_usd: float = 0.0
    charged_usd: float = 0.0

    def __add__(self, other: Sums) -> Sums:
        return Sums(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


def sums(records: Records, traffic: Traffic) -> Sums:
    """Return the sums of a trial."""
    total = Sums()
    for row, served in _pairs(records, traffic):
        seen = _served(served)
        cut_off = row is None or row["error"] is not None
        total += Sums(
            served=0 if cut_off else seen,
            booked=0 if cut_off or row is None else _booked(row),
            cut_off=int(cut_off),
            served_to_cut_off=seen if cut_off else 0,
            served_usd=_cost(served),
            charged_usd=0.0 if row is None else float(str(row["charged_usd"])),
        )
    return total


def check_tokens(records: Records, traffic: Traffic) -> Iterator[str]:
    """Yield where books and API differ."""
    yield from _unbooked(records)
    for row, served in _pairs(records, traffic):
        if row is None:
            yield f"tokens: the API served {_served(served)} tokens of a call that no row knows"
        elif row["error"] is None and any(
            (row[ours] or 0) != (getattr(served, theirs) if served else 0) for theirs, ours in _KINDS
        ):
            yield f"tokens: call {row['id']} is booked with {_booked(row)} tokens, the API served {_served(served)}"
        elif float(str(row["charged_usd"])) + _SLACK_USD < _cost(served):
            yield (
                f"tokens: call {row['id']} ({row['error']}) is charged {row['charged_usd']} USD, "
                f"and the API served {_cost(served)} USD"
            )


def _unbooked(records: Records) -> Iterator[str]:
    """Yield the calls whose answer a CLI read to its end, as what it printed afterwards shows, and whose rows differ.

    The stand-in asks the model before each tool call and before its result; when the real CLI prints is its own affair.
    """
    if records.world.plan.cli is not Cli.STAND_IN:
        return
    for session in records.sessions:
        log = records.logs.get(session["id"])
        said = () if log is None else (line for line in log.lines if line.get("type") == "assistant")
        printed = [*said, *(() if log is None else log.reports)]
        for row in records.of_session("model_calls", session["id"])[: len(printed)]:
            if row["error"] is not None:
                yield f"tokens: the CLI has seen the end of call {row['id']}, and its row says {row['error']!r}"


def _pairs(records: Records, traffic: Traffic) -> Iterator[tuple[Row | None, Served | None]]:
    """Yield each booking with its call: in each session one came after the other. A call may never have been sent."""
    served: defaultdict[str, list[Served]] = defaultdict(list)
    for answer in sorted(traffic.served, key=lambda answer: answer.number):
        if answer.kind in {RequestKind.MAIN, RequestKind.SIDE}:
            served[answer.session].append(answer)
    for session in records.sessions:
        rows = records.of_session("model_calls", session["id"])
        yield from _zipped(rows, served.pop(str(session["cli_session_id"]), []))
    for unknown in served.values():
        for answer in unknown:
            yield None, answer


def _zipped(rows: Sequence[Row], served: Sequence[Served]) -> Iterator[tuple[Row | None, Served | None]]:
    for place in range(max(len(rows), len(served))):
        yield rows[place] if place < len(rows) else None, served[place] if place < len(served) else None


def _served(served: Served | None) -> int:
    return 0 if served is None else sum(getattr(served, theirs) for theirs, _ in _KINDS)


def _booked(row: Row) -> int:
    return sum(int(str(row[ours] or 0)) for _, ours in _KINDS)


def _cost(served: Served | None) -> float:
    if served is None:
        return 0.0
    price = price_of(served.model)
    assert price is not None
    usage = TokenUsage(
        input_tokens=served.input_tokens,
        output_tokens=served.output_tokens,
        cache_read_tokens=served.cache_read_input_tokens,
        cache_write_tokens=served.cache_creation_input_tokens,
    )
    cost = price.cost(usage)
    assert cost is not None
    return cost
