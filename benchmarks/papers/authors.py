"""The code of BBKB's authors (repository luigicarratino/batch-bkb) on the problem and seeds of this
project's runs.

Their code is not part of this project; it is imported from a folder that the user gives. For each
seed it starts with the first pulls of this project's run, up to the second different arm, because
it fails with a dictionary of one arm. Its t-th pull is evaluated with the seed of the t-th trial of
that run, so both have the same noise.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.campaigns import Comparison, Method, Runs, campaign
from benchmarks.papers.experiment import Request
from benchmarks.papers.findings import Cell, Floats, Interval, Table
from benchmarks.papers.measured import Measured
from benchmarks.regret import cumulative_regret
from orchestrator.campaign.commands import QueuedAttempt
from orchestrator.errors import UserError
from orchestrator.session.assemble import Parts, build

_MODULES = ("utils", "bkb_lib")


@dataclass(frozen=True)
class AuthorsRun:
    """One run of the authors' Global-BBKB: R_T, the batches after the common first pulls, the last
    dictionary."""

    regret: float
    batches: int
    dictionary: int
    seconds: float


def compare(comparison: Comparison, runs: Runs, request: Request) -> tuple[Table, list[dict[str, object]]]:
    """This project's Global-BBKB and the authors': the table, and their runs. Raises UserError
    without their code.

    A finished run of the authors' code is stored as JSON and not repeated.
    """
    if request.authors is None or "bbkb" not in runs:
        raise UserError("--authors needs the folder of their code and bbkb among --methods, which they released")
    bbkb = next(method for method in comparison.methods if method.name == "bbkb")
    their_runs = [
        _run_or_read(comparison, bbkb, seed, _beginning(our_runs), request, request.authors)
        for seed, our_runs in enumerate(runs["bbkb"])
    ]
    uniform = np.array([run.regret[-1] for run in runs["uniform"]])
    our_runs = [_as_authors_run(run) for run in runs["bbkb"]]
    rows = [_row("ours, Global-BBKB", our_runs, uniform), _row("authors' Batch_BKB", their_runs, uniform)]
    columns = ("code", "regret ratio", "batches", "dictionary", "seconds")
    title = f"{comparison.name}, T = {request.evaluations}: ours beside the authors' code"
    return Table(f"{comparison.name}-authors", title, columns, rows), [asdict(run) for run in their_runs]


def _beginning(run: Measured) -> tuple[int, ...]:
    """The first arms of a run, up to the second different arm."""
    others = np.flatnonzero(run.arms != run.arms[0])
    return tuple(run.arms[: others[0] + 1].tolist()) if len(others) else tuple(run.arms.tolist())


def _as_authors_run(run: Measured) -> AuthorsRun:
    batches = int(run.batches[-1] - run.batches[len(_beginning(run)) - 1])
    return AuthorsRun(float(run.regret[-1]), batches, int(run.dictionary_sizes[-1]), float(run.clock[-1]))


def _row(name: str, runs: list[AuthorsRun], uniform: Any) -> tuple[Cell, ...]:
    return (
        name,
        Interval.of(np.array([run.regret for run in runs]) / uniform),
        Interval.of([run.batches for run in runs]),
        Interval.of([run.dictionary for run in runs]),
        Interval.of([run.seconds for run in runs]),
    )


def _run_or_read(
    comparison: Comparison, method: Method, seed: int, beginning: tuple[int, ...], request: Request, folder: Path
) -> AuthorsRun:
    settings = campaign(comparison, method, seed, request)
    file = Path(settings.runs) / "authors" / f"{settings.name}.json"
    key = {"strategy": settings.resolved()["strategy"], "beginning": list(beginning)}
    if file.is_file():
        saved = json.loads(file.read_text(encoding="utf-8"))
        if saved["key"] == key:
            return AuthorsRun(**saved["run"])
    done = run_authors(folder, build(settings), settings.strategy, request.evaluations, beginning)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"key": key, "run": asdict(done)}) + "\n", encoding="utf-8")
    return done


def run_authors(folder: Path, parts: Parts, strategy: Any, horizon: int, beginning: Sequence[int]) -> AuthorsRun:
    """One run of `Batch_BKB`, the authors' code.

    Args:
        folder: a checkout of their repository.
        parts: the objective and the candidates.
        strategy: a BBKB strategy, whose hyper-parameters are used.
        horizon: number of pulls T.
        beginning: the arms of the first pulls.

    """
    arms, evaluate, values = parts.problem.candidates.features, _evaluation(parts), np.empty(horizon)
    state = np.random.RandomState(parts.problem.seed)
    began = time.perf_counter()
    algorithm = _algorithm(folder, strategy)

    def rewards(pulled_arms: Sequence[int], pulled: int) -> Floats:
        measured, values[pulled : pulled + len(pulled_arms)] = evaluate(pulled_arms, pulled)
        return measured

    algorithm.initialize(arms, list(beginning), rewards(beginning, 0))
    pulled, batches = len(beginning), 0
    while pulled < horizon:
        pulled_arms = algorithm.predict()[0][: horizon - pulled]
        algorithm.update(pulled_arms, rewards(pulled_arms, pulled), state)
        pulled, batches = pulled + len(pulled_arms), batches + 1
    seconds = time.perf_counter() - began
    optimum = parts.optimum(is_maximized=True)
    if optimum is None:
        raise UserError("the comparison with the authors' code needs an objective with a known optimum, for the regret")
    return AuthorsRun(float(cumulative_regret(optimum, values)[-1]), batches, int(algorithm.dict_size_unique), seconds)


def _algorithm(folder: Path, strategy: Any) -> Any:
    from sklearn.gaussian_process.kernels import RBF, PairwiseKernel

    bandwidth = strategy.kernel.lengthscale
    with _importable(folder) as imported:
        mixed = imported["utils"].FastMixinKernel(RBF(bandwidth), PairwiseKernel(0.5 / bandwidth**2, metric="rbf"))
        return imported["bkb_lib"].Batch_BKB(
            lam=strategy.regularization,
            dot=mixed,
            fnorm=strategy.norm_bound,
            noise_variance=strategy.noise_variance,
            delta=strategy.delta,
            qbar=strategy.oversampling,
            ratio_threshold=strategy.ratio_threshold,
        )


@contextmanager
def _importable(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Import their two modules, and remove them from `sys.modules` on exit, because `utils` is a
    common name."""
    if not (folder / "bkb_lib.py").is_file():
        raise UserError(f"--authors must be a checkout of luigicarratino/batch-bkb, {folder} has no bkb_lib.py")
    before = {name: sys.modules.pop(name) for name in _MODULES if name in sys.modules}
    sys.path.insert(0, str(folder))
    try:
        yield {name: importlib.import_module(name) for name in _MODULES}
    finally:
        sys.path.remove(str(folder))
        for name in _MODULES:
            sys.modules.pop(name, None)
        sys.modules.update(before)


def _evaluation(parts: Parts) -> Callable[[Sequence[int], int], tuple[Floats, Floats]]:
    """(arms (n,), number of the first pull) → their rewards with noise and without, (n,) each."""

    def evaluate(arms: Sequence[int], first: int) -> tuple[Floats, Floats]:
        rewards = np.empty((2, len(arms)))
        for place, arm in enumerate(arms):
            message = parts.problem.attempt(QueuedAttempt(first + place, int(arm), attempt=1), parts.problem.candidates)
            evaluation = parts.objective.evaluate(dict(message.parameters), message.seed, _ignore_report)
            rewards[:, place] = evaluation.value, evaluation.metrics["noise_free"]
        return rewards[0], rewards[1]

    return evaluate


def _ignore_report(value: float, step: int | None = None, **metrics: float) -> None: ...
