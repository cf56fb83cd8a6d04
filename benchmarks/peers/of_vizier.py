"""Google's Vizier (Song et al. 2024): its default, GP-UCB-PE, without a service.

Ordered parameters become the index of their value. Numbers of trials are padded to multiples of ten
(an option of Vizier), so that JAX compiles once for ten results. Double precision, as in Vizier's
service. Newer versions of JAX than 0.4.38 were not accepted by the version of Equinox that it needs.
"""

from typing import Any

import jax
from vizier import algorithms, pyvizier
from vizier.algorithms.designers import VizierGPUCBPEBandit
from vizier.pyvizier.converters import padding

from bbkb.objectives.parameters import Choice, Ordered, Parameter, Range
from bbkb.orchestrator.errors import UserError
from benchmarks.peers.problems import Evaluation, Point, Problem

jax.config.update("jax_enable_x64", True)

_REWARD = "reward"
_OPTIMIZERS: dict[tuple[tuple[str, Parameter], ...], Any] = {}  # of the acquisition, by the problem's space
_PADDING = padding.PaddingSchedule(num_trials=padding.PaddingType.MULTIPLES_OF_10)


class OfVizier:
    """The designer GP-UCB-PE, which takes pending suggestions into account. Raises UserError if the
    space has a condition or a parameter that Vizier does not have."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._space = problem.space
        study = pyvizier.ProblemStatement()
        for name, parameter in problem.space.items():
            _add(study.search_space.root, name, parameter)
        study.metric_information.append(pyvizier.MetricInformation(_REWARD, goal=pyvizier.ObjectiveMetricGoal.MAXIMIZE))
        self._designer = VizierGPUCBPEBandit(
            study,
            rng=jax.random.PRNGKey(seed),
            padding_schedule=_PADDING,
            acquisition_optimizer_factory=self._optimizer,
        )
        self._running: dict[int, Any] = {}  # trials
        self._finished: list[Any] = []  # since the last suggestion

    def ask(self, number: int) -> Point:
        self._designer.update(
            algorithms.CompletedTrials(self._finished), algorithms.ActiveTrials(list(self._running.values()))
        )
        self._finished = []
        (suggestion,) = self._designer.suggest(1)
        trial = self._running[number] = suggestion.to_trial(number + 1)
        return {name: _value(self._space[name], trial.parameters.get_value(name)) for name in self._space}

    def tell(self, number: int, result: Evaluation) -> None:
        failed = "failed" if result.rewards is None else None
        metrics = {} if result.rewards is None else {_REWARD: result.rewards[0]}
        trial = self._running.pop(number)
        self._finished.append(trial.complete(pyvizier.Measurement(metrics), infeasibility_reason=failed))

    def recommend(self) -> None:
        """None: the point with the largest mean reward."""

    def _optimizer(self, converter: Any) -> Any:
        """The default optimizer, without state. JAX traces each object anew, so there is one for each space."""
        key = tuple(self._space.items())
        if key not in _OPTIMIZERS:
            _OPTIMIZERS[key] = VizierGPUCBPEBandit.default_acquisition_optimizer_factory(converter)
        return _OPTIMIZERS[key]


def _add(root: Any, name: str, parameter: Parameter) -> None:
    if parameter.when is not None:
        raise UserError(
            f"vizier has no conditions, but {name} exists only if {parameter.when}; leave it out of --methods"
        )
    match parameter:
        case Range(low=low, high=high, log=log, step=None):
            scale = pyvizier.ScaleType.LOG if log else pyvizier.ScaleType.LINEAR
            if parameter.integer:
                root.add_int_param(name, int(low), int(high), scale_type=scale)
            else:
                root.add_float_param(name, float(low), float(high), scale_type=scale)
        case Ordered(levels=levels):
            root.add_int_param(name, 0, len(levels) - 1, scale_type=pyvizier.ScaleType.LINEAR)
        case Choice(levels=levels):
            root.add_categorical_param(name, [str(place) for place in range(len(levels))])
        case _:
            raise UserError(f"vizier has no parameter such as {name}, {parameter}; leave it out of --methods")


def _value(parameter: Parameter, value: Any) -> Any:
    """The parameter's value for Vizier's `value`."""
    return parameter.levels[int(value)] if isinstance(parameter, Choice | Ordered) else value
