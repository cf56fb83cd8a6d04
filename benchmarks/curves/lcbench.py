"""LCBench through the surrogate of YAHPO Gym: 7 parameters of a network, validation accuracy after
1 … 52 epochs.

Zimmer, Lindauer, Hutter 2021 (the data). Needs onnxruntime (`benchmarks.surrogates`).
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.curves.problems import Configuration, CurveProblem, Floats
from benchmarks.surrogates import load_surrogate
from objectives.datasets import DataSource
from objectives.objective import Candidates
from objectives.parameters import Range
from objectives.sampling import make_candidates

EPOCHS = 52
TASKS = (
    *("3945", "7593", "34539", "126025", "126026", "126029", "146212", "167104", "167149", "167152"),
    *("167161", "167168", "167181", "167184", "167185", "167190", "167200"),
)
VERDICT_TASKS = (
    *("167201", "168329", "168330", "168331", "168335", "168868", "168908", "168910", "189354"),
    *("189862", "189865", "189866", "189873", "189905", "189906", "189908", "189909"),
)
SPACE: Mapping[str, Range] = {  # in the order of the surrogate's inputs, after the epoch
    "batch_size": Range(16, 512, log=True, integer=True),
    "learning_rate": Range(1e-4, 0.1, log=True),
    "momentum": Range(0.1, 0.99),
    "weight_decay": Range(1e-5, 0.1),
    "num_layers": Range(1, 5, integer=True),
    "max_units": Range(64, 1024, log=True, integer=True),
    "max_dropout": Range(0.0, 1.0),
}
_SECONDS, _ACCURACY = 0, 1  # columns of the surrogate's output
_SAMPLE, _CLIMBERS, _ROUNDS, _CHILDREN = 2**14, 32, 24, 16


def load(task: str, source: DataSource) -> CurveProblem:
    """The problem of an OpenML task; raises ObjectiveError when its data are missing, UserError
    without onnxruntime."""
    surrogate = _surrogate(source)
    best, median = surrogate.optimum(task)
    return CurveProblem(
        name=f"lcbench-{task}",
        space=dict(SPACE),
        arms=None,
        steps=tuple(range(1, EPOCHS + 1)),
        costs=(1,) * EPOCHS,
        whole_cost=EPOCHS,
        curve=partial(surrogate.curve, task),
        durations=partial(surrogate.durations, task),
        best=best,
        median=median,
    )


class Surrogate:
    """The neural network. `session`: an onnxruntime session; `codes`: the numbers of the tasks."""

    def __init__(self, session: Any, codes: Mapping[str, int]) -> None:
        self._session, self._codes = session, codes

    def curve(self, task: str, configuration: Configuration) -> Floats:
        """The accuracies (52,) in percent after each epoch."""
        return self._run(task, np.arange(1, EPOCHS + 1), _columns(configuration))[:, _ACCURACY]

    def durations(self, task: str, configuration: Configuration) -> Floats:
        """The seconds (52,) of each epoch, at least a thousandth of a second."""
        ends = self._run(task, np.arange(1, EPOCHS + 1), _columns(configuration))[:, _SECONDS]
        return np.maximum(np.diff(ends, prepend=0.0), 1e-3)

    @cache  # noqa: B019 -- surrogates live as long as the process
    def optimum(self, task: str) -> tuple[float, float]:
        """The best accuracy that a long random search with local steps finds, and the median of a
        Sobol sequence."""
        candidates = make_candidates(dict(SPACE), _SAMPLE, "sobol", 0)
        final = self._final(task, candidates)
        median, rng = float(np.median(final)), np.random.default_rng(0)
        top = np.argsort(-final)[:_CLIMBERS]
        at, values = candidates.features[top], final[top]
        for number in range(_ROUNDS):
            width = 0.3 * 0.8**number
            moved = np.repeat(at, _CHILDREN, axis=0)
            moved = np.clip(moved + width * rng.standard_normal(moved.shape), 0.0, 1.0)
            finals = self._final_at(task, moved).reshape(len(at), _CHILDREN)
            winners = finals.argmax(axis=1)
            better = finals.max(axis=1) > values
            at[better] = moved.reshape(len(at), _CHILDREN, -1)[np.arange(len(at)), winners][better]
            values = np.maximum(values, finals.max(axis=1))
        return float(values.max()), median

    def _final(self, task: str, candidates: Candidates) -> Floats:
        columns = np.stack([candidates.columns[name].astype(np.float64) for name in SPACE], axis=1)
        return self._run(task, np.full(len(columns), EPOCHS), columns)[:, _ACCURACY]

    def _final_at(self, task: str, positions: Floats) -> Floats:
        """The last accuracies (n,) at positions (n, 7) in the unit cube."""
        columns = [_values(parameter, positions[:, place]) for place, parameter in enumerate(SPACE.values())]
        return self._run(task, np.full(len(positions), EPOCHS), np.stack(columns, axis=1))[:, _ACCURACY]

    def _run(self, task: str, epochs: np.ndarray[Any, Any], columns: Floats) -> Floats:
        """The outputs (n, 6) after `epochs` (n,) with parameters `columns` (n, 7), or (7,) for all
        epochs."""
        columns = np.broadcast_to(columns, (len(epochs), len(SPACE)))
        numbers = np.concatenate((epochs[:, None], columns), axis=1).astype(np.float32)
        tasks = np.full((len(epochs), 1), self._codes[task], np.int32)
        outputs: Floats = self._session.run(None, {"x_cat": tasks, "x_cont": numbers})[0].astype(np.float64)
        return outputs


def _columns(configuration: Configuration) -> Floats:
    return np.array([configuration[name] for name in SPACE], np.float64)


def _values(parameter: Range, positions: Floats) -> Floats:
    """The values (n,) of a parameter at positions (n,) of its scale."""
    low, high = parameter.low, parameter.high
    values = low * (high / low) ** positions if parameter.log else low + (high - low) * positions
    return np.rint(values) if parameter.integer else values


@cache
def _surrogate(source: DataSource) -> Surrogate:
    session, codes = load_surrogate("lcbench", source)
    return Surrogate(session, codes["OpenML_task_id"])
