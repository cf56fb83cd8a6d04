"""Calandriello et al. 2020 (BBKB), section 5 and appendix D: the methods with their settings, and
figures 1, 2, 5 and 6 (Abalone and Cadata).

Each row of a data set is an arm, the reward is the target scaled to [0, 1] plus N(0, 0.01²), and
features are standardized (the paper does not say how it scales them). This module
chooses the values that it omits: λ = ξ² = 1e-4 and C̃ = 2, as the authors' released code recommends,
a random first arm, and ε-greedy's ε = 0.1; the experiment `constants` varies λ and C̃.

"All algorithms use the hyper-parameters suggested by theory" (section 5), but the released code
drops the constants of the theorems' widths. So BBKB and BKB have both widths.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.papers.campaigns import Comparison, Method, Plain, Request, Tree, default_method, experiment

LABELS: Mapping[str, str] = {
    "bbkb": "Global-BBKB",
    "bbkb_theory": "Global-BBKB, Theorem 2's width",
    "bbkb_local": "GlobalLocal-BBKB",
    "bbkb_local_theory": "GlobalLocal-BBKB, Theorem 2's width",
    "bkb": "BKB, its theorem's width",
    "bkb_practical": "BKB, the code's width",
    "gp_ucb": "GP-UCB",
    "gp_bucb": "GP-BUCB",
    "async_ts": "async-TS",
    "epsilon_greedy": "EpsGreedy",
    "regularized_evolution": "Reg-evolution",
    "default": "BBKB, default",
    "uniform": "uniform",
}

NOISE_VARIANCE = 1e-4  # ξ² = 0.01²
WORKERS = 16  # workers of BBKB's default, which is asynchronous
RANDOM_START: Tree = {"name": "random", "pulls": 1}

_WIDTH: Tree = {"noise_variance": NOISE_VARIANCE, "norm_bound": 1.0}  # F
_OVERSAMPLING = 2.0  # q̄
_RATIO = 2.0  # C̃, and GP-BUCB's C


def method(name: str, bandwidth: float, horizon: int, warm_start: Tree = RANDOM_START) -> Method:
    """The method `name` of `LABELS` with a Gaussian kernel exp(−‖x − x'‖²/(2 bandwidth²)) and δ =
    1/horizon.

    `warm_start` is used by the methods that have one. The method `default` is BBKB with its default
    options, without bandwidth and λ.
    """
    if name == "default":
        return default_method(WORKERS)
    strategy = _strategy(name, {"name": "rbf", "lengthscale": bandwidth}, 1.0 / horizon, warm_start)
    return Method(name, LABELS[name], strategy)


def _strategy(name: str, kernel: Tree, delta: float, start: Tree) -> Plain:
    model = {"kernel": kernel, "regularization": NOISE_VARIANCE}
    optimistic = {"name": name, **model, **_WIDTH, "delta": delta}
    match name:
        case "bbkb" | "bbkb_theory" | "bbkb_local" | "bbkb_local_theory":
            batch = {"oversampling": _OVERSAMPLING, "ratio_threshold": _RATIO, "warm_start": start}
            rule = "global_then_local" if "local" in name else "global"
            width = "theory" if name.endswith("theory") else "practical"
            return {**optimistic, **batch, "name": "bbkb", "termination": rule, "width": width}
        case "bkb_practical":  # BBKB with batches of one pull
            single = {"oversampling": _OVERSAMPLING, "ratio_threshold": 1.0, "warm_start": start}
            return {**optimistic, **single, "name": "bbkb", "width": "practical"}
        case "bkb":
            return {**optimistic, "oversampling": _OVERSAMPLING, "warm_start": start}
        case "gp_ucb":
            return {**optimistic, "warm_start": start}
        case "gp_bucb":
            return {**optimistic, "ratio_threshold": _RATIO, "warm_start": start}
        case "async_ts":
            return {**optimistic, "oversampling": _OVERSAMPLING, "batch_size": 30, "scale": 0.1}
        case "epsilon_greedy":
            return {"name": name, **model, "exploration": 0.1}
        case "regularized_evolution":
            return {"name": name, "population": 100, "tournament": 10, "batch_size": 1}  # sequential, as in the paper
        case "uniform":
            return {"name": name}
    raise ValueError(f"a method of Calandriello et al. 2020 must be one of {', '.join(LABELS)}, got {name!r}")


def with_uniform(names: Sequence[str]) -> tuple[str, ...]:
    """`names` and the uniform policy, whose regret is the denominator of the regret ratios."""
    return tuple(dict.fromkeys((*names, "uniform")))


METHODS = (
    *("bbkb", "bbkb_theory", "bbkb_local", "bbkb_local_theory", "bkb", "bkb_practical"),
    *("gp_ucb", "gp_bucb", "async_ts", "epsilon_greedy", "default", "uniform"),
)
# Table 1 of appendix D; methods that are not in it, such as ε-greedy, have BBKB's bandwidth
BANDWIDTHS: Mapping[str, Mapping[str, float]] = {
    "abalone": {"bbkb": 17.5, "gp_ucb": 5.0, "gp_bucb": 12.5, "async_ts": 10.0},
    "cadata": {"bbkb": 12.5, "async_ts": 10.0},
}
SWEEP = (5.0, 7.5, 10.0, 12.5, 15.0, 17.5)
REGULARIZATIONS = (1e-4, 1e-3, 1e-2, 1.0)  # λ; 1 is the least that the theorems allow
RATIOS = (1.2, 4.0, 8.0)  # C̃


def comparison(data_set: str, request: Request, bandwidth: float | None = None) -> Comparison:
    """Compare the methods on a data set; without a `bandwidth` with those of table 1."""
    ours = BANDWIDTHS[data_set]
    widths = {name: bandwidth or ours.get(name, ours["bbkb"]) for name in METHODS}
    names = with_uniform(request.methods)
    shown = "the paper's bandwidths" if bandwidth is None else f"bandwidth {bandwidth:g}"
    return Comparison(
        name=data_set if bandwidth is None else f"{data_set}-{bandwidth:g}",
        title=f"{data_set}, T = {request.evaluations}, {shown}",
        problem={"objective": {"name": data_set}},
        methods=[method(name, widths[name], request.evaluations) for name in names],
    )


def _sweep(request: Request) -> Sequence[Comparison]:
    return [comparison(name, request, width) for name in BANDWIDTHS for width in SWEEP]


def _constants(request: Request) -> Sequence[Comparison]:
    """Compare values of λ and of C̃, which the paper does not print, with both widths of BBKB."""
    changes = [
        *({"regularization": value} for value in REGULARIZATIONS),
        *({"ratio_threshold": value} for value in RATIOS),
    ]
    return [
        replace(
            one,
            name=f"{data_set}-{key}-{value:g}",
            title=f"{data_set}, T = {request.evaluations}, {key} = {value:g}",
            methods=[
                replace(each, strategy={**each.strategy, **change}) if each.name != "uniform" else each
                for each in one.methods
            ],
        )
        for data_set in BANDWIDTHS
        for one in [comparison(data_set, request)]
        for change in changes
        for key, value in change.items()
    ]


_SOURCE = "BBKB, section 5, figures 1 and 2, appendix D.1"
ABALONE = experiment(
    _SOURCE,
    "regret ratio and time on Abalone, 4177 arms",
    METHODS,
    10_000,
    lambda request: [comparison("abalone", request)],
)
CADATA = experiment(
    _SOURCE,
    "regret ratio and time on California housing, 20 640 arms",
    METHODS,
    10_000,
    lambda request: [comparison("cadata", request)],
)
BANDWIDTH = experiment(
    "BBKB, appendix D.1, figures 5 and 6",
    "regret ratio on both data sets with bandwidths from 5 to 17.5",
    METHODS,
    10_000,
    _sweep,
    ("bbkb", "bbkb_theory", "bbkb_local", "gp_ucb", "gp_bucb", "async_ts"),
)
CONSTANTS = experiment(
    "BBKB, section 5, which prints neither λ nor C̃",
    "regret ratio on both data sets with several values of λ and of C̃",
    ("bbkb", "bbkb_theory", "bbkb_local", "bbkb_local_theory"),
    2_000,
    _constants,
    ("bbkb", "bbkb_theory"),
)
