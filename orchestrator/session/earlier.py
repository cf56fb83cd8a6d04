"""Earlier runs of the same space, whose best configurations a campaign evaluates first.

The objective may differ. Therefore values of an earlier run are not learned; only its best
configurations are used (`portfolio`).
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from objectives.conditions import Scalar
from objectives.objective import ObjectiveError
from objectives.parameters import Parameter
from objectives.space import SearchSpace
from orchestrator.bandit.arms import Arms
from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.strategies.bbkb import BBKB
from orchestrator.bandit.strategies.presets import with_preset
from orchestrator.bandit.strategy import Observation
from orchestrator.campaign.goals import ConstraintGoal
from orchestrator.errors import RunError
from orchestrator.history.fold import fold
from orchestrator.session.rules import goals_of
from orchestrator.settings.changes import differences
from orchestrator.settings.from_log import read_recorded
from orchestrator.settings.model import Settings
from orchestrator.settings.spaces import dump_space
from orchestrator.store.runs import open_run

MOST = 8  # the number of configurations that are evaluated first
MOST_OF_A_RUN = 200  # the number of a run's best results that are compared
SHARE = 4  # the portfolio takes at most a quarter of the budget
_EXPECTED = (".prior", ".confidence")  # keys that may differ between the spaces
Configuration = Mapping[str, Scalar]


@dataclass(frozen=True)
class EarlierRun:
    """The results of a run."""

    name: str
    configurations: Sequence[Configuration]  # n evaluated configurations
    rewards: Sequence[float]  # (n,), their values, negated if they are minimized


def with_earlier(settings: Settings) -> Settings:
    """Return the settings with the first configurations of the runs that `earlier` lists, if they
    were not read yet.

    Raises RunError if a run cannot be read, has another space, or has no result.
    """
    earlier = settings.earlier
    if earlier is None or earlier.first is not None:
        return settings
    space = SearchSpace(settings.space, settings.forbid)
    budget = settings.budget.evaluations
    constraints = goals_of(settings).constraints
    runs = [_read(Path(folder), space, constraints, f"earlier.{number}") for number, folder in enumerate(earlier.runs)]
    free = max(budget - len(settings.enqueue), 0)
    first = portfolio(space, runs, min(MOST, max(budget // SHARE, 1), free))
    return settings.model_copy(update={"earlier": dataclasses.replace(earlier, first=tuple(first))})


def _read(folder: Path, space: SearchSpace, constraints: Sequence[ConstraintGoal], key: str) -> EarlierRun:
    """Return the results of a run whose configurations belong to `space`, without results that
    violated one of the run's `constraints`. `key` is the run's key in the campaign file, for
    messages."""
    run = open_run(folder)
    history = fold(run.events())
    _check_space(run.name, read_recorded(history.created.settings).space, space, key)
    sign = 1.0 if history.is_maximized else -1.0
    results = [
        ({name: value for name, value in row.parameters.items() if isinstance(value, Scalar)}, sign * row.value)
        for row in history.succeeded
        if row.value is not None
        and not _violates({**row.metrics, history.goals.objectives[0].metric: row.value}, constraints)
    ]
    allowed = list(_of_space(space, results))
    if not allowed:
        within = " that satisfies the constraints" if constraints else ""
        raise RunError(f"{key}: run {run.name} has no result of an allowed configuration{within}: leave it out")
    return EarlierRun(run.name, [configuration for configuration, _ in allowed], [reward for _, reward in allowed])


def _check_space(name: str, theirs: Mapping[str, Parameter], space: SearchSpace, key: str) -> None:
    """Raise RunError if the run `name` has another space than `space`, priors aside."""
    changes = differences(dump_space(theirs), dump_space(space.parameters))
    different = [change for change in changes if not change.key.endswith(_EXPECTED)]
    if different:
        listed = "; ".join(f"{change.key} is {change.old} there and {change.new} here" for change in different[:3])
        ending = f" (and {len(different) - 3} more)" if len(different) > 3 else ""
        raise RunError(
            f"{key}: run {name} must have the space of this campaign, and {listed}{ending}: leave it out, or "
            "search the same space"
        )


def _violates(metrics: Mapping[str, float], constraints: Iterable[ConstraintGoal]) -> bool:
    """Return whether a result is known to violate a constraint. A constraint on a metric that the
    run did not record is ignored."""
    return any(
        constraint.metric in metrics and constraint.margin(metrics[constraint.metric]) < 0.0
        for constraint in constraints
    )


def _of_space(
    space: SearchSpace, results: Iterable[tuple[Configuration, float]]
) -> Iterator[tuple[Configuration, float]]:
    """Yield the results whose configurations no clause of `space` forbids."""
    for configuration, reward in results:
        try:
            space.code_of(configuration)
        except ObjectiveError:  # forbidden in this space
            continue
        yield configuration, reward


def portfolio(space: SearchSpace, runs: Sequence[EarlierRun], most: int = MOST) -> list[Configuration]:
    """Return at most `most` configurations of the runs, chosen greedily: each choice improves the
    best rank of the chosen configurations most, over all runs.

    The rank of a configuration in a run is that of its mean by a model of the run's values. The
    portfolio ends when each run's best configuration is in it.
    """
    arms: dict[bytes, int] = {}
    features: list[Floats] = []
    configurations: list[Configuration] = []
    told: list[list[Observation]] = []
    for run in runs:
        best = np.argsort(-np.array(run.rewards), kind="stable")[:MOST_OF_A_RUN]
        told.append([])
        for place in best:
            row = space.candidate(run.configurations[place]).features
            arm = arms.setdefault(row.tobytes(), len(arms))
            if arm == len(features):
                features.append(row)
                configurations.append(run.configurations[place])
            told[-1].append(Observation(arm, run.rewards[place]))
    numbers = space.candidate(configurations[0]).parameter_of
    evaluated = Arms.of(np.concatenate(features), numbers)
    worth = np.array([_worth(_means(evaluated, results)) for results in told])
    return [configurations[number] for number in _greedy(worth, most)]


def _means(arms: Arms, told: Sequence[Observation]) -> Floats:
    """Return the posterior means (A,) of a model that has learned these results."""
    model = BBKB(**with_preset(BBKB, {}))
    state = model.tell(model.init(arms, np.random.default_rng(0)), told, np.random.default_rng(0))
    return model.posterior(state).mean


def _worth(means: Floats) -> Floats:
    """Return −log of rank / (n + 1), the best having rank 1: (A,), above 0."""
    ranks = np.empty(len(means))
    ranks[np.argsort(-means, kind="stable")] = np.arange(1, len(means) + 1)
    return -np.log(ranks / (len(means) + 1))


def _greedy(worth: Floats, most: int) -> list[int]:
    """Choose columns of `worth` (R, A) greedily. Each column raises the sum of the rows' maxima
    most; the choice ends when no column raises it."""
    selected: list[int] = []
    reached = np.zeros(len(worth))
    while len(selected) < most:
        gains = np.maximum(worth - reached[:, None], 0.0).sum(axis=0)
        column = int(np.argmax(gains))
        if gains[column] <= 0.0:
            break
        selected.append(column)
        reached = np.maximum(reached, worth[:, column])
    return selected
