"""LCBench through the surrogate of YAHPO Gym: 7 parameters of a network, validation accuracy after
1 … 52 epochs.

Zimmer, Lindauer, Hutter 2021 (the data); Pfisterer, Schneider, Moosbauer, Binder, Bischl 2022 (the
surrogates: neural networks in ONNX format, with a JSON file that encodes the levels of their
inputs). Needs onnxruntime.
"""

import json
from collections.abc import Mapping
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from bbkb.objectives.datasets import DataSource
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Range
from bbkb.objectives.sampling import make_candidates
from bbkb.orchestrator.errors import UserError
from benchmarks.curves.problems import Configuration, CurveProblem, Floats

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
_ACCURACY = 1  # column of the surrogate's output
_SAMPLE, _CLIMBERS, _ROUNDS, _CHILDREN = 2**14, 32, 24, 16


def load(task: str, source: DataSource) -> CurveProblem:
    """The problem of an OpenML task. Raises the errors of `load_surrogate`."""
    surrogate = _surrogate(source)
    best, median = surrogate.optimum(task)
    return CurveProblem(
        name=f"lcbench-{task}",
        space=dict(SPACE),
        arms=None,
        steps=tuple(range(1, EPOCHS + 1)),
        costs=(1,) * EPOCHS,
        curve=partial(surrogate.curve, task),
        best=best,
        median=median,
    )


class Surrogate:
    """The neural network. `session`: an onnxruntime session; `codes`: the numbers of the tasks."""

    def __init__(self, session: Any, codes: Mapping[str, int]) -> None:
        self._session, self._codes = session, codes

    def curve(self, task: str, configuration: Configuration) -> Floats:
        """The accuracies (52,) in percent after each epoch."""
        columns = np.array([configuration[name] for name in SPACE], np.float64)
        return self._run(task, np.arange(1, EPOCHS + 1), columns)

    @cache  # noqa: B019 -- surrogates live as long as the process
    def optimum(self, task: str) -> tuple[float, float]:
        """The best accuracy of a random search with local steps; the median of a sample."""
        candidates = make_candidates(dict(SPACE), _SAMPLE, "sobol", 0)
        columns = np.stack([candidates.columns[name].astype(np.float64) for name in SPACE], axis=1)
        final = self._run(task, np.full(len(columns), EPOCHS), columns)
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

    def _final_at(self, task: str, positions: Floats) -> Floats:
        """The last accuracies (n,) at positions (n, 7) in the unit cube."""
        columns = [_values(parameter, positions[:, place]) for place, parameter in enumerate(SPACE.values())]
        return self._run(task, np.full(len(positions), EPOCHS), np.stack(columns, axis=1))

    def _run(self, task: str, epochs: np.ndarray[Any, Any], columns: Floats) -> Floats:
        """The accuracies (n,) after `epochs` (n,) with parameters `columns`, (n, 7) or (7,)."""
        columns = np.broadcast_to(columns, (len(epochs), len(SPACE)))
        numbers = np.concatenate((epochs[:, None], columns), axis=1).astype(np.float32)
        tasks = np.full((len(epochs), 1), self._codes[task], np.int32)
        outputs = self._session.run(None, {"x_cat": tasks, "x_cont": numbers})[0].astype(np.float64)
        accuracies: Floats = outputs[:, _ACCURACY]
        return accuracies


def _values(parameter: Range, positions: Floats) -> Floats:
    """The values (n,) of a parameter at positions (n,) of its scale."""
    low, high = parameter.low, parameter.high
    values = low * (high / low) ** positions if parameter.log else low + (high - low) * positions
    return np.rint(values) if parameter.integer else values


@cache
def _surrogate(source: DataSource) -> Surrogate:
    session, codes = load_surrogate("lcbench", source)
    return Surrogate(session, codes["OpenML_task_id"])


def load_surrogate(name: str, source: DataSource) -> tuple[Any, dict[str, dict[str, int]]]:
    """Return an onnxruntime session and the codes of the levels, from the folder `name` of the data.

    Raises ObjectiveError if the files are missing, and UserError without onnxruntime.
    """
    if find_spec("onnxruntime") is None:
        raise UserError(f"the problems {name}-… need onnxruntime, which is not installed; pip install onnxruntime")
    import onnxruntime

    model = source.file(f"{name}/model.onnx")
    encoding = source.file(f"{name}/encoding.json")
    if model is None or encoding is None:
        raise ObjectiveError(
            f"{name}/model.onnx and {name}/encoding.json must be in the data folder, "
            f"{source.folder or 'none is given'}: name one by --data"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return session, json.loads(encoding.read_text(encoding="utf-8"))
