"""Static pictures: well-formed SVG within its bounds, with any text of the campaign."""

import html
import math
import re
import xml.etree.ElementTree as ET

import pytest

from bbkb.orchestrator.report import static_pictures
from bbkb.orchestrator.report.figure import Figure, Spec, axis, label, layout
from bbkb.orchestrator.report.static import most_useful, svg
from tests.orchestrator.synthetic_log import NASTY_MESSAGES, SyntheticLog

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("log", "drawn"),
    [
        (SyntheticLog(), ["best", "importance"]),
        (SyntheticLog(trials=1, sessions=1), ["best", "workers"]),
        (SyntheticLog(trials=12, failure_share=1.0), ["workers", "utilization"]),
        (SyntheticLog(trials=10_000, workers=16), ["best", "importance"]),
    ],
    ids=["usual", "one trial", "all failed", "ten thousand trials"],
)
def test_static_pictures_are_few_and_small(log: SyntheticLog, drawn: list[str]) -> None:
    pictures = static_pictures(log.history())
    assert list(pictures) == drawn
    for text in pictures.values():
        root = ET.fromstring(text)
        marks = [element for element in root.iter() if element.tag in (f"{SVG}path", f"{SVG}rect")]
        assert len(marks) > 5
        assert "nan" not in text
        assert len(text) < 100_000
        assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize("text", [*NASTY_MESSAGES, "</svg><script>1</script>", '" onload="alert(1)', "a\u202eb\x00"])
def test_static_picture_shows_texts_from_outside_as_text(text: str) -> None:
    trace = {"type": "bar", "orientation": "h", "y": [label(text)], "x": [1.0], "marker": {"color": "--point"}}
    axes = layout(axis(label(text)), axis("", type="category"))
    figure = Figure(name="importance", title=text, caption="", traces=[trace], layout=axes)
    root = ET.fromstring(svg(figure))
    assert {element.tag for element in root.iter()} == {"svg", "path", "text", "rect"}
    assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)
    assert html.unescape(label(text)) in [element.text for element in root.iter("text")]


def test_static_picture_skips_missing_values() -> None:
    trace: Spec = {"type": "scatter", "mode": "lines+markers", "line": {"color": "--accent"}}
    trace |= {"x": [1, 2, 3, 4], "y": [1.0, None, 1e308, -1e308], "marker": {"color": "--accent"}}
    axes = layout(axis("x"), axis("y"))
    picture = svg(Figure(name="best", title="t", caption="", traces=[trace], layout=axes))
    (line,) = (path for path in re.findall(r'd="([^"]*)"', picture) if path.count("M") == 2 and "h0" not in path)
    assert "nan" not in picture
    assert all(math.isfinite(float(number)) for number in re.findall(r"[-\d.]+", line))


def test_most_useful_figures_of_several_objectives_begin_with_the_front() -> None:
    names = ["best", "workers", "front", "importance"]
    axes = layout(axis("x"), axis("y"))
    drawn = [Figure(name=name, title="", caption="", traces=[], layout=axes) for name in names]
    assert [figure.name for figure in most_useful(drawn)] == ["front", "best"]
