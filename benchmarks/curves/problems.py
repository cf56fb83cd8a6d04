"""A problem: a space, and for each configuration its values at the steps at which a training reports.
Recorded curves (TaskSet, cells of NAS-Bench-101), and the surrogate of LCBench.

Values are maximized. Regret is in units of (best − median) of the values at the last step, so that
problems can be averaged: 0 is the regret of the best configuration, and 1 that of the median.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from bbkb.objectives.objective import Candidates, ObjectiveError
from bbkb.objectives.parameters import Choice, Ordered, Range, Scalar, Space
from bbkb.objectives.problems.benchmark_tables import read_archive
from bbkb.objectives.reference import DataSource
from bbkb.objectives.sampling import make_candidates
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.errors import UserError
from benchmarks.papers.nasbench101_cells import RECORDED, VERTICES
from benchmarks.tables import Floats as Floats

Configuration = Mapping[str, Scalar]

WORST = 2.0  # the largest regret, because diverged trainings have unbounded values


@dataclass(frozen=True, eq=False, kw_only=True)
class CurveProblem:
    """Learning curves of one training task."""

    name: str  # the problem's name on the command line
    space: Space  # the parameters
    arms: Candidates | None  # the configurations that have a curve; None: all of the space have one
    steps: tuple[int, ...]  # the steps at which a training reports, ascending
    costs: tuple[int, ...]  # the cost of each step after the previous one, in the unit of the budget
    # the values of a configuration at `steps`, fewer if its training ends early; larger is better
    curve: Callable[[Configuration], Floats]
    best: float  # the largest last value
    median: float  # the median of the last values

    def regret(self, value: float) -> float:
        """The regret of the last value of a training, in units of (best − median), at most `WORST`."""
        return min((self.best - value) / (self.best - self.median), WORST)

    def cost_of(self, reports: int) -> int:
        """The cost of a training that ends at its report `reports`, with no earlier value read."""
        return min(self.last_step, sum(self.costs[:reports]))

    @property
    def last_step(self) -> int:
        """The step at which a training ends, and the cost of one that reports only this step."""
        return self.steps[-1]


TASKSET = "taskset/taskset.npz"
TASKSET_OTHER = "taskset/other.npz"
TASKSET_TASKS = 6
TASKSET_OTHER_TASKS = 3
CELL_EPOCHS = (4, 12, 36, 108)
_HYPERPARAMETERS = (*("learning_rate", "beta1", "beta2", "epsilon", "l1", "l2", "linear_decay", "exponential_decay"),)
_LINEAR = {"beta1", "beta2"}
_UPPER = np.triu_indices(VERTICES, 1)
_OPERATIONS = ("conv3x3", "conv1x1", "maxpool3x3")  # coded as 0, 1, 2


@dataclass(frozen=True, eq=False)
class Recorded:
    """Recorded configurations: `arms`, and `values` (A, R) that are maximized and are NaN after the
    end of a training that ended early. A configuration that was not recorded has the curve of the
    nearest recorded one."""

    space: Space
    arms: Candidates
    values: Floats

    @cached_property
    def _search_space(self) -> SearchSpace:
        return SearchSpace(self.space)

    @cached_property
    def _row_of(self) -> dict[bytes, int]:
        return {row.tobytes(): number for number, row in enumerate(self.arms.features)}

    def row(self, configuration: Configuration) -> int:
        """The row of the nearest recorded configuration, by the distance of the features."""
        at = self._search_space.candidate(configuration).features[0]
        number = self._row_of.get(at.tobytes())
        if number is None:
            number = int(np.sum((self.arms.features - at) ** 2, axis=1).argmin())
        return number

    def curve(self, configuration: Configuration) -> Floats:
        values = self.values[self.row(configuration)]
        curve: Floats = values[~np.isnan(values)]
        return curve

    def problem(self, name: str, steps: tuple[int, ...], costs: tuple[int, ...]) -> CurveProblem:
        """The problem with these curves; a training that reports only its end costs its last step."""
        last = np.count_nonzero(~np.isnan(self.values), axis=1) - 1
        final = self.values[np.arange(len(self.values)), last]
        return CurveProblem(
            name=name,
            space=self.space,
            arms=self.arms,
            steps=steps,
            costs=costs,
            curve=self.curve,
            best=float(final.max()),
            median=float(np.median(final)),
        )


def load_taskset(number: int, source: DataSource) -> CurveProblem:
    """The task `number` of TaskSet, counted from 0: 1000 optimizer settings of a text model, 51
    validation losses. The tasks from `TASKSET_TASKS` on are in a separate file.

    A diverged training has the largest loss of the task on record from then on. Metz,
    Maheswaranathan, Sun, Freeman, Poole, Sohl-Dickstein 2020.
    """
    is_other = number >= TASKSET_TASKS
    arrays = read_archive(source, TASKSET_OTHER if is_other else TASKSET, dict)
    names = sorted(key for key in arrays if key.startswith("valid_loss_"))
    name = names[number - TASKSET_TASKS * is_other]
    losses = arrays[name].astype(np.float64)
    losses[np.isinf(losses)] = np.nan
    worst = np.nanmax(losses)
    diverged = np.maximum.accumulate(np.isnan(losses), axis=1)
    values = -np.where(diverged, worst, losses)
    columns = {one: arrays["hp"][:, place].astype(np.float64) for place, one in enumerate(_HYPERPARAMETERS)}
    space: Space = {
        one: Range(float(column.min()), float(column.max()), log=one not in _LINEAR) for one, column in columns.items()
    }
    count = values.shape[1]
    arms = SearchSpace(space).candidates_of(dict(columns))
    return Recorded(space, arms, values).problem(f"taskset-{number}", tuple(range(1, count + 1)), (1,) * count)


def load_cells(source: DataSource) -> CurveProblem:
    """The curves of the recorded cells.

    The values are those of four separate trainings, each with its own schedule, so a step costs all
    of its epochs: a cell whose values after 4, 12 and 36 epochs are read costs 160 epochs, any
    other cell costs 108.
    """
    table, _ = load_cell_table(source)
    return table.problem("nb101", CELL_EPOCHS, CELL_EPOCHS)


def load_cell_table(source: DataSource) -> tuple[Recorded, Floats]:
    """The 4432 recorded cells of NAS-Bench-101 with six vertices: validation accuracy after 4, 12,
    36, 108 epochs; and the seconds (A,) of the longest training. Ying, Klein, Christiansen, Real,
    Murphy, Hutter 2019."""
    arrays = read_archive(source, RECORDED, dict)
    rows = np.flatnonzero(arrays["n_vertices"] == VERTICES)
    edges = arrays["adjacency"][rows][:, _UPPER[0], _UPPER[1]]
    operations = arrays["ops"][rows, 1 : VERTICES - 1]
    columns: dict[str, Any] = {
        f"edge_{i}_{j}": edges[:, place] for place, (i, j) in enumerate(zip(*_UPPER, strict=True))
    }
    columns |= {f"operation_{1 + at}": np.array(_OPERATIONS)[operations[:, at]] for at in range(VERTICES - 2)}
    space: Space = {name: Choice(_OPERATIONS) if name.startswith("operation") else Ordered((0, 1)) for name in columns}
    values = np.stack([arrays[f"val_acc_{epochs}"][rows] for epochs in CELL_EPOCHS], axis=1).astype(np.float64)
    return Recorded(space, SearchSpace(space).candidates_of(columns), values), arrays["train_time_108"][rows]


LCBENCH_EPOCHS = 52
LCBENCH_TASKS = (
    *("3945", "7593", "34539", "126025", "126026", "126029", "146212", "167104", "167149", "167152"),
    *("167161", "167168", "167181", "167184", "167185", "167190", "167200"),
)
LCBENCH_VERDICT_TASKS = (
    *("167201", "168329", "168330", "168331", "168335", "168868", "168908", "168910", "189354"),
    *("189862", "189865", "189866", "189873", "189905", "189906", "189908", "189909"),
)
LCBENCH_SPACE: Mapping[str, Range] = {  # in the order of the surrogate's inputs, after the epoch
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


def load_lcbench(task: str, source: DataSource) -> CurveProblem:
    """LCBench through the surrogate of YAHPO Gym: 7 parameters of a network, validation accuracy after
    1 … 52 epochs of training on an OpenML task. Raises the errors of `load_surrogate`.

    Zimmer, Lindauer, Hutter 2021 (the data); Pfisterer, Schneider, Moosbauer, Binder, Bischl 2022
    (the surrogates: neural networks in ONNX format, with a JSON file that encodes their levels).
    """
    surrogate = _surrogate(source)
    best, median = surrogate.optimum(task)
    return CurveProblem(
        name=f"lcbench-{task}",
        space=dict(LCBENCH_SPACE),
        arms=None,
        steps=tuple(range(1, LCBENCH_EPOCHS + 1)),
        costs=(1,) * LCBENCH_EPOCHS,
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
        columns = np.array([configuration[name] for name in LCBENCH_SPACE], np.float64)
        return self._run(task, np.arange(1, LCBENCH_EPOCHS + 1), columns)

    @cache  # noqa: B019 -- surrogates live as long as the process
    def optimum(self, task: str) -> tuple[float, float]:
        """The best accuracy of a random search with local steps; the median of a sample."""
        candidates = make_candidates(dict(LCBENCH_SPACE), _SAMPLE, "sobol", 0)
        columns = np.stack([candidates.columns[name].astype(np.float64) for name in LCBENCH_SPACE], axis=1)
        final = self._run(task, np.full(len(columns), LCBENCH_EPOCHS), columns)
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
        columns = [_values(parameter, positions[:, place]) for place, parameter in enumerate(LCBENCH_SPACE.values())]
        return self._run(task, np.full(len(positions), LCBENCH_EPOCHS), np.stack(columns, axis=1))

    def _run(self, task: str, epochs: np.ndarray[Any, Any], columns: Floats) -> Floats:
        """The accuracies (n,) after `epochs` (n,) with parameters `columns`, (n, 7) or (7,)."""
        columns = np.broadcast_to(columns, (len(epochs), len(LCBENCH_SPACE)))
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
