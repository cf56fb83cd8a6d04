"""The results of a campaign as Python values: its best trial, all trials, and its run."""

import functools
import html
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bbkb.objectives.errors import checks_arguments
from bbkb.orchestrator.campaign.events import ExistingTaken
from bbkb.orchestrator.campaign.results import TrialResult, Trials, trial_result
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.history.facts import Fact, facts
from bbkb.orchestrator.history.fold import History, TrialRow, read_history
from bbkb.orchestrator.history.tables import report_columns, trial_columns
from bbkb.orchestrator.settings.arguments import check_kind
from bbkb.orchestrator.store.runs import Run, open_run
from bbkb.orchestrator.wording import facts_html

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects

Row: TypeAlias = dict[str, Any]


class Result:
    """The result of a campaign: `best`, `trials`, `outcome`, `folder`. Returned by `tune`,
    `Campaign.run` and `load`.

    It is a snapshot: `load(result.folder)` reads the event log again.

    Args:
        run: the run.
        history: its event log as tables.
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
        """The outcome of the last session: finished, failed or interrupted; unfinished if there is
        none."""
        return str(self._history.state)

    @property
    def best(self) -> TrialResult:
        """The recommended configuration and its value.

        If the values are noisy, the best single value may be due to noise. The model then
        recommends the configuration with the best `estimate` of the noise-free value, and `value`
        is the mean of its `evaluations` values. Otherwise, this is `best_observed`.

        Raises RunError if no evaluation has succeeded, or no result satisfies all constraints.
        """
        observed = self.best_observed
        recommended = self._history.campaign.refresh.recommended
        if recommended is None:
            return observed
        evaluated = [row for row in self._history.succeeded if row.arm == recommended.arm]
        trial = (
            self._trial(max(evaluated, key=self._history.worth))
            if evaluated
            else trial_result(self._history.settings, None, recommended.parameters, "existing", recommended.value)
        )
        return replace(
            trial,
            value=recommended.value,
            estimate=recommended.estimate,
            deviation=recommended.deviation,
            evaluations=recommended.evaluations,
        )

    @property
    def best_observed(self) -> TrialResult:
        """The best single value, of a trial or of known results (`trial` is then None).

        With constraints, it is the best value among the results that satisfy all of them. With
        several objectives, it is the member of the `front` with the best first objective.

        Raises RunError if no evaluation has succeeded, or no result satisfies all constraints.
        """
        best = self._history.best_known
        if best is None:
            raise RunError(f"{self.folder} has no best trial: {self._history.campaign.missing_best}")
        if best.trial is None:
            return trial_result(self._history.settings, None, best.parameters, "existing", best.value)
        return self._trial(self._history.trials[best.trial])

    @property
    def known(self) -> ExistingTaken | None:
        """The results of `known_results`: the `values` that were learned, and those `left_out`, each
        with its reason. None if there are none."""
        return self._history.existing

    @property
    def front(self) -> Trials:
        """The Pareto front of several objectives: the feasible trials that no other trial
        dominates, the best first objective first. With one objective, only the best trial."""
        return tuple(map(self._trial, self._history.front))

    @property
    def hypervolume(self) -> float | None:
        """The volume between the front and the reference point; None with one objective, or if no
        result is feasible yet."""
        goals = self._history.status().goals
        return None if goals is None else goals.hypervolume

    @functools.cached_property
    def trials(self) -> Trials:
        """All trials, in the order in which they were chosen. Open trials have the status `running`
        or `queued`."""
        return tuple(map(self._trial, self._history.listed))

    def _trial(self, row: TrialRow) -> TrialResult:
        return trial_result(
            self._history.settings,
            row.trial,
            row.parameters,
            row.status,
            row.value,
            row.metrics,
            row.seconds,
            row.error,
        )

    def rows(self, *, reports: bool = False) -> list[Row]:
        """Return the trials as dictionaries, in the order in which they were chosen. The keys are
        the columns of `bbkb export`.

        Args:
            reports: whether to return one row for each step that a trial reported instead, with the
                columns of `bbkb export --reports`.
        """
        columns = (report_columns if reports else trial_columns)(self._history)
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def dataframe(self, *, reports: bool = False) -> "pandas.DataFrame":
        """Return the `rows` as a DataFrame. Raises ImportError if pandas is not installed.

        Args:
            reports: whether to return one row for each reported step instead, as `rows` does.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise ImportError(
                "dataframe needs pandas, which is not installed: pip install pandas, or use rows()"
            ) from error
        return pandas.DataFrame((report_columns if reports else trial_columns)(self._history))

    def plot(self) -> "plotly.graph_objects.Figure":
        """Draw all values and the best value so far, as a Plotly figure. Raises
        RunError if no trial has succeeded."""
        from bbkb.orchestrator.report.pictures import course_plot  # loads scipy

        return course_plot(self._history)

    def plot_importance(self) -> "plotly.graph_objects.Figure":
        """Draw the importance of each parameter, as a Plotly figure. Raises
        RunError if there are too few results for a model."""
        from bbkb.orchestrator.report.pictures import importance_plot  # loads scipy

        return importance_plot(self._history)

    def plot_parallel(self) -> "plotly.graph_objects.Figure":
        """Draw parallel coordinates of the parameters, as a Plotly figure. Raises
        RunError if no trial has succeeded."""
        from bbkb.orchestrator.report.pictures import parallel_plot  # loads scipy

        return parallel_plot(self._history)

    def __len__(self) -> int:
        """Return the number of chosen trials, including open ones."""
        return len(self._history.listed)

    def __repr__(self) -> str:
        lines = (f"  {fact.label}: {fact.text}" for fact in self._facts())
        return "\n".join([f"Result of {self._history.settings.name}", *lines])

    def _facts(self) -> list[Fact]:
        """Return the facts without the details, and the folder."""
        listed = facts(self._history.status())
        return [*(fact for fact in listed if fact.kind != "detail"), Fact("folder", str(self.folder))]

    def _repr_html_(self) -> str:
        """Return a small table with a link to the report, for notebooks."""
        table = facts_html(self._history.settings.name, [(fact.label, fact.text) for fact in self._facts()])
        if not self.report.is_file():
            return table
        # a notebook can only open files below its folder
        link = html.escape(os.path.relpath(self.report), quote=True)
        return f"{table}<a href='{link}' target='_blank'>report</a>"


@checks_arguments
def load(folder: str | Path) -> Result:
    """Return the current result of a run, which may be running elsewhere.

    Args:
        folder: the run's folder.

    Raises:
        RunError: if `folder` is not the folder of a run.
        StoreError: if the run's log cannot be read.
    """
    check_kind(folder, str | Path, "folder must be the path of a run's folder")
    return result_of(open_run(Path(folder)))


def result_of(run: Run) -> Result:
    """Return the result of an open run."""
    return Result(run, read_history(run))
