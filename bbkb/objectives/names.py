"""The table of named objectives.

A listed class is a frozen dataclass of options. To add one, write a new file and one line here;
`package.module:Name` in a campaign file needs no edit at all. A name is resolved when it is used,
so a long table has no cost.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from bbkb.objectives.datasets import DataSource
from bbkb.objectives.keywords import did_you_mean
from bbkb.objectives.objective import Objective, ObjectiveError
from bbkb.objectives.parameters import Space
from bbkb.objectives.reference import import_reference

OBJECTIVES: Mapping[str, str] = MappingProxyType(
    {
        "abalone": "bbkb.objectives.problems.regression:Abalone",
        "branin": "bbkb.objectives.problems.synthetic:Branin",
        "cadata": "bbkb.objectives.problems.regression:Cadata",
        "fcnet": "bbkb.objectives.problems.benchmark_tables:FcNet",
        "hpobench_mlp": "bbkb.objectives.problems.benchmark_tables:HpobenchMlp",
        "mnist_cnn": "bbkb.objectives.problems.training.cnn:ConvolutionalNetwork",
        "mnist_logistic_regression": "bbkb.objectives.problems.training.softmax:SoftmaxRegression",
        "nas_bench_101": "bbkb.objectives.problems.benchmark_tables:NasBench101",
        "nas_bench_201": "bbkb.objectives.problems.benchmark_tables:NasBench201",
        "nas_cell": "bbkb.objectives.problems.training.nas_cell:CellNetwork",
        "sine": "bbkb.objectives.problems.synthetic:Sine",
        "sklearn": "bbkb.objectives.estimator:SklearnEstimator",
    }
)


class ObjectiveOptions(Protocol):
    """The interface of a listed class, whose fields are the options in a campaign file."""

    def load(self, source: DataSource) -> Objective:
        """Return the objective with its data.

        Args:
            source: the folder of data sets, and whether they may be downloaded.

        Raises:
            ObjectiveError: if the data are not available.
        """

    def default_space(self) -> Space | None:
        """Return the space for a file without one; None if the objective has candidates."""


@runtime_checkable
class ReadsFiles(Protocol):
    """Options of an objective that contain paths relative to the campaign file's folder."""

    def with_absolute_paths(self, folder: Path) -> "ObjectiveOptions":
        """Return the same options with absolute paths.

        Args:
            folder: the folder of the campaign file, to which relative paths refer.
        """


@runtime_checkable
class KnowsParameters(Protocol):
    """Options of an objective that knows the parameters that a space may have."""

    def space_problems(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the mistakes in parameters, by name: a rule such as `is not a parameter of …`.

        Args:
            names: the parameters of a space.

        Raises:
            ObjectiveError: if the parameters cannot be determined.
        """


def find_objective(name: str) -> type[ObjectiveOptions]:
    """Return the class of an objective's options.

    Args:
        name: a name in the table, or `package.module:Name`.

    Raises:
        ObjectiveError: if there is no such class, or it is not a class of options.
    """
    if ":" not in name and name not in OBJECTIVES:
        raise ObjectiveError(
            f"objective.name must be one of {', '.join(OBJECTIVES)} or package.module:Name, "
            f"got {name!r}{did_you_mean(name, OBJECTIVES)}"
        )
    cls = import_reference(OBJECTIVES.get(name, name))
    missing = [method for method in ("load", "default_space") if not callable(getattr(cls, method, None))]
    if not isinstance(cls, type) or missing:
        lacks = " and ".join(f"{method}()" for method in missing) or "being a class"
        raise ObjectiveError(
            f"objective.name must name a class with load() and default_space(), {name!r} lacks {lacks}"
        )
    return cls
