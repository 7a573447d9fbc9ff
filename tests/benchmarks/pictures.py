"""The pictures beside the card: how latencies are spread, and what grows with sessions and rows."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from xml.etree import ElementTree as ET

_SHARES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_DECADES: Final = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0)
_LEAST_MILLISECONDS: Final = 0.001  # a logarithm has no place for nothing
_WIDTH: Final = 900
_HEIGHT: Final = 480

Curve = Sequence[tuple[float, float]]
"""Points of a line, by their place on the x-axis."""


def draw_latencies(path: Path, samples: Mapping[str, Sequence[float]]) -> None:
    """Draw a line for each kind of sample (milliseconds, in any order): which share of them is faster."""
    chart = _library().Line(
        title="Latencies: the share of all that is faster",
        y_title="milliseconds",
        logarithmic=True,
        **_form(),
    )
    chart.x_labels = [f"{share:.0%}" for share in _SHARES]
    for name, values in samples.items():
        chart.add(f"{name} ({len(values)})", [_reached(values, share) for share in _SHARES])
    least, most = min(map(min, samples.values())), max(map(max, samples.values()))
    chart.y_labels = [step for step in _DECADES if least / 10 < step < most * 10]
    _write(path, chart)


def draw_growth(path: Path, *, title: str, along: str, unit: str, curves: Mapping[str, Curve]) -> None:
    """Draw how figures (``unit``) change ``along`` a run."""
    chart = _library().XY(title=title, x_title=along, y_title=unit, dots_size=2, **_form())
    chart.range = (0, max(value for curve in curves.values() for _, value in curve) * 1.1)
    for name, curve in curves.items():
        chart.add(name, list(curve))
    _write(path, chart)


def _library() -> ModuleType:
    """Return the library, without the finder of modules that it leaves behind: Python 3.12 knows no such finder."""
    import pygal  # noqa: PLC0415 - it leaves that finder when it is imported

    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != pygal.__name__]
    library: ModuleType = pygal
    return library


def _write(path: Path, chart: Any) -> None:
    """Write a picture without the script that would answer a mouse: pages that show it allow none."""
    tree = chart.render_tree()
    for definitions in tree.iter("defs"):
        for script in definitions.findall("script"):
            definitions.remove(script)
    path.write_text(ET.tostring(tree, encoding="unicode") + "\n", encoding="utf-8")


def _form() -> dict[str, object]:
    """Return what every picture has: no random names, so that the same figures are the same file."""
    return {
        "js": (),
        "no_prefix": True,
        "width": _WIDTH,
        "height": _HEIGHT,
        "style": _library().style.CleanStyle(background="white", plot_background="white"),
        "legend_at_bottom": True,
        "legend_at_bottom_columns": 3,
    }


def _reached(values: Sequence[float], share: float) -> float:
    found = sorted(values)
    return max(_LEAST_MILLISECONDS, found[min(len(found) - 1, round(share * (len(found) - 1)))])
