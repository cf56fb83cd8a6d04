"""Salgia, Vakili, Zhao 2021 (GP-ThreDS), figures 4 and 7: Branin, Rosenbrock, and a CNN on MNIST.

Branin's and Rosenbrock's function are maximized over a 100 × 100 grid with noise of variance 0.01;
regret refers to the maximum over the whole square. As in the authors' released code, R is the
standard deviation of the noise, and the first bracket of Rosenbrock's function has u² (the paper
prints R = 0.01 and u). With the CNN each of the 200 evaluations trains a network: use `--seeds 1`.

BBKB is not in the paper. It is added for comparison: with the same kernel and noise (ξ = R), with a
tenth of that noise (the value of R that the paper prints), and with its default options.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.objectives.parameters import Range, Space
from bbkb.objectives.problems.synthetic import Formula
from benchmarks.papers.campaigns import Comparison, Method, Plain, Request, Tree, default_method, experiment

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


def _method(name: str, model: Tree, width: Tree, threds: Tree, horizon: int, stop: int | None = None) -> Method:
    """Make the method `name` of LABELS, whose run ends after `stop` pulls.

    `model` has `kernel` and `regularization` of all methods, `width` the options of upper bounds,
    `threds` further options of GP-ThreDS. `horizon`: for adaptive discretization's constants.
    """
    if name == "default":
        return replace(default_method(workers=1), label=LABELS[name])
    scale = width["noise_scale"] / (10.0 if name == "bbkb_narrow" else 1.0)
    bbkb = {"name": "bbkb", "norm_bound": width["norm_bound"], "delta": width["delta"], "noise_variance": scale**2}
    bbkb["warm_start"] = {"name": "random", "pulls": 1}
    options: Mapping[str, Plain] = {
        "gp_threds": {**width, **threds},
        "igp_ucb": {**width},
        "adaptive_discretization": {**width, "constants": "chaining", "horizon": horizon},
        "expected_improvement": {"margin": _MARGIN},
        "probability_of_improvement": {"margin": _MARGIN},
        "bbkb": bbkb,
        "bbkb_narrow": bbkb,
    }
    return Method(name, LABELS[name], {"name": name, **model, **options[name]}, stop)


NOISE_STD = 0.1
GRID = 10_000
HORIZON = 2000  # samples of GP-ThreDS
OTHERS = 1000  # samples of the paper's other methods


@dataclass(frozen=True, slots=True)
class Rosenbrock(Formula):
    """f(x, y) = 10 − 100 (v − u²)² − (1 − u)², u = 0.3x + 0.8, v = 0.3y + 0.8, plus noise.

    The paper (appendix D.1) prints u instead of u²; the authors' code has u². The maximum is 10, at
    x = y = 2/3.
    """

    def default_space(self) -> Space:
        """Return x and y in [0, 1]."""
        return {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)}

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Compute f(x, y) plus noise drawn from `seed`; the metric `noise_free` is f."""
        u, v = (0.3 * parameters[name] + 0.8 for name in ("x", "y"))
        value = 10.0 - 100.0 * (v - u**2) ** 2 - (1.0 - u) ** 2
        return self.with_noise(value, seed)

    def optimum(self, maximize: bool) -> float | None:
        """Return 10; None for the minimum, which is not used."""
        return 10.0 if maximize else None


@dataclass(frozen=True)
class Setting:
    """One function with its settings, and the authors' released results."""

    objective: Tree  # the section of the campaign file
    norm_bound: float  # B
    threds: Tree  # further options of GP-ThreDS
    published: Mapping[str, str]  # by method: average regret over the whole run, and seconds


