"""Ax (BoTorch) through its client: it selects the generation strategy, here Sobol and then a
Gaussian process."""

import logging
import warnings
from typing import Any, Literal

import torch
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.exceptions.core import DataRequiredError
from ax.utils.common.logger import set_ax_logger_levels

from benchmarks.peers.problems import Point, Problem
from objectives.conditions import Scalar
from objectives.parameters import Choice, Ordered, Parameter, Range
from orchestrator.errors import CampaignError, UserError

_ALL_AT_ONCE = 1  # one suggestion at a time, for each free worker


class OfAx:
    """Maximises the metric `reward`; Ax treats running trials as pending."""

    def __init__(self, problem: Problem, seed: int) -> None:
        set_ax_logger_levels(logging.ERROR)
        torch.set_num_threads(1)
        self._space = problem.space
        self._client = Client(random_seed=seed)
        self._client.configure_experiment([_config(name, parameter) for name, parameter in problem.space.items()])
        self._client.configure_optimization(objective="reward")
        self._running: dict[int, int] = {}

    def ask(self, number: int) -> Point | None:
        """None while all points of its first design are running."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numerical warnings of its fits
            try:
                ((trial, values),) = self._client.get_next_trials(_ALL_AT_ONCE).items()
            except DataRequiredError:
                return None
        self._running[number] = trial
        return {name: _value(self._space[name], values[name]) for name in self._space}

    def tell(self, number: int, reward: float | None) -> None:
        if reward is None:
            raise CampaignError("the benchmark's Ax does not run problems with failed evaluations")
        self._client.complete_trial(self._running.pop(number), {"reward": reward})

    def recommend(self) -> None:
        """None: the point with the largest mean reward."""


def _config(name: str, parameter: Parameter) -> object:
    kind: Literal["int"] = "int"
    match parameter:
        case Range(low=low, high=high, log=log, integer=False):
            return RangeParameterConfig(name, (low, high), "float", scaling="log" if log else "linear")
        case Range(low=low, high=high, log=log, integer=True, step=None):
            return RangeParameterConfig(name, (int(low), int(high)), kind, scaling="log" if log else "linear")
        case Ordered(ordered=levels) if len(levels) > 2:
            return RangeParameterConfig(name, (0, len(levels) - 1), kind)
        case Ordered(ordered=levels):
            return ChoiceParameterConfig(name, list(range(len(levels))), kind, is_ordered=True)
        case Choice(choices=levels):
            return ChoiceParameterConfig(name, [str(level) for level in levels], "str", is_ordered=False)
    raise UserError(f"the benchmark's Ax has no parameter for {parameter}")


def _value(parameter: Parameter, value: Any) -> Scalar:
    if isinstance(parameter, Ordered):
        return parameter.ordered[int(value)]
    if isinstance(parameter, Range):
        return int(value) if parameter.integer else float(value)
    return str(value)
