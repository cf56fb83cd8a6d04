"""The names that a user may give, and the searches that they select."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.reference import DataSource
from bbkb.orchestrator.errors import UserError
from benchmarks.command import numbers, parts
from benchmarks.peers import fronts, functions, odd, olympus, trainings, yahpo
from benchmarks.peers.engineering import DESIGNS
from benchmarks.peers.functions import NOISE, SHAPES, Function
from benchmarks.peers.problems import Group, Problem
from benchmarks.peers.tables import TABLES, load_table

_NOISY = "-noisy"
PROBLEMS = (*TABLES, *SHAPES, *(f"{name}{_NOISY}" for name in SHAPES))
SETS: Mapping[str, tuple[str, ...]] = {
    "all": PROBLEMS,
    "tables": tuple(TABLES),
    "functions": tuple(SHAPES),
    "noisy": tuple(f"{name}{_NOISY}" for name in SHAPES),
    **{
        suite: tuple(name for dimension in dimensions for name in functions.bbob_names(suite, dimension))
        for suite, dimensions in functions.DIMENSIONS.items()
    },
    **{
        f"{suite}-{dimension}": tuple(functions.bbob_names(suite, dimension))
        for suite, dimensions in functions.DIMENSIONS.items()
        for dimension in dimensions
    },
    "lcbench": yahpo.LCBENCH,
    "rbv2": yahpo.LEARNERS,
    "rbv2-others": yahpo.OTHER_LEARNERS,
    "olympus": olympus.EXPERIMENTS,
    "trainings": trainings.TRAININGS,
    "odd": odd.PROBLEMS,
    "odd-noisy": odd.NOISY,
    "engineering": tuple(DESIGNS),
    **{form: tuple(f"{name}-{form}" for name in fronts.CONSTRAINED) for form in fronts.FORMS},
}
SUITES: Mapping[str, Group] = {  # not in `all`
    "bbob": Group.BBOB,
    "mixint": Group.MIXINT,
    "lcbench": Group.LCBENCH,
    "rbv2": Group.RBV2,
    "rbv2-others": Group.RBV2,
    "olympus": Group.OLYMPUS,
    "trainings": Group.TRAININGS,
    "odd": Group.ODD,
    "odd-noisy": Group.ODD_NOISY,  # some of `odd`
    "engineering": Group.ENGINEERING,
    "margins": Group.MARGINS,
    "violations": Group.VIOLATIONS,
    "total": Group.TOTAL,
}
_GROUPS = {
    **dict.fromkeys(TABLES, Group.TABLES),
    **dict.fromkeys(SETS["functions"], Group.FUNCTIONS),
    **dict.fromkeys(SETS["noisy"], Group.NOISY),
    **{name: group for suite, group in SUITES.items() for name in SETS[suite]},
}


@dataclass(frozen=True)
class Setting:
    """The settings that compared searches have in common."""

    workers: int
    evaluations: int

    def __str__(self) -> str:
        return f"W = {self.workers}, T = {self.evaluations}"

    @property
    def name(self) -> str:
        """The name in file names."""
        return f"w{self.workers}-t{self.evaluations}"


def make_problem(name: str, seed: int, source: DataSource) -> Problem:
    """The problem of this name. Raises ObjectiveError if its data are not available."""
    if name in TABLES:
        return load_table(name, source)
    if name in yahpo.LCBENCH:
        return yahpo.load_curves(name, source)
    if name in (*yahpo.LEARNERS, *yahpo.OTHER_LEARNERS):
        return yahpo.load_learner(name, source)
    if name in olympus.EXPERIMENTS:
        return olympus.load_experiment(name, source)
    if name in trainings.TRAININGS:
        return trainings.load_training(name)
    if name in odd.PROBLEMS:
        return odd.load_odd(name, seed)
    if name.startswith(tuple(functions.DIMENSIONS)):
        return functions.load_bbob(name, seed)
    if name in DESIGNS or name.partition("-")[2] in fronts.FORMS:
        return fronts.load_front(name)
    return Function(name.removesuffix(_NOISY), seed, NOISE if name.endswith(_NOISY) else 0.0)


def group_of(problem: str) -> Group:
    """The group of the problem with this name."""
    return _GROUPS[problem]


def problems(text: str) -> tuple[str, ...]:
    """The problems in a list of names and SETS, separated by commas. Raises UserError."""
    names: list[str] = []
    every = (*SETS, *PROBLEMS, *(name for suite in SUITES for name in SETS[suite]))
    for name in parts(text):
        if name not in every:
            listed = ",".join((*SETS, *PROBLEMS))
            raise UserError(
                f"--problems must be some of {listed} or of what {', '.join(SUITES)} stand for, "
                f"got {name!r}{did_you_mean(name, every)}"
            )
        names += SETS.get(name, (name,))
    return tuple(dict.fromkeys(names))


def settings(workers: str, evaluations: str) -> list[Setting]:
    """All combinations, the cheapest first."""
    return [
        Setting(many, count)
        for count in sorted(numbers("--evaluations", evaluations))
        for many in sorted(numbers("--workers", workers))
    ]


def shown(setting: Setting, after: str) -> list[int]:
    """The numbers of evaluations after which regrets are shown."""
    counts = numbers("--after", after) if after else [round(setting.evaluations * share) for share in (0.25, 0.5, 1)]
    return [count for count in counts if count <= setting.evaluations]


def strategies(texts: Sequence[str]) -> dict[str, dict[str, object]]:
    """`label={name: bbkb, width: 1}` as label and settings. Raises UserError on other texts."""
    return dict(_strategy(text) for text in texts)


def _strategy(text: str) -> tuple[str, dict[str, object]]:
    label, _, written = text.partition("=")
    try:
        options = yaml.safe_load(written)
    except yaml.YAMLError as error:
        raise UserError(f"--strategy {label}: {error}") from error
    if not label or not isinstance(options, dict) or "name" not in options:
        raise UserError(f"--strategy must be LABEL={{name: STRATEGY, option: value}}, got {text!r}")
    return label, options
