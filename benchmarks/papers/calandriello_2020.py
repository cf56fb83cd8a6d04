"""Calandriello et al. 2020 (BBKB), section 5 and appendix D: the methods with their settings, and
figures 1, 2, 5 and 6 (Abalone and Cadata).

Each row of a data set is an arm, the reward is the target scaled to [0, 1] plus N(0, 0.01²), and
features are standardized (the paper does not say how it scales them). This module
chooses the values that it omits: λ = ξ² = 1e-4, C̃ = 2, a random first arm, ε-greedy's ε = 0.1.
"""

from collections.abc import Mapping, Sequence

from benchmarks.papers.campaigns import Comparison, Experiment, Method, Plain, Request, Tree, compare, default_method

LABELS: Mapping[str, str] = {
    "bbkb": "Global-BBKB",
    "bbkb_local": "GlobalLocal-BBKB",
    "bkb": "BKB",
    "gp_ucb": "GP-UCB",
    "gp_bucb": "GP-BUCB",
    "async_ts": "async-TS",
    "epsilon_greedy": "EpsGreedy",
    "regularized_evolution": "Reg-evolution",
    "default": "BBKB, default",
    "uniform": "uniform",
}

NOISE_VARIANCE = 1e-4  # ξ² = 0.01²
WORKERS = 64  # workers of BBKB's default, which is asynchronous
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
        case "bbkb" | "bbkb_local":
            batch = {"oversampling": _OVERSAMPLING, "ratio_threshold": _RATIO, "warm_start": start}
            rule = "global" if name == "bbkb" else "global_then_local"
            return {**optimistic, **batch, "name": "bbkb", "termination": rule}
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
    *("bbkb", "bbkb_local", "bkb", "gp_ucb", "gp_bucb", "async_ts"),
    *("epsilon_greedy", "default", "uniform"),
)
# Table 1 of appendix D; methods that are not in it, such as ε-greedy, have BBKB's bandwidth
BANDWIDTHS: Mapping[str, Mapping[str, float]] = {
    "abalone": {"bbkb": 17.5, "gp_ucb": 5.0, "gp_bucb": 12.5, "async_ts": 10.0},
    "cadata": {"bbkb": 12.5, "async_ts": 10.0},
}
SWEEP = (5.0, 7.5, 10.0, 12.5, 15.0, 17.5)


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


_SOURCE = "BBKB, section 5, figures 1 and 2, appendix D.1"
ABALONE = Experiment(
    _SOURCE,
    "regret ratio and time on Abalone, 4177 arms",
    METHODS,
    10_000,
    compare(lambda request: [comparison("abalone", request)]),
)
CADATA = Experiment(
    _SOURCE,
    "regret ratio and time on California housing, 20 640 arms",
    METHODS,
    10_000,
    compare(lambda request: [comparison("cadata", request)]),
)
BANDWIDTH = Experiment(
    "BBKB, appendix D.1, figures 5 and 6",
    "regret ratio on both data sets with bandwidths from 5 to 17.5",
    METHODS,
    10_000,
    compare(_sweep),
    ("bbkb", "bbkb_local", "gp_ucb", "gp_bucb", "async_ts"),
)
