"""`benchmarks.papers.threds_synthetic`: Salgia et al. 2021, section 5, figure 4: Branin's and
Rosenbrock's function on [0, 1]², noise of variance 0.01.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.papers import threds_synthetic
from benchmarks.papers.campaigns import campaign
from benchmarks.papers.experiment import Request
from benchmarks.papers.findings import Interval
from benchmarks.papers.salgia_2021 import LABELS, METHODS
from benchmarks.papers.threds_synthetic import BRANIN, ROSENBROCK, Rosenbrock, Setting, comparison, run


def request_(folder: Path, evaluations: int = 4) -> Request:
    return Request(seeds=1, evaluations=evaluations, methods=METHODS, out=folder)


@pytest.mark.parametrize("settings", [(BRANIN,), (ROSENBROCK,)])
def test_every_method_stands_beside_the_authors_results(
    settings: tuple[Setting, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threds_synthetic, "GRID", 36)
    findings = run(settings, request_(tmp_path))
    assert [table.name for table in findings.tables] == [f"threds-{setting.name}" for setting in settings]
    for setting, table in zip(settings, findings.tables, strict=True):
        assert [row[0] for row in table.rows] == [LABELS[name] for name in METHODS]
        papers = table.columns.index("paper")
        assert [row[papers] for row in table.rows[:5]] == [setting.reported[name][0] for name in METHODS[:5]]
        assert [row[papers] for row in table.rows[5:]] == ["–"] * 3


def test_the_table_says_where_the_curves_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threds_synthetic, "GRID", 36)
    findings = run((BRANIN,), request_(tmp_path))
    table, panels = findings.tables[0], findings.figures[0].panels
    regret, seconds = (table.columns.index(name) for name in ("average regret", "strategy's s"))
    ends = [cell.mean for row in table.rows if isinstance(cell := row[regret], Interval)]
    assert [curve.mean[-1] for curve in panels[0].curves] == pytest.approx(ends)
    last = [cell.mean for row in table.rows if isinstance(cell := row[seconds], Interval)]
    assert all(curve.x[-1] <= end + 1e-12 for curve, end in zip(panels[1].curves, last, strict=True))


def test_the_settings_are_those_of_appendix_d(tmp_path: Path) -> None:
    for setting, bound, low, high in ((BRANIN, 0.5, 0.5, 1.2), (ROSENBROCK, 2.0, 3.0, 12.0)):
        compared = comparison(setting, request_(tmp_path, 2000))
        files = {method.name: campaign(compared, method, 0, request_(tmp_path, 2000)) for method in compared.methods}
        assert {files[name].budget.evaluations for name in METHODS[1:5]} == {1000}
        assert files["gp_threds"].budget.evaluations == 2000
        strategies: dict[str, Any] = {name: settings.strategy for name, settings in files.items()}
        assert {strategies[name].norm_bound for name in METHODS[:3]} == {bound}
        assert {(strategies[name].kernel.lengthscale, strategies[name].regularization) for name in METHODS[:-1]} == {
            (0.2, 0.01)
        }
        assert {strategies[name].noise_scale for name in METHODS[:3]} == {0.1}
        noise = [strategies[name].noise_variance for name in ("bbkb", "bbkb_narrow")]
        assert noise == pytest.approx([0.01, 1e-4])
        assert strategies["default"].model is not None
        assert files["default"].workers.count == 1
        threds = strategies["gp_threds"]
        assert (threds.low, threds.high, threds.max_local_pulls) == (low, high, 50)
        # 2c, and 2c (b − a), as the authors' experiments have them
        assert threds.pruning_constant == pytest.approx(2 * threds.c)
        assert threds.threshold_constant == pytest.approx(2 * threds.c * (high - low))


@pytest.mark.parametrize("exponent", [1, 2])
def test_rosenbrocks_maximum_is_where_it_says(exponent: int) -> None:
    exact = Rosenbrock(noise_std=0.0, exponent=exponent)

    def value(x: float, y: float) -> float:
        return exact.evaluate({"x": x, "y": y}, 0, partial(lambda value, step=None: None)).value

    grid = np.linspace(0.0, 1.0, 61)  # 2/3 is on it
    values = np.array([[value(x, y) for y in grid] for x in grid])
    assert tuple(map(int, np.unravel_index(values.argmax(), values.shape))) == (40, 40)
    assert values.max() == pytest.approx(exact.optimum(maximize=True))
    assert exact.optimum(maximize=False) is None


def test_the_two_formulas_differ_off_the_diagonal_by_the_square() -> None:
    parameters = {"x": 0.0, "y": 1.0}  # u = 0.8, v = 1.1
    values = [
        Rosenbrock(0.0, exponent).evaluate(parameters, 0, lambda value, step=None, **_: None).value
        for exponent in (1, 2)
    ]
    assert values == pytest.approx([10 - 100 * 0.3**2 - 0.04, 10 - 100 * (1.1 - 0.64) ** 2 - 0.04])
