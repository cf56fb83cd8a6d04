"""Salgia, Vakili, Zhao 2021 (GP-ThreDS): the methods of its section 5 and appendix D.

BBKB is not in the paper. It is added for comparison: with the same kernel and noise (ξ = R), with a
tenth of that noise (the value of R that the paper prints), and with its default options.
"""

from collections.abc import Mapping
from dataclasses import replace

from benchmarks.papers.campaigns import Method, Plain, Tree, default_method

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


def method(
    name: str,
    model: Tree,
    width: Tree,
    threds: Tree,
    horizon: int,
    stop: int | None = None,
) -> Method:
    """Make the method `name` of `LABELS`.

    Args:
        name: the method.
        model: `kernel` and `regularization` of all methods.
        width: `norm_bound`, `noise_scale` and `delta` of methods with upper bounds.
        threds: further options of GP-ThreDS, which replace these.
        horizon: the number of pulls for adaptive discretization's constants.
        stop: the number of pulls after which the run ends.
    """
    if name == "default":
        return replace(default_method(workers=1), label=LABELS[name])
    return Method(name, LABELS[name], _strategy(name, model, width, threds, horizon), stop)


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
            scale = width["noise_scale"] / (10.0 if name == "bbkb_narrow" else 1.0)
            return {
                "name": "bbkb",
                **model,
                **{key: width[key] for key in ("norm_bound", "delta")},
                "noise_variance": scale**2,
                "warm_start": {"name": "random", "pulls": 1},
            }
    raise ValueError(f"a method of Salgia et al. 2021 must be one of {', '.join(LABELS)}, got {name!r}")
