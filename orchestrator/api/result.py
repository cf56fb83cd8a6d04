"""The results of a campaign as Python values: its best trial, all trials, and its run."""

import html
import os
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.bandit.options import excerpt
from orchestrator.campaign.events import Recommendation
from orchestrator.campaign.status import goals_text
from orchestrator.campaign.trial_result import TrialResult
from orchestrator.errors import RunError
from orchestrator.history.export import Columns, report_columns, trial_columns
from orchestrator.history.fold import History
from orchestrator.history.reading import read_history
from orchestrator.history.rows import TrialRow
from orchestrator.store.runs import Run, open_run
from orchestrator.wording import facts_html

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects

Parameters: TypeAlias = Mapping[str, Any]
Row: TypeAlias = dict[str, Any]


class Result:
    """A run by its log: `best`, `trials()`, `outcome`, `folder`. Made by `tune`, `Campaign.run`,
    `load`.

    It is a snapshot: `load(result.folder)` reads the log again.

    Args:
        run: the run.
        history: its log as tables.
    """

    def __init__(self, run: Run, history: History) -> None:
        self._run = run
        self._history = history

    @property
    def folder(self) -> Path:
        """The run's folder, for `bbkb status`, `resume`, `report` and `export`."""
        return self._run.folder

    @property
    def report(self) -> Path:
        """The report: one HTML file."""
        return self._run.report_file

    @property
    def outcome(self) -> str:
        """How the last session ended: finished, failed, interrupted; else unfinished."""
        return str(self._history.state)

    @property
    def best(self) -> TrialResult:
        """The best result: a trial's, or one of the existing data (`trial` None) where that is
        better. With constraints among the results that satisfy all of them, with several objectives
        that of the `front` which is best in the first one.

        With noisy values it may be due to noise: see `recommended`. Raises RunError when there is
        none.
        """
        best = self._history.best_known
        if best is None:
            raise RunError(f"{self.folder} has no best trial: {self._history.campaign.missing_best}")
        if best.trial is None:
            return TrialResult(trial=None, parameters=dict(best.parameters), value=best.value, status="existing")
        return self._trial(self._history.trials[best.trial])

    @property
    def recommended(self) -> Parameters:
        """The recommended parameters: those of `best`; when values are noisy, those of the largest
        estimate.

        Raises RunError when no trial has succeeded.
        """
        return dict(self.recommendation.parameters)

    @property
    def recommendation(self) -> Recommendation:
        """The recommended configuration with what is known of it: `parameters`; `value`, the mean
        of its values, and `evaluations`, their number; `estimate` of its value without noise, and
        `deviation`, the standard deviation of that. The last two are None without noise.

        Raises RunError when no trial has succeeded.
        """
        history = self._history
        recommended, best = history.campaign.refresh.recommended, history.best_known
        if recommended is not None:
            return recommended
        if best is None:
            raise RunError(f"{self.folder} has nothing to recommend: {history.campaign.missing_best}")
        values = [row.value for row in history.succeeded if row.arm == best.arm and row.value is not None]
        if best.trial is None:
            values.append(best.value)
        return Recommendation(
            arm=best.arm, parameters=best.parameters, value=statistics.mean(values), evaluations=len(values)
        )

    @property
    def front(self) -> list[TrialResult]:
        """The trials that no other one is better than in every objective, the best of the first
        objective first, among those that satisfy all constraints; with one objective the best trial
        alone."""
        return [self._trial(row) for row in self._history.front]

    @property
    def hypervolume(self) -> float | None:
        """The volume between the front and the reference point; None with one objective, or while
        nothing is feasible."""
        now = self._history.status().goals
        return None if now is None else now.hypervolume

    def rows(self, *, reports: bool = False) -> list[Row]:
        """Return each trial as a dictionary, in the order chosen; columns as in `bbkb export`.

        Args:
            reports: whether to return a row for each step that a trial reported instead; columns as
                in `bbkb export --reports`.
        """
        columns = self._columns(reports)
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def trials(self) -> list[TrialResult]:
        """List all trials in the order chosen; open ones have the status `running` or `queued`."""
        return [self._trial(row) for row in self._history.trials]

    def dataframe(self, *, reports: bool = False) -> "pandas.DataFrame":
        """Make a DataFrame of all trials, one row for each; columns as in `bbkb export`.

        Args:
            reports: whether to have a row for each step that a trial reported instead; columns as
                in `bbkb export --reports`.

        Raises:
            ImportError: when pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise ImportError(
                "dataframe needs pandas, which is not installed: pip install pandas, or use rows()"
            ) from error
        return pandas.DataFrame(self._columns(reports))

    def plot(self) -> "plotly.graph_objects.Figure":
        """Draw all values and the best one so far, as a Plotly figure.

        Raises:
            RunError: when no trial has succeeded.
        """
        from orchestrator.report.notebook import course_plot  # here, because it loads scipy

        return course_plot(self._history)

    def plot_importance(self) -> "plotly.graph_objects.Figure":
        """Draw the importance of each parameter, as a Plotly figure.

        Raises:
            RunError: when there are too few results for a model.
        """
        from orchestrator.report.notebook import importance_plot  # here, because it loads scipy

        return importance_plot(self._history)

    def plot_parallel(self) -> "plotly.graph_objects.Figure":
        """Draw parallel coordinates of the parameters, as a Plotly figure.

        Raises:
            RunError: when no trial has succeeded.
        """
        from orchestrator.report.notebook import parallel_plot  # here, because it loads scipy

        return parallel_plot(self._history)

    def __len__(self) -> int:
        """Return the number of trials that were chosen, open ones included."""
        return len(self._history.trials)

    def __repr__(self) -> str:
        return (
            f"<Result of {self._history.created.name}: {'; '.join(f'{name} {text}' for name, text in self._facts())}>"
        )

    def _repr_html_(self) -> str:
        """Return a small table with a link to the report, for notebooks."""
        table = facts_html(self._history.created.name, self._facts())
        if not self.report.is_file():
            return table
        link = html.escape(os.path.relpath(self.report), quote=True)  # a notebook opens files below its own folder
        return f"{table}<a href='{link}' target='_blank'>report</a>"

    def _columns(self, reports: bool) -> Columns:
        return report_columns(self._history) if reports else trial_columns(self._history)

    def _trial(self, row: TrialRow) -> TrialResult:
        goals = self._history.campaign.rules.goals
        return trial_result(row, None if goals.is_single else goals.objectives[0].metric)

    def _facts(self) -> list[tuple[str, str]]:
        history, now = self._history, self._history.status()
        facts = [
            ("outcome", self.outcome),
            ("trials", f"{now.done}: {now.outcomes}"),
        ]
        if (best := history.best_known) is not None:
            named = ", ".join(f"{name}={value!r}" for name, value in best.parameters.items())
            origin = f" ({best.origin})" if best.trial is None else ""
            facts += [("best value", f"{now.best_text}{origin}"), ("best parameters", named)]
        if now.goals is not None and (goals := goals_text(now.goals)):
            facts.append(("goals", goals))
        return [*facts, ("folder", str(self.folder))]


def load(folder: str | Path) -> Result:
    """Return the current result of a run; the campaign may be running elsewhere.

    Args:
        folder: the run's folder.

    Raises:
        RunError: when it is not a run's folder.
        StoreError: when its log cannot be read.
    """
    if not isinstance(folder, str | Path):
        raise ValueError(f"folder must be the path of a run's folder, got {excerpt(folder)}")
    return result_of(open_run(Path(folder)))


def result_of(run: Run) -> Result:
    """Return the result of an open run."""
    return Result(run, read_history(run))


def trial_result(row: TrialRow, metric: str | None = None) -> TrialResult:
    """Return the trial of a row of the history.

    Args:
        row: the row.
        metric: the name of the first objective, whose value is one of the metrics too; None with
            one objective.
    """
    named = {} if metric is None or row.value is None else {metric: row.value}
    return TrialResult(
        trial=row.trial,
        parameters=dict(row.parameters),
        value=row.value,
        status=row.status,
        metrics={**named, **row.metrics},
        seconds=row.seconds,
        error="" if row.status == "succeeded" else row.error,
        is_feasible=row.is_feasible,
    )
