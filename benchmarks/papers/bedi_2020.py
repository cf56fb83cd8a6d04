"""Compressed GP bandits (Bedi et al. 2020 and its long version with Sadler): the methods of section
4.

The papers give: squared exponential kernel of lengthscale 1, σ² = 0.001, ε = 1e-4, bounds that hold
with probability 0.9, 2^d random initial points. The papers do not give, and this module chooses:
BKB's F = 1 and q̄ = 2, λ = ξ² = σ².
"""

import math
from collections.abc import Mapping
from itertools import product

from benchmarks.papers.campaigns import Method, Plain, Tree, default_method
from objectives.parameters import Parameter, Range, Space

NOISE_VARIANCE = 1e-3  # σ²
EPSILON = 1e-4
DELTA = 0.1

ACQUISITIONS: Mapping[str, str] = {"ucb": "UCB", "ei": "EI", "mpi": "MPI"}
KINDS: Mapping[str, str] = {
    "dense": "uncompressed",
    "compressed": "compressed",  # Bedi et al. 2020: each action is evaluated, and the informative ones are stored
    "skipping": "compressed, skipping",  # Bedi, Sadler et al.: only the informative ones are evaluated
}
OTHERS: Mapping[str, str] = {"bkb": "BKB (UCB)", "default": "BBKB, default"}  # methods that are not from these papers
METHODS = (*(f"{kind}_{acquisition}" for acquisition, kind in product(ACQUISITIONS, KINDS)), *OTHERS)


def label(name: str) -> str:
    """The name of the method in tables."""
    if name in OTHERS:
        return OTHERS[name]
    kind, acquisition = name.split("_")
    return f"{ACQUISITIONS[acquisition]}, {KINDS[kind]}"


def lengthscales(space: Space) -> list[float]:
    """Return lengthscales for features in [0, 1] that are 1 on the unscaled domain of ranges."""
    return [1.0 / _width(parameter) for parameter in space.values()]


def _width(parameter: Parameter) -> float:
    """Return the width of a range, in decades if its scale is logarithmic."""
    assert isinstance(parameter, Range)
    if parameter.log:
        return math.log10(parameter.high / parameter.low)
    return float(parameter.high - parameter.low)


def method(name: str, space: Space, horizon: int) -> Method:
    """The method `name` of `METHODS`, for a `space` of ranges and `horizon` steps."""
    if name == "default":
        return default_method(workers=1)
    kernel = {"name": "rbf", "lengthscale": lengthscales(space)}
    initial = 2 ** len(space)
    if name == "bkb":
        return Method(name, label(name), _bkb(kernel, initial))
    kind, acquisition = name.split("_")
    strategy: Plain = {
        "name": f"compressed_{acquisition}",
        "kernel": kernel,
        "noise_variance": NOISE_VARIANCE,
        "initial_points": initial,
        **_compression(kind, horizon),
    }
    if acquisition == "ucb":
        strategy["delta"] = DELTA
    return Method(name, label(name), strategy)


def _compression(kind: str, horizon: int) -> Plain:
    """The options of the compression. A run that skips ends when it has skipped `horizon`
    consecutive steps."""
    match kind:
        case "dense":
            return {"entropy_test": "relative", "epsilon": 0.0}  # stores all points
        case "compressed":
            return {"entropy_test": "absolute", "epsilon": EPSILON}
    return {**_compression("compressed", horizon), "evaluate_uninformative": False, "max_skipped": horizon}


def _bkb(kernel: Tree, initial: int) -> Plain:
    return {
        "name": "bkb",
        "kernel": kernel,
        "regularization": NOISE_VARIANCE,
        "noise_variance": NOISE_VARIANCE,
        "norm_bound": 1.0,
        "delta": DELTA,
        "oversampling": 2.0,
        "warm_start": {"name": "random", "pulls": initial},
    }
