"""The methods by name. The library of a peer is imported when it is used, so each is optional."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from benchmarks.curves.methods.random_search import RandomSearch, ShortThenBest
from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.simulate import Method, Setting
from objectives.keywords import did_you_mean
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
RANDOM = ("random", "random-asha", "random-short")


def known_methods(names: Sequence[str]) -> None:
    """Raise UserError when one of `names` is no method, or its library is not installed."""
    for name in names:
        if name not in LABELS:
            choices = ",".join(LABELS)
            raise UserError(f"--methods must be some of {choices}, got {name!r}{did_you_mean(name, LABELS)}")
        if name.startswith("tpe") and find_spec("optuna") is None:
            remedy = "pip install optuna, or leave it out of --methods"
            raise UserError(f"--methods: {name} needs optuna, which is not installed; {remedy}")


def make_method(name: str, problem: CurveProblem, setting: Setting) -> Method:
    """Make the method `name` of LABELS, which is no campaign."""
    seed, trainings = setting.seed, setting.trainings
    if name.startswith("tpe"):
        from optuna.samplers import TPESampler

        from benchmarks.curves.methods.of_optuna import InOptuna

        return InOptuna(problem, seed, name.partition("-")[2] or "none", TPESampler(seed=seed))
    match name:
        case "random":
            return RandomSearch(problem, seed, None)
        case "random-asha":
            return RandomSearch(problem, seed, StoppingRule.asha(3, problem.steps[0]))
    return ShortThenBest(problem, seed, trainings)
