"""The section `known_results`: results that exist before the campaign, from one or more sources.

    known_results:
      - {table: results.csv, reward: accuracy}
      - {run: runs/mnist-1}
      - {optuna: "sqlite:///study.db", study: mnist}
      - {ray_tune: ~/ray_results/mnist, metric: accuracy}
      - {results: [{parameters: {lr: 0.1}, value: 0.93}]}
      - {best_of: [runs/mnist-1, runs/fashion-1]}

Optuna studies and folders of Ray Tune are read together with the file. The resolved file has their
results in the form `results`, so a resume does not need the source. Tables and runs are read when
the campaign is created (`session.known_results`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationInfo

from bbkb.objectives.conditions import Scalar
from bbkb.orchestrator.bandit.start.warm_start import DataStart, warm_start_of
from bbkb.orchestrator.credentials import redact
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.settings.imported import GivenResults, read_study, read_tune
from bbkb.orchestrator.settings.mistakes import CUSTOM, Refusal, failure
from bbkb.orchestrator.settings.sections import AbsolutePath, Section, StoreUrl, absolute, folder_of

TABLES = (".csv", ".csv.gz", ".parquet")
Text = Annotated[str, Field(min_length=1)]


def _run(run: str, info: ValidationInfo) -> str:
    """Return the name of a run in a store, or the absolute path of its folder."""
    if info.data.get("store") is not None:
        return run
    if "://" in run:
        raise ValueError("run must be a folder, or a name beside store: URL")
    return str(absolute(run, info))


class ResultTable(Section):
    """A CSV or Parquet table. Its columns besides `reward` are either `arm`, the index of a
    candidate, or one column for each parameter."""

    table: Annotated[Text, AfterValidator(absolute)]
    """A CSV or Parquet table of results."""
    reward: Text = "reward"
    """The column of the table with the values, on the scale of the objective."""


class KnownRun(Section):
    """The evaluations of another run."""

    store: StoreUrl | None = None
    """The database that contains the run; null: the run's folder contains it."""
    run: Annotated[Text, AfterValidator(_run)]
    """A run's folder; with store, the run's name in the database."""


class OptunaStudy(Section):
    """The completed trials of a study."""

    optuna: Text
    """Storage of a study: a database URL, or a journal file."""
    study: Text | None = None
    """The name of the study; may be left out if the storage contains only one."""


class TuneExperiment(Section):
    """The last report of each trial of an experiment."""

    ray_tune: Text
    """Folder of an experiment of Ray Tune."""
    metric: Text | None = None
    """The metric that its trials reported."""


class BestOf(Section):
    """Runs with the same space, whose best configurations are evaluated first. Their values are not
    learned, so their objective may differ."""

    best_of: tuple[AbsolutePath, ...] = Field(min_length=1, strict=False)
    """Folders of runs whose best configurations are evaluated first."""
    first: tuple[Mapping[str, Scalar], ...] | None = Field(default=None, strict=False)
    """These configurations, in the campaign.yaml of a run."""


_KINDS = {
    "table": ResultTable,
    "run": KnownRun,
    "optuna": OptunaStudy,
    "ray_tune": TuneExperiment,
    "results": GivenResults,
    "best_of": BestOf,
}
_NO_KIND = Refusal((), f"must be a mapping with one of the keys {', '.join(_KINDS)}")


def _kind(source: Any) -> str | None:
    """Return the tag of a source: its first key that selects a kind."""
    keys = source if isinstance(source, Mapping) else type(source).model_fields if isinstance(source, Section) else ()
    return next((f"a {key}" for key in _KINDS if key in keys), None)


def _imported(source: Any, info: ValidationInfo) -> Any:
    """Return a source in which the results of another tuner have been read."""
    objective = info.data.get("objective")
    if objective is None:
        return source
    try:
        if isinstance(source, OptunaStudy):
            return read_study(source.optuna, source.study, folder_of(info), objective.direction)
        if isinstance(source, TuneExperiment):
            return read_tune(folder_of(info) / Path(source.ray_tune).expanduser(), source.metric)
    except UserError as error:
        raise failure([Refusal((str(_kind(source))[2:],), f": {error}")]) from error
    return source


Source = ResultTable | KnownRun | OptunaStudy | TuneExperiment | GivenResults | BestOf
Known = tuple[
    Annotated[
        Annotated[ResultTable, Tag("a table")]
        | Annotated[KnownRun, Tag("a run")]
        | Annotated[OptunaStudy, Tag("a optuna")]
        | Annotated[TuneExperiment, Tag("a ray_tune")]
        | Annotated[GivenResults, Tag("a results")]
        | Annotated[BestOf, Tag("a best_of")],
        Discriminator(
            _kind,
            custom_error_type=CUSTOM,
            custom_error_message="{problem}",
            custom_error_context={"problem": _NO_KIND},
        ),
        AfterValidator(_imported),
    ],
    ...,
]
S = TypeVar("S", bound=Source)


def of_kind(known: Known, kind: type[S]) -> tuple[S, ...]:
    """Return the sources of one kind."""
    return tuple(source for source in known if isinstance(source, kind))


def has_values(known: Known) -> bool:
    """Return whether the strategy learns values from any of the sources."""
    return any(not isinstance(source, BestOf) for source in known)


def known_problems(known_results: Known, space: Mapping[str, object], strategy: object) -> Iterator[Refusal]:
    """Yield conflicts among the sources and with other sections."""
    runs = [number for number, source in enumerate(known_results) if isinstance(source, BestOf)]
    for number in runs[1:]:
        yield Refusal(("known_results", number, "best_of"), "must not be given twice: list all runs in one")
    for number in runs if not space else ():
        rule = "needs a space: the configurations of other runs are not rows of a table"
        yield Refusal(("known_results", number, "best_of"), rule)
    if isinstance(warm_start_of(strategy), DataStart) and not has_values(known_results):
        yield Refusal(("strategy", "warm_start"), "data needs known_results, such as [{table: results.csv}]")


def origin_of(source: Source) -> str | None:
    """Return a text that identifies a table or a run; None for other sources."""
    match source:
        case ResultTable():
            return f"{source.reward} of {source.table}"
        case KnownRun():
            return source.run if source.store is None else f"{source.run} in {redact(source.store)}"
        case _:
            return None
