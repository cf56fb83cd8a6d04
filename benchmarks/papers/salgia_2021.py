"""Salgia, Vakili, Zhao 2021 (GP-ThreDS): the methods of its section 5 and appendix D, with their
settings.

BBKB is not in the paper. It is added for comparison: with the same kernel and noise (ξ = R), with a
tenth of that noise (the value of R that the paper prints), and with its default options.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.papers.campaigns import Method, Plain, Runs, Tree, default_method
from benchmarks.papers.findings import Curve, Figure, Panel
from benchmarks.papers.measured import Measured
from benchmarks.papers.regression import steps

LABELS: Mapping[str, str] = {
    "gp_threds": "GP-ThreDS",
    "igp_ucb": "IGP-UCB",
    "adaptive_discretization": "AD",
    "expected_improvement": "EI",
    "probability_of_improvement": "PI",
    "bbkb": "BBKB, ξ = R (not in the paper)",
    "bbkb_narrow": "BBKB, ξ = R/10 (not in the paper)",
    "default": "BBKB, default (not in the paper)",
}
METHODS = tuple(LABELS)

_MARGIN = 0.01  # ε of EI and ξ of PI
_RANDOM_START: Tree = {"name": "random", "pulls": 1}


def method(
    name: str,
    model: Tree,
    width: Tree,
    threds: Tree,
    horizon: int,
    stop: int | None = None,
) -> Method:
    """The method `name` of `LABELS`, which ends after `stop` pulls.

    `model`: `kernel` and `regularization` of all methods. `width`: `norm_bound`, `noise_scale` and
    `delta` of methods with upper bounds. `threds`: further options of GP-ThreDS, which replace
    these. Adaptive discretisation has the authors' constants for `horizon` pulls. Raises ValueError
    on another name.
    """
    if name == "default":
        return replace(default_method(workers=1), label=LABELS[name])
    strategy = _strategy(name, model, width, threds, horizon)
    return Method(name, LABELS[name], strategy, stop)


def _strategy(name: str, model: Tree, width: Tree, threds: Tree, horizon: int) -> Plain:
    match name:
        case "gp_threds":
            return {"name": name, **model, **width, **threds}
        case "igp_ucb":
            return {"name": name, **model, **width}
        case "adaptive_discretization":
            return {"name": name, **model, **width, "constants": "chaining", "horizon": horizon}
        case "expected_improvement" | "probability_of_improvement":
            return {"name": name, **model, "margin": _MARGIN}
        case "bbkb" | "bbkb_narrow":
            bounds = {"norm_bound": width["norm_bound"], "delta": width["delta"]}
            scale = width["noise_scale"] / (10.0 if name == "bbkb_narrow" else 1.0)
            noise = {"noise_variance": scale**2}
            return {"name": "bbkb", **model, **bounds, **noise, "warm_start": _RANDOM_START}
    raise ValueError(f"a method of Salgia et al. 2021 must be one of {', '.join(LABELS)}, got {name!r}")


def against_time(label: str, runs: Sequence[Measured], points: int = 150) -> Curve:
    """The mean of R_t / t at `points` times with equally spaced logarithms, where t is the number
    of pulls so far.

    The times are those at which all runs have made a pull and none has ended.
    """
    begin, end = max(run.clock[0] for run in runs), min(run.clock[-1] for run in runs)
    times = np.geomspace(begin, max(begin, end), points)
    counts = [np.searchsorted(run.clock, times, side="right") for run in runs]
    reached = [run.average_regret[np.maximum(pulls, 1) - 1] for run, pulls in zip(runs, counts, strict=True)]
    return Curve.over_seeds(label, times, reached)


def regret_figure(name: str, title: str, results: Runs) -> Figure:
    """Average regret of each method against samples, and against time as in the paper."""
    label = "R_t / t"
    samples = [
        Curve.over_seeds(LABELS[method_name], steps(runs), [run.average_regret for run in runs])
        for method_name, runs in results.items()
    ]
    time = [against_time(LABELS[method_name], runs) for method_name, runs in results.items()]
    panels = [
        Panel("Average regret against samples", "t", label, samples, y_scale="log"),
        Panel("Average regret against time", "strategy's seconds", label, time, x_scale="log", y_scale="log"),
    ]
    return Figure(name, title, panels)
