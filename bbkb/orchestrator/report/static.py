"""Static pictures: figures as SVG, for pages without scripts, for print and for documents.

Only the plotly traces of the report's first figures are supported: scatter plots and horizontal
bars, with one pair of linear or categorical axes. Colors are CSS variables, as in the page. The
elements are built with ElementTree, which escapes all text.
"""

import html
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.figure import FONT, Figure, Spec, palette
from bbkb.orchestrator.report.pictures import figures
from bbkb.orchestrator.report.ticks import clip, linear_ticks, widened
from bbkb.orchestrator.wording import printable

MOST_USEFUL = ("front", "best", "curves", "importance", "hypervolume", "workers", "utilization")
_WIDTH = 760
_TOP, _RIGHT, _BOTTOM = (30, 18, 52)
_CHARACTER = 10.5  # the mean width of a character on a phone, in pixels
_LEAST_ROW = 15.0  # the least height of a label, in pixels
_DASHES = {"dash": "9 6", "dot": "2 5"}
_Point = tuple[float, float]


def static_pictures(history: History, names: Sequence[str] = MOST_USEFUL) -> dict[str, str]:
    """Return those of the first two figures of `names` that the campaign has, as complete SVG
    files: figure name → text."""
    return {figure.name: _document(figure) for figure in most_useful(figures(history), names)}


def most_useful(drawn: Sequence[Figure], names: Sequence[str] = MOST_USEFUL) -> list[Figure]:
    """Return the two figures that are also drawn without scripts, in the order of `names`."""
    by_name = {figure.name: figure for figure in drawn}
    return [by_name[name] for name in names if name in by_name][:2]


def _document(figure: Figure) -> str:
    root = _picture(figure)
    root.set("xmlns", "http://www.w3.org/2000/svg")
    style = ET.Element("style")
    style.text = palette()
    title = ET.Element("title")
    title.text = printable(figure.title)
    background = ET.Element("rect", width="100%", height="100%", style="fill:var(--card)")
    for position, part in enumerate((title, style, background)):
        root.insert(position, part)
    return ET.tostring(root, encoding="unicode")


def svg(figure: Figure) -> str:
    """Return a figure as an `svg` element for a page with the report's style."""
    return ET.tostring(_picture(figure), encoding="unicode")


def _picture(figure: Figure) -> ET.Element:
    height = int(figure.layout["height"])
    size = {"viewBox": f"0 0 {_WIDTH} {height}", "width": str(_WIDTH), "height": str(height)}
    root = ET.Element("svg", {"class": "static", "role": "img", "aria-label": printable(figure.title), **size})
    root.set("style", f"font:13px {FONT['family']};white-space:pre")
    up = _Axis.of(figure, "y", height - _TOP - _BOTTOM)
    left = 40 + _CHARACTER * max(len(html.unescape(text)) for text in up.ticks.values())
    across = _Axis.of(figure, "x", _WIDTH - left - _RIGHT)
    _draw_axes(root, across, up, left)
    place = {"x": left, "y": _TOP, "width": across.length, "height": up.length}
    area = ET.SubElement(root, "svg", {name: _number(value) for name, value in place.items()})
    for trace in figure.traces:  # the inner `svg` clips marks outside its axes
        for element, attributes in _parts(trace, across, up):
            ET.SubElement(area, element, attributes)
    if figure.layout["showlegend"]:
        _draw_legend(root, figure.traces, left)
    return root


