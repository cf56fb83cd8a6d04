"""The methods by name. The library of a peer is imported when it is used, so each is optional."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from benchmarks.curves.methods.ours import Bbkb
from benchmarks.curves.methods.random_search import RandomSearch, ShortThenBest
from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.simulate import Method, Setting
from objectives.reference import did_you_mean
from orchestrator.campaign.trainings.rungs import StoppingRule
from orchestrator.errors import UserError

LABELS: Mapping[str, str] = {
    "random": "random search",
    "random-asha": "random search, asha",
    "random-short": "random search, 5 steps, then the best",
    "tpe": "Optuna, TPE",
    "tpe-hyperband": "Optuna, TPE, HyperbandPruner",
    "tpe-sha": "Optuna, TPE, SuccessiveHalvingPruner",
    "bbkb": "bbkb, no stopping",
    "bbkb-median": "bbkb, median",
    "bbkb-model": "bbkb, model",
    "bbkb-model-anew": "bbkb, model, without checkpoints",
}
PEERS = ("random-asha", "random-short", "tpe-hyperband", "tpe-sha")
_LIBRARIES: Mapping[str, str] = {
    "tpe": "optuna",
    "tpe-hyperband": "optuna",
    "tpe-sha": "optuna",
}


def known_methods(names: Sequence[str]) -> None:
    """Raise UserError when one of `names` is no method, or its library is not installed."""
    for name in names:
        if name not in LABELS:
            choices = ",".join(LABELS)
            raise UserError(f"--methods must be some of {choices}, got {name!r}{did_you_mean(name, LABELS)}")
        library = _LIBRARIES.get(name)
        if library is not None and find_spec(library) is None:
            remedy = f"pip install {library}, or leave it out of --methods"
            raise UserError(f"--methods: {name} needs {library}, which is not installed; {remedy}")


def make_method(name: str, problem: CurveProblem, setting: Setting) -> Method:
    """The method `name` of LABELS."""
    seed, trainings = setting.seed, setting.trainings
    if name.startswith("tpe"):
        from optuna.samplers import TPESampler

        from benchmarks.curves.methods.of_optuna import InOptuna

        return InOptuna(problem, seed, name.partition("-")[2] or "none", TPESampler(seed=seed))
    return _own(name, problem, seed, trainings)


def _own(name: str, problem: CurveProblem, seed: int, trainings: int) -> Method:
    first = problem.steps[0]
    match name:
        case "random":
            return RandomSearch(problem, seed, None)
        case "random-asha":
            return RandomSearch(problem, seed, StoppingRule.asha(3, first))
        case "random-short":
            return ShortThenBest(problem, seed, trainings)
        case "bbkb":
            return Bbkb(problem, seed, None)
    return Bbkb(problem, seed, StoppingRule.median(3))
