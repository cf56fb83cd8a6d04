"""Any Optuna sampler (Akiba, Sano, Yanase, Ohta, Koyama 2019, "Optuna: a next-generation
hyperparameter optimization framework") as a strategy. Each suggestion is replaced by the nearest
candidate.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Gt
from typing_extensions import Doc

from bbkb.objectives.errors import did_you_mean
from bbkb.orchestrator.bandit.arms import Arms, as_arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices, same
from bbkb.orchestrator.bandit.options import check_options
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.strategies.uniform import ModelFree, ModelFreeState
from bbkb.orchestrator.bandit.strategy import (
    Choose,
    Decision,
    ModeOption,
    Observation,
    Pick,
    Record,
    Wait,
    arms_and_rewards,
    refusal,
)

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.study import Study

_STATELESS = ("TPESampler", "GPSampler", "RandomSampler")  # these read only parameters and values

Notes = Mapping[str, object]  # attributes of a trial or a study, as JSON values

_LEVELS = 64  # a parameter with at most this many values is an integer, the rank of its value


@dataclass(frozen=True, eq=False)
class Coding:
    """The candidates as a sampler sees them.

    A parameter with one feature is a number in the feature's range or, if it has few values, their
    rank. A parameter with several features (a choice) is the index of the largest one. Parameters
    that do not vary are omitted.
    """

    arms: Arms

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @cached_property
    def columns(self) -> dict[str, Indices]:
        """The features of each parameter that varies."""
        numbers = range(self.arms.layout.parameter_count)
        positions = {f"p{number}": np.flatnonzero(self.arms.layout.parameters == number) for number in numbers}
        return {
            name: columns for name, columns in positions.items() if np.ptp(self._features[:, columns], axis=0).any()
        }

    @cached_property
    def levels(self) -> dict[str, Floats]:
        """The ascending values of parameters with one feature and few values."""
        values = {name: np.unique(self._features[:, columns]) for name, columns in self.columns.items()}
        return {
            name: levels for name, levels in values.items() if len(self.columns[name]) == 1 and len(levels) <= _LEVELS
        }

    @cached_property
    def distributions(self) -> "dict[str, BaseDistribution]":
        """The distributions from which Optuna draws each parameter."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        distributions: dict[str, BaseDistribution] = {}
        for name, columns in self.columns.items():
            if name in self.levels:
                distributions[name] = IntDistribution(0, len(self.levels[name]) - 1)
            elif len(columns) > 1:
                distributions[name] = CategoricalDistribution(tuple(range(len(columns))))
            else:
                column = self._features[:, columns]
                distributions[name] = FloatDistribution(float(column.min()), float(column.max()))
        return distributions

    def parameters(self, arm: int) -> dict[str, float | int]:
        """Return the sampler's values for the arm."""
        return {name: self._value(name, self._features[arm, columns]) for name, columns in self.columns.items()}

    def nearest(self, suggested: Mapping[str, object], excluded: Indices) -> int:
        """Return the arm nearest to the suggestion, in units of the parameters' extents; the first
        one in case of ties."""
        distance = np.zeros(len(self.arms))
        for name, columns in self.columns.items():
            place = self._place(name, len(columns), suggested[name])
            parameter = int(self.arms.layout.parameters[columns[0]])
            difference = (self._features[:, columns] - place) / self.arms.layout.extents[parameter]
            distance += (difference**2).sum(axis=1)
        distance[excluded] = np.inf
        return int(distance.argmin())

    @property
    def _features(self) -> Floats:
        features: Floats = self.arms.features
        return features

    def _value(self, name: str, features: Floats) -> float | int:
        if len(features) > 1:
            return int(features.argmax())
        if name in self.levels:
            return int(np.searchsorted(self.levels[name], features[0]))
        return float(features[0])

    def _place(self, name: str, width: int, value: Any) -> Floats:
        """Return the features that a value represents."""
        if width > 1:
            one_hot: Floats = np.eye(width)[int(value)] * self._features[:, self.columns[name]].max()
            return one_hot
        return np.array([self.levels[name][int(value)] if name in self.levels else float(value)])


