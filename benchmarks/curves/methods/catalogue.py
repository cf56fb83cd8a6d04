"""The methods by name. The library of a peer is imported when it is used, so each is optional."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from benchmarks.curves.methods.dense import DenseOptions, DenseSearch
from benchmarks.curves.methods.ours import Bbkb
from benchmarks.curves.methods.random_search import RandomSearch, ShortThenBest
from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.simulate import Method, Setting
from objectives.reference import did_you_mean
from orchestrator.campaign.early_stopping import StoppingRule
from orchestrator.errors import UserError

LABELS: Mapping[str, str] = {
    "random": "random search",
    "random-asha": "random search, asha",
    "random-short": "random search, 5 steps, then the best",
    "ray-asha": "Ray Tune, random search, ASHAScheduler",
    "tpe": "Optuna, TPE",
    "tpe-hyperband": "Optuna, TPE, HyperbandPruner",
    "tpe-sha": "Optuna, TPE, SuccessiveHalvingPruner",
    "smac": "SMAC3, multi-fidelity",
    "dehb": "DEHB",
    "sampler-hyperband": "Optuna, BBKBSampler, HyperbandPruner",
    "sampler-sha": "Optuna, BBKBSampler, SuccessiveHalvingPruner",
    "sampler-last-hyperband": "Optuna, BBKBSampler of last values, HyperbandPruner",
    "sampler-last-sha": "Optuna, BBKBSampler of last values, SuccessiveHalvingPruner",
    "searcher-asha": "Ray Tune, BBKBSearch, ASHAScheduler",
    "searcher-last-asha": "Ray Tune, BBKBSearch of last values, ASHAScheduler",
    "bbkb": "bbkb, no stopping",
    "bbkb-median": "bbkb, median",
    "bbkb-model": "bbkb, model",
    "bbkb-model-anew": "bbkb, model, without checkpoints",
    "dense": "dense model over steps",
}
PEERS = ("random-asha", "random-short", "ray-asha", "tpe-hyperband", "tpe-sha", "smac", "dehb")
_LIBRARIES: Mapping[str, str] = {
    "ray-asha": "ray",
    "tpe": "optuna",
    "tpe-hyperband": "optuna",
    "tpe-sha": "optuna",
    **{name: "optuna" for name in LABELS if name.startswith("sampler-")},
    **{name: "ray" for name in LABELS if name.startswith("searcher-")},
    "smac": "smac",
    "dehb": "dehb",
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
    if name == "ray-asha":
        from benchmarks.curves.methods.of_ray import RayAsha

        return RayAsha(problem, seed)
    if name.startswith("tpe"):
        from optuna.samplers import TPESampler

        from benchmarks.curves.methods.of_optuna import InOptuna

        return InOptuna(problem, seed, name.partition("-")[2] or "none", TPESampler(seed=seed))
    if name.startswith(("sampler-", "searcher-")):
        from benchmarks.curves.methods.of_adapters import InRayTune, sampler
        from benchmarks.curves.methods.of_optuna import InOptuna

        if name.startswith("searcher-"):
            return InRayTune(problem, seed, "last" in name)
        return InOptuna(problem, seed, name.rpartition("-")[2], sampler(seed, "last" in name))
    if name == "smac":
        from benchmarks.curves.methods.of_smac import SmacMultiFidelity

        return SmacMultiFidelity(problem, seed)
    if name == "dehb":
        from benchmarks.curves.methods.of_dehb import Dehb

        return Dehb(problem, seed)
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
        case "bbkb-median":
            return Bbkb(problem, seed, StoppingRule.median(3))
    return DenseSearch(problem, seed, trainings, DenseOptions())
