"""Exports finished trials to an Optuna study, for Optuna's dashboard, plots and samplers.

The user attribute `bbkb.trial` of each trial contains its index, so a repeated export adds only new
trials.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bbkb.objectives.parameters import Parameter, Range
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.fold import ENDED, History, TrialRow
from bbkb.orchestrator.settings.imported import open_storage

_TRIAL = "bbkb.trial"


def to_optuna(history: History, run: str, url: str, folder: Path) -> int:
    """Add the new trials of the campaign `run` to the study of that name; return their number.

    The study is created in the storage `url` if it does not exist. Relative paths in `url` refer to
    `folder`. Trials that were stopped early become pruned trials with their intermediate values.

    Raises UserError if Optuna is not installed, the storage cannot be used, or its study has
    different directions.
    """
    storage = open_storage(url, folder, must_exist=False)
    import optuna

    directions = ["maximize" if objective.is_maximized else "minimize" for objective in history.goals.objectives]
    study = optuna.create_study(study_name=run, storage=storage, directions=directions, load_if_exists=True)
    there = [direction.name.lower() for direction in study.directions]
    if there != directions:
        raise UserError(
            f"the study {run!r} must have direction {', '.join(directions)}, "
            f"got {', '.join(there)}: it belongs to another search; give another storage"
        )
    exported = {trial.user_attrs.get(_TRIAL) for trial in study.get_trials(deepcopy=False)}
    distributions = _distributions(history)
    ended = [row for row in history.trials if row.finished is not None and row.status in ENDED]
    new = [row for row in ended if row.trial not in exported]
    metrics = [objective.metric for objective in history.goals.objectives]
    study.add_trials([_frozen(row, distributions, metrics) for row in new])
    return len(new)


def _frozen(row: TrialRow, distributions: Mapping[str, object], metrics: Sequence[str]) -> object:
    """Return an Optuna trial with the value of each objective, in the order of `metrics`."""
    from optuna.trial import FrozenTrial, TrialState

    states = {"succeeded": TrialState.COMPLETE, "failed": TrialState.FAIL, "stopped": TrialState.PRUNED}
    parameters = {name: value for name, value in row.parameters.items() if name in distributions and value is not None}
    return FrozenTrial(
        number=-1,  # assigned by the storage
        trial_id=-1,
        state=states[row.status],
        value=None,
        values=[row.value, *(row.metrics[name] for name in metrics[1:])] if row.status == "succeeded" else None,
        datetime_start=_moment(row.started),
        datetime_complete=_moment(row.finished),
        params=parameters,
        distributions={name: distributions[name] for name in parameters},
        user_attrs={_TRIAL: row.trial, **{f"metric.{name}": value for name, value in row.metrics.items()}},
        system_attrs={},
        intermediate_values=dict(row.training.reports),
    )


def _moment(seconds: float | None) -> datetime | None:
    """Return local time without a time zone, as Optuna stores it."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).astimezone().replace(tzinfo=None)


def _distributions(history: History) -> dict[str, object]:
    """Return the distribution of each parameter, from the space or from the trials' values."""
    from optuna.distributions import CategoricalDistribution

    if history.settings.space:
        return {name: _distribution(kind) for name, kind in history.settings.space.items()}
    levels: dict[str, dict[object, None]] = {}
    for row in history.trials:
        for name, value in row.parameters.items():
            if value is not None:
                levels.setdefault(name, {})[value] = None
    return {name: CategoricalDistribution(tuple(values)) for name, values in levels.items()}


def _distribution(parameter: Parameter) -> object:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match parameter:
        case Range(low=low, high=high, log=log, integer=True, step=step):
            return IntDistribution(int(low), int(high), log=log, step=1 if log or step is None else int(step))
        case Range(low=low, high=high, log=log, step=step):
            return FloatDistribution(low, high, log=log, step=None if log else step)
        case _:
            return CategoricalDistribution(parameter.levels)