@dataclass(frozen=True)
class _Axis:
    """An axis; `position` converts a value to pixels from the axis's lower end."""

    title: str
    scale: Callable[[Any], float]  # converts a value to the unit of `low` and `high`
    low: float
    high: float
    ticks: Mapping[float, str]
    length: float  # in pixels

    @classmethod
    def of(cls, figure: Figure, name: str, length: float) -> "_Axis":
        """Return the axis `x` or `y` of a figure."""
        spec = figure.layout[f"{name}axis"]
        values = [value for trace in figure.traces for value in _ends(trace, name)]
        if spec.get("type") == "category":
            return cls._of_categories(spec, values, length)
        scaled = [at for at in map(_float, values) if math.isfinite(at)] or [0.0, 1.0]
        is_from_zero = spec.get("rangemode") == "tozero"
        low, high = widened(*map(clip, spec.get("range") or _with_margin(scaled, is_from_zero)))
        return cls(spec["title"]["text"], _float, low, high, linear_ticks(low, high), length)

    @classmethod
    def _of_categories(cls, spec: Spec, values: Sequence[object], length: float) -> "_Axis":
        names = dict.fromkeys(map(str, spec.get("categoryarray") or values))
        ticks = {float(place): name for place, name in enumerate(names)}
        scale = dict(zip(names, ticks, strict=True)).__getitem__
        step = math.ceil(len(names) * _LEAST_ROW / length)  # so that labels do not overlap
        shown = {place: name for place, name in ticks.items() if place % step == 0}
        return cls(spec["title"]["text"], scale, -0.5, len(names) - 0.5, shown, length)

    def position(self, value: object) -> float:
        """Return the distance of a value from the axis's lower end; NaN if it has none."""
        return self.at(self.scale(value))

    def at(self, scaled: float) -> float:
        """Return the distance of a scaled value from the axis's lower end."""
        return (scaled - self.low) / (self.high - self.low) * self.length


def _with_margin(values: Sequence[float], is_from_zero: bool) -> _Point:
    """Return the ends of an axis with all values."""
    low, high = widened(min([*values, 0.0] if is_from_zero else values), max(values))
    margin = 0.04 * (high - low)
    return low if is_from_zero else low - margin, high + margin


def _ends(trace: Spec, name: str) -> list[object]:
    """Return all values of a trace on an axis, with the ends of bars."""
    if trace["type"] == "bar" and name == "x":
        return [end for bar in _spans(trace) for end in bar]
    return list(trace[name])


def _spans(trace: Spec) -> list[tuple[float, float]]:
    """Return start and end of each horizontal bar."""
    starts = trace.get("base") or [0.0] * len(trace["x"])
    return [(start, start + length) for start, length in zip(starts, trace["x"], strict=True)]


def _float(value: object) -> float:
    return math.nan if value is None else clip(float(value))  # type: ignore[arg-type]


def _draw_axes(root: ET.Element, across: _Axis, up: _Axis, left: float) -> None:
    bottom = _TOP + up.length
    right = left + across.length
    for tick, text in across.ticks.items():
        x = left + across.at(tick)
        _line(root, "--grid", (x, _TOP), (x, bottom))
        _text(root, text, (x, bottom + 18), "middle")
    for tick, text in up.ticks.items():
        y = bottom - up.at(tick)
        _line(root, "--grid", (left, y), (right, y))
        _text(root, text, (left - 8, y + 4), "end")
    _line(root, "--line", (left, bottom), (right, bottom))
    _text(root, across.title, ((left + right) / 2, bottom + 42), "middle", "--muted")
    title = _text(root, up.title, (0, 0), "middle", "--muted")
    title.set("transform", f"translate(16 {_number((_TOP + bottom) / 2)}) rotate(-90)")


def _draw_legend(root: ET.Element, traces: Sequence[Spec], left: float) -> None:
    line = _text(root, "", (left, 18), "start")
    for trace in traces:
        color = (trace.get("marker") or {}).get("color") or trace["line"]["color"]
        ET.SubElement(line, "tspan", style=f"fill:var({color})").text = "● "
        ET.SubElement(line, "tspan").text = html.unescape(trace["name"])
        line[-1].tail = "   "


def _line(root: ET.Element, color: str, start: _Point, end: _Point) -> None:
    ET.SubElement(root, "path", d=f"M{_at(*start)}L{_at(*end)}", style=f"stroke:var({color})")