BRANIN = Setting(
    {"name": "branin", "options": {"noise_std": NOISE_STD}},
    0.5,
    {"low": 0.5, "high": 1.2, "pruning_constant": 0.4, "threshold_constant": 0.28},
    {
        "gp_threds": "0.045, 13.8 s",
        "igp_ucb": "0.020, 709 s",
        "adaptive_discretization": "0.079, 109 s",
        "expected_improvement": "0.041, 1057 s",
        "probability_of_improvement": "0.035, 1036 s",
    },
)
ROSENBROCK = Setting(
    {"name": f"{Rosenbrock.__module__}:{Rosenbrock.__qualname__}", "direction": "maximize"},
    2.0,
    {
        "low": 3.0,
        "high": 12.0,
        "pruning_constant": 0.4,
        "threshold_constant": 3.6,
        "grid_points": 441,
    },
    {
        "gp_threds": "0.047, 17 s",
        "igp_ucb": "0.019, 709 s",
        "adaptive_discretization": "0.068, 74 s",
        "expected_improvement": "0.024, 1068 s",
        "probability_of_improvement": "0.020, 1047 s",
    },
)


def synthetic(name: str, setting: Setting, request: Request) -> list[Comparison]:
    """Compare on one function; all but GP-ThreDS and BBKB stop after `OTHERS` samples (paper)."""
    model = {"kernel": {"name": "rbf", "lengthscale": 0.2}, "regularization": 0.01}
    width = {"norm_bound": setting.norm_bound, "noise_scale": NOISE_STD, "delta": 1e-3}
    threds = {"c": 0.2, "max_local_pulls": 50, "first": "centre", **setting.threds}

    def made(method_name: str) -> Method:
        stop = OTHERS if method_name in METHODS[1:5] else None
        return _method(method_name, model, width, threds, OTHERS, stop)

    return [
        Comparison(
            name=f"threds-{name}",
            title=f"{name}; paper: average regret and seconds in the authors' released results",
            problem={"objective": setting.objective, "candidates": {"size": GRID, "sampler": "grid"}},
            methods=[made(method_name) for method_name in request.methods],
            published=setting.published,
        )
    ]


def cnn(request: Request) -> list[Comparison]:
    """Compare on five hyperparameters of a CNN on MNIST, 23 808 settings (appendix D.3)."""
    model = {"kernel": {"name": "matern52", "lengthscale": 0.2}, "regularization": 1e-4}
    width = {"norm_bound": 0.5, "noise_scale": 0.01, "delta": 0.025}  # the paper prints R = 1e-4
    threds = {
        "delta": 0.02,
        "low": 0.3,
        "high": 1.4,
        "pruning_constant": 0.2,
        "threshold_constant": 0.11,
        "max_local_pulls": 8,
        "grid_points": 1536,
    }
    whole = {"initial_points": 23_808, "final_points": 23_808}  # IGP-UCB computes all settings

    def made(name: str) -> Method:
        own = _method(name, model, width, threds, request.evaluations)
        return replace(own, strategy={**own.strategy, **whole}) if name == "igp_ucb" else own

    return [
        Comparison(
            name="threds-cnn",
            title="CNN on MNIST, 3 epochs, f* = 0.99",
            problem={
                "objective": {"name": "mnist_cnn", "options": {"epochs": 3, "dataset": "mnist"}},
                "candidates": {"size": None},
                "workers": {"executor": "inline", "count": 1},
            },
            methods=[made(name) for name in request.methods],
            optimum=0.99,  # the paper's
            published={"gp_threds": "0.077 at 200", "adaptive_discretization": "0.203 at 200"},
        )
    ]


_SOURCE = "GP-ThreDS, section 5 and appendix D.1, figures 4 to 6"
THREDS_BRANIN = experiment(
    _SOURCE, "average regret and time on Branin", METHODS, HORIZON, partial(synthetic, "branin", BRANIN)
)
THREDS_ROSENBROCK = experiment(
    _SOURCE,
    "average regret and time on Rosenbrock",
    METHODS,
    HORIZON,
    partial(synthetic, "rosenbrock", ROSENBROCK),
)
CNN = experiment(
    "GP-ThreDS, appendix D.3, figure 7",
    "a convolutional network on MNIST, trained for each evaluation",
    METHODS,
    200,
    cnn,
    METHODS[:1],
)
