"""Calandriello et al. 2020 (BBKB): the methods of its section 5 and appendix D, with their
settings.

The paper does not give, and this module chooses: λ = ξ² = 1e-4, C̃ = 2, a random first arm,
ε-greedy's ε = 0.1.
"""

from collections.abc import Mapping, Sequence

from benchmarks.papers.campaigns import Method, Plain, Tree, default_method

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


def method(
    name: str,
    bandwidth: float,
    horizon: int,
    stop: int | None = None,
    warm_start: Tree = RANDOM_START,
) -> Method:
    """The method `name` of `LABELS` with a Gaussian kernel exp(−‖x − x'‖²/(2 bandwidth²)) and δ =
    1/horizon.

    `stop`: the number of pulls after which it ends. `warm_start` is used by the methods that have
    one. The method `default` is BBKB with its default options, without bandwidth and λ.
    """
    if name == "default":
        return default_method(WORKERS)
    strategy = _strategy(name, {"name": "rbf", "lengthscale": bandwidth}, 1.0 / horizon, warm_start)
    return Method(name, LABELS[name], strategy, stop)


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
