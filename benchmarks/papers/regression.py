"""Calandriello et al. 2020, section 5 and appendix D.1, figures 1, 2, 5 and 6: Abalone and Cadata.

Each row of a data set is an arm, the reward is the target scaled to [0, 1] plus N(0, 0.01²), and
features are standardized (the paper does not say how it scales them).
"""

from collections.abc import Mapping, Sequence

from benchmarks.papers.calandriello_2020 import method, with_uniform
from benchmarks.papers.campaigns import Comparison
from benchmarks.papers.comparing import compare
from benchmarks.papers.experiment import Experiment, Request

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
    """Compare the methods of the request and the uniform policy on a data set.

    Args:
        data_set: abalone or cadata.
        request: the options.
        bandwidth: the bandwidth of all methods; None for those of table 1.
    """
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