@dataclass(frozen=True, eq=False, kw_only=True)
class OptunaState(ModelFreeState):
    """`learned`: every pull with a reward, as (arm, reward), in the order of learning. `notes`: the
    records that a sampler made for each of them (empty for samplers without records). The last
    `tell` made the last `fresh` records. `study_notes`: the records for the study as a whole.
    """

    coding: Coding
    learned: tuple[tuple[int, float], ...] = ()
    notes: tuple[Notes, ...] = ()
    fresh: int = 0
    study_notes: Notes = field(default_factory=dict)

    @property
    def arms(self) -> Arms:
        """The candidates."""
        return self.coding.arms


@dataclass(frozen=True)
class OptunaSampler(ModelFree[OptunaState]):
    """A sampler, specified by the name of its class. Raises ValueError if Optuna is not installed
    or has no such sampler, or if the sampler rejects its options.

    A suggestion is a function of the known results, the pending pulls and the campaign's seed: the
    study is rebuilt for each suggestion, with pending pulls as running trials, which takes about
    0.2 ms per result. Samplers other than TPE, GP and random search store records in their study;
    the campaign's log contains these records.

    A suggestion is replaced by the nearest candidate, so the resolution of a continuous space is
    that of its candidates: raise `candidates.size` for a finer one.
    """

    sampler: Annotated[str, Doc("A class of `optuna.samplers`: `TPESampler`, `GPSampler`, `CmaEsSampler`, …")] = (
        "TPESampler"
    )
    options: Annotated[
        Mapping[str, object], Doc("Arguments of the class, without `seed`, which is the campaign's.")
    ] = field(default_factory=dict)
    mode: ModeOption = "async"
    refresh_growth: Annotated[
        float, Gt(0), Doc("In mode `async`: the share by which results have grown when the sampler is given them, > 0.")
    ] = 0.01

    def __post_init__(self) -> None:
        check_options(self)
        if find_spec("optuna") is None:
            raise ValueError('the strategy optuna needs Optuna, which is not installed: pip install "optuna>=4,<6"')
        if "seed" in self.options:
            raise ValueError("strategy.options must not hold seed: the campaign's seed is the sampler's")
        self._make(0, 0)

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> OptunaState:
        """Return the state before any pull of `arms` (A, d); draws the seed. Raises ValueError for invalid arms."""
        candidates = as_arms(arms)
        seed = int(rng.integers(2**32))
        pulls = Pulls.none(len(candidates))
        return OptunaState(coding=Coding(candidates), seed=seed, pulls=pulls)

    def ask(self, state: OptunaState, pending: Sequence[int], limit: int) -> Decision:
        """Return `limit` suggestions, each given the pending pulls and earlier suggestions."""
        refused = refusal(state, limit)
        if refused is not None:
            return refused
        running = list(pending)
        while len(running) < len(pending) + limit:
            excluded = _arms_to_exclude(state, running)
            if len(excluded) == len(state.arms):
                break
            study = self._study(state, running)
            with _quiet():
                suggested = study.ask(state.coding.distributions)
            running.append(state.coding.nearest(suggested.params, excluded))
        picks = tuple(Pick(arm) for arm in running[len(pending) :])
        return Choose(picks, "limit") if picks else Wait("every arm was pulled or is set aside")

    def tell(self, state: OptunaState, observations: Sequence[Observation], rng: np.random.Generator) -> OptunaState:
        """Return the state after these newly finished pulls, with the sampler's notes on them."""
        arms, rewards = arms_and_rewards(observations)
        notes: list[Notes] = []
        after = state
        if self.sampler not in _STATELESS:
            for arm, reward in zip(arms, rewards, strict=True):
                study = self._study(after, ())
                notes.append(_note(study, state.coding, reward))
                study_notes = study._storage.get_study_system_attrs(study._study_id)
                after = _learn(after, [Observation(arm, reward)], notes[-1:], study_notes)
        return _learn(state, observations, notes, after.study_notes)

    def recorded(self, state: OptunaState) -> Record:
        """Return the seed, and the sampler's notes on the pulls of the last `tell`."""
        fresh = state.notes[len(state.notes) - state.fresh :]
        return {"seed": state.seed, "notes": [dict(note) for note in fresh], "study": dict(state.study_notes)}

    def restore(self, state: OptunaState, observations: Sequence[Observation], record: Record) -> OptunaState:
        """Like `tell`, with the seed and the notes of `record`."""
        return replace(_learn(state, observations, record["notes"], record["study"]), seed=int(record["seed"]))

    def _study(self, state: OptunaState, running: Sequence[int]) -> "Study":
        """Return a study with known results, `running` arms, and a seeded sampler."""
        import optuna
        from optuna.trial import TrialState, create_trial

        with _quiet():
            sampler = self._make(state.seed, state.over + len(running))
            study = optuna.create_study(direction="maximize", sampler=sampler)
            for key, value in state.study_notes.items():
                study._storage.set_study_system_attr(study._study_id, key, value)
            distributions = state.coding.distributions
            for place, (arm, reward) in enumerate(state.learned):
                notes = dict(state.notes[place]) if state.notes else None
                parameters = state.coding.parameters(arm)
                study.add_trial(
                    create_trial(params=parameters, distributions=distributions, value=reward, system_attrs=notes)
                )
            for arm in running:
                if self.sampler in _STATELESS:
                    parameters = state.coding.parameters(arm)
                    under_way = create_trial(state=TrialState.RUNNING, params=parameters, distributions=distributions)
                    study.add_trial(under_way)
                else:
                    study.ask(distributions)  # these count suggestions, with or without a result
        return study

    def _make(self, seed: int, number: int) -> "BaseSampler":
        """Return the sampler, seeded for pull `number`. Raises ValueError."""
        from optuna import samplers

        names = [name for name in dir(samplers) if name.endswith("Sampler") and not name.startswith("Base")]
        if self.sampler not in names:
            hint = did_you_mean(f"{self.sampler.removesuffix('Sampler')}Sampler", names)
            raise ValueError(f"strategy.sampler must be one of {', '.join(names)}, got {self.sampler!r}{hint}")
        sampler_seed = int(np.random.default_rng([seed, number]).integers(2**31))
        try:
            with _quiet():
                sampler: BaseSampler = getattr(samplers, self.sampler)(**self.options, seed=sampler_seed)
        except (TypeError, ValueError, ImportError) as error:
            raise ValueError(f"strategy.options must be arguments of {self.sampler}: {error}") from error
        return sampler


def _learn(
    state: OptunaState, observations: Sequence[Observation], notes: Sequence[Notes], study_notes: Notes
) -> OptunaState:
    """Return the state after these pulls; `notes` has one for each with a reward, or none."""
    return replace(
        state.observe(observations),
        learned=(*state.learned, *zip(*arms_and_rewards(observations), strict=True)),
        notes=(*state.notes, *notes),
        fresh=len(notes),
        study_notes=study_notes,
    )


def _note(study: "Study", coding: Coding, reward: float) -> Notes:
    """Return the sampler's notes on the next trial; its drawn parameters do not matter."""
    with _quiet():
        study.tell(study.ask(coding.distributions), reward)
    noted: Notes = study.trials[-1].system_attrs
    return noted


def _arms_to_exclude(state: OptunaState, running: Sequence[int]) -> Indices:
    """Return arms that may not be pulled: set aside or, if none repeats, pulled or running."""
    if state.arms.layout.repeats:
        return state.set_aside
    return np.unique(np.concatenate((state.set_aside, state.pulls.arms, np.array(running, np.intp))))


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress Optuna's messages about studies and trials, and about experimental options."""
    from optuna import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)
