"""The experiments by their names on the command line. A new one needs one module, and one line
here."""

from collections.abc import Mapping
from types import MappingProxyType

from benchmarks.papers.experiment import Experiment
from objectives.reference import did_you_mean, import_reference
from orchestrator.errors import UserError

# module:attribute, imported when it is used: an experiment may need packages that others do not
# need
EXPERIMENTS: Mapping[str, str] = MappingProxyType(
    {
        "abalone": "benchmarks.papers.regression:ABALONE",
        "cadata": "benchmarks.papers.regression:CADATA",
        "regression": "benchmarks.papers.regression:REGRESSION",
        "bandwidth": "benchmarks.papers.bandwidth:BANDWIDTH",
        "nasbench101": "benchmarks.papers.nasbench101:NASBENCH101",
        "threds_branin": "benchmarks.papers.threds_synthetic:THREDS_BRANIN",
        "threds_rosenbrock": "benchmarks.papers.threds_synthetic:THREDS_ROSENBROCK",
        "threds_cnn": "benchmarks.papers.threds_cnn:CNN",
        "threds_cnn_short": "benchmarks.papers.threds_cnn:CNN_SHORT",
        "threds_cnn_twin": "benchmarks.papers.threds_cnn:CNN_TWIN",
        "variance_starvation": "benchmarks.papers.variance_starvation:VARIANCE_STARVATION",
        "compressed_example": "benchmarks.papers.compressed:EXAMPLE",
        "compressed_rosenbrock": "benchmarks.papers.compressed:ROSENBROCK",
        "compressed_mnist": "benchmarks.papers.compressed:MNIST",
    }
)


def find_experiment(name: str) -> Experiment:
    """The experiment `name`. Raises UserError when there is none, ObjectiveError when its module
    cannot be imported."""
    if name not in EXPERIMENTS:
        raise UserError(
            f"the experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}{did_you_mean(name, EXPERIMENTS)}"
        )
    experiment = import_reference(EXPERIMENTS[name])
    if not isinstance(experiment, Experiment):
        raise TypeError(f"{EXPERIMENTS[name]} must be an Experiment, got {type(experiment).__name__}")
    return experiment