def _text(root: ET.Element, text: str, at: _Point, anchor: str, color: str = "--ink") -> ET.Element:
    place = {"x": _number(at[0]), "y": _number(at[1]), "text-anchor": anchor}
    element = ET.SubElement(root, "text", place, style=f"fill:var({color})")
    element.text = html.unescape(text)  # plotly's texts are HTML
    return element


def _parts(trace: Spec, across: _Axis, up: _Axis) -> Iterator[tuple[str, dict[str, str]]]:
    """Return the elements of a trace: their names and attributes."""
    if trace["type"] == "bar":
        yield from _bars(trace, across, up)
        return
    xs = map(across.position, trace["x"])
    points = [(x, up.length - up.position(y)) for x, y in zip(xs, trace["y"], strict=True)]
    opacity = f";opacity:{trace.get('opacity', 1)}"
    line = trace.get("line", {})
    if "fill" in trace:
        yield "path", {"d": _outline(points, line) + "Z", "style": f"fill:var({trace['fillcolor']}){opacity}"}
    if "lines" in trace["mode"] and line.get("width", 2):
        dashes = f";stroke-dasharray:{_DASHES[line['dash']]}" if line.get("dash") in _DASHES else ""
        look = f"fill:none;stroke:var({line['color']});stroke-width:{line.get('width', 2)}{dashes}"
        yield "path", {"d": _outline(points, line), "style": f"{look}{opacity}"}
    if "markers" in trace["mode"]:
        yield "path", _markers(trace, points)


def _bars(trace: Spec, across: _Axis, up: _Axis) -> Iterator[tuple[str, dict[str, str]]]:
    """Return a rectangle for each horizontal bar."""
    widths = trace.get("width") or [0.8] * len(trace["y"])
    look = {"style": f"fill:var({trace['marker']['color']})"}
    for name, (start, end), width in zip(trace["y"], _spans(trace), widths, strict=True):
        place = {
            "x": across.position(start),
            "y": up.length - up.at(up.scale(name) + width / 2),
            "width": across.position(end) - across.position(start),
            "height": width / (up.high - up.low) * up.length,
        }
        yield "rect", {key: _number(value) for key, value in place.items()} | look


def _outline(points: Sequence[_Point], line: Spec) -> str:
    """Return the path through points, in steps if the line has a shape; NaN interrupts it."""
    path = ""
    is_stepped = "shape" in line
    for before, point in pairwise([(math.nan, math.nan), *points]):
        if not all(map(math.isfinite, point)):
            continue
        if not all(map(math.isfinite, before)):
            path += f"M{_at(*point)}"
        elif is_stepped:
            path += f"H{_number(point[0])}V{_number(point[1])}"
        else:
            path += f"L{_at(*point)}"
    return path


def _markers(trace: Spec, points: Sequence[_Point]) -> dict[str, str]:
    """Return one path of all markers: lines of length 0 with round ends, or crosses."""
    marker = trace["marker"]
    sizes = marker.get("size", 6)
    drawn = zip(points, sizes, strict=True) if isinstance(sizes, list) else ((at, sizes) for at in points)
    shown = [(at, size) for at, size in drawn if size and all(map(math.isfinite, at))]
    is_cross = marker.get("symbol") == "x"
    mark = "m-3 -3l6 6m-6 0l6 -6" if is_cross else "h0"
    width = 2 if is_cross else max((size for _, size in shown), default=0)
    look = f"stroke:var({marker['color']});stroke-width:{width};opacity:{marker.get('opacity', 1)}"
    path = "".join(f"M{_at(*at)}{mark}" for at, _ in shown)
    return {"d": path, "stroke-linecap": "round", "style": f"fill:none;{look}"}


def _at(x: float, y: float) -> str:
    return f"{_number(x)} {_number(y)}"


def _number(value: float) -> str:
    return f"{max(-1e5, min(value, 1e5)):.5g}"
