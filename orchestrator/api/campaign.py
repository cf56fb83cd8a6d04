"""A campaign made in Python: its settings are those of a campaign file, its objective may be any
function."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from objectives.goals import Constraint, Direction, Objective
from objectives.parameters import Parameter
from objectives.pickled import pickle_function
from orchestrator.api.following import ResultDelivery
from orchestrator.api.result import Result, result_of
from orchestrator.api.resuming import Resume, find_run, prepare_resume
from orchestrator.api.strategies import strategy_section
from orchestrator.api.submitted import Submitted
from orchestrator.ask_tell.checks import (
    check_direction,
    check_goals,
    check_list,
    check_mapping,
    check_objective,
    check_space,
)
from orchestrator.ask_tell.strategy import StrategyChoice
from orchestrator.bandit.options import excerpt
from orchestrator.campaign.commands import Close
from orchestrator.campaign.trial_result import TrialResult
from orchestrator.display.console import SafeConsole
from orchestrator.display.terminal import say
from orchestrator.errors import RunError, UserError
from orchestrator.history.reading import read_history
from orchestrator.report import write_report
from orchestrator.running.launch import launch
from orchestrator.session.build import Parts, build_new, existing
from orchestrator.session.earlier import with_earlier
from orchestrator.session.open import create_run
from orchestrator.settings.loading import from_mapping
from orchestrator.settings.loading import load as load_settings
from orchestrator.settings.model import Settings
from orchestrator.settings.sections import name_from
from orchestrator.store.runs import Run, make_folder

Function = Callable[..., object]
Space = Mapping[str, Parameter | Mapping[str, object]]
OnResult = Callable[[TrialResult], None]
Goals = Sequence[Objective | Constraint | Mapping[str, object]]

_NOT_YET_PICKLED = {"function": "function.pkl", "options": {"sha256": "0" * 64}}  # the section `objective`


class Campaign:
    """One campaign, ready to run.

    Arguments: see `tune`, which makes a campaign and runs it.

    Raises:
        ValueError: when an argument has a wrong type, or a function is given without a direction.
        ConfigError: when a setting is wrong.
        ObjectiveError: when the function cannot be pickled or called so.
        RunError: when the function cannot be written into the folder `runs`.
    """

    def __init__(
        self,
        objective: Function | Mapping[str, object],
        space: Space,
        *,
        evaluations: int,
        direction: Direction | None = None,
        workers: int | None = None,
        strategy: StrategyChoice | Mapping[str, object] | None = None,
        seed: int | None = None,
        objectives: Goals = (),
        constraints: Goals = (),
        name: str | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        check_objective(objective)
        sections = dict(check_mapping({} if settings is None else settings, "settings", "{'workers': {'retries': 0}}"))
        check_space(space, "give {} and settings={'candidates': {'table': 'candidates.csv'}}")
        goals = {
            "objectives": check_goals(objectives, "objectives", "[Objective('accuracy')]"),
            "constraints": check_goals(constraints, "constraints", "[Constraint('memory_gb', at_most=4)]"),
        }
        has_goals = bool(goals["objectives"]) or "objectives" in sections
        _check_direction(direction, is_needed=callable(objective) and not has_goals)
        arguments = {
            "strategy": None if strategy is None else strategy_section(strategy),
            "seed": seed,
            **{key: [dict(goal) for goal in listed] or None for key, listed in goals.items()},
        }
        tree = {
            **sections,
            "name": name or _name_of(objective),
            "space": dict(space),
            "budget": {**_section(sections, "budget"), "evaluations": evaluations},
            "workers": {**_section(sections, "workers"), **({} if workers is None else {"count": workers})},
            **{key: value for key, value in arguments.items() if value is not None},
        }
        _check_once(arguments, sections)
        sense = {} if direction is None else {"direction": direction}
        section = objective if isinstance(objective, Mapping) else _NOT_YET_PICKLED
        checked = from_mapping({**tree, "objective": {**section, **sense}}, origin="Campaign")
        self.settings: Settings = checked if isinstance(objective, Mapping) else _with_function(checked, objective)

    @classmethod
    def from_file(cls, path: str | Path, overrides: Sequence[str] = ()) -> "Campaign":
        """Return the campaign of a file.

        Args:
            path: the file.
            overrides: what replaces keys of it, such as "budget.evaluations=50".

        Raises:
            ValueError: when an argument has a wrong type.
            ConfigError: naming file and line, when something in it is wrong.
        """
        if not isinstance(path, str | Path):
            raise ValueError(f"path must be the path of a campaign file, got {excerpt(path)}")
        campaign = cls.__new__(cls)
        campaign.settings = load_settings(path, check_list(overrides, "overrides", '["budget.evaluations=50"]'))
        return campaign

    def run(
        self,
        *,
        address: str | None = None,
        progress: bool = True,
        on_result: OnResult | None = None,
        resume: Resume = False,
    ) -> Result:
        """Run to the end and return the result.

        Arguments: see `tune`.

        Raises:
            UserError: what `bbkb run` reports as the user's mistake; ObjectiveError and
                CampaignError too.

        The first interrupt stops cleanly: the result then says "interrupted", and `resume`
        continues it.

        `resume` keeps finished trials. Only budget, workers, computing and log may differ from the
        recorded ones. With True, `settings={"run": NAME}` names the run. The result of a run that
        has finished is returned at once.
        """
        if on_result is not None and not callable(on_result):
            raise ValueError(f"on_result must be a function of one result, got {excerpt(on_result)}")
        begun = find_run(self.settings, resume)
        console = SafeConsole(quiet=not progress)
        if begun is None:
            return _session(*self._create(), console, address, on_result)
        prepared = prepare_resume(begun, self.settings, functools.partial(say, console))
        if isinstance(prepared, Close):
            return result_of(begun)
        make_folder(begun)
        return _session(begun, *prepared, console, address, on_result)

    def submit(self, address: str | None = None) -> Submitted:
        """Start the campaign on a Ray cluster and return at once; it continues when this program
        ends.

        Args:
            address: Ray cluster to join; RAY_ADDRESS when None.

        Raises:
            UserError: when there is no cluster to join, or the campaign's executor is not Ray.
        """
        from orchestrator.running.coordinator.cluster import connect  # campaigns without Ray do not import it
        from orchestrator.running.coordinator.remote import RemoteSession

        if self.settings.workers.executor != "ray":
            raise UserError(
                f"submit needs workers.executor ray, got {self.settings.workers.executor}; call run instead"
            )
        if address is None and "RAY_ADDRESS" not in os.environ:
            raise UserError(
                "submit needs a running Ray cluster: give address=, or set RAY_ADDRESS; or call run instead"
            )
        workers = self.settings.workers
        connect(address, workers.count, workers.all_cpus, workers.all_gpus, dashboard=False)
        run, settings, _ = self._create()
        return Submitted(run, RemoteSession.start(run, settings, is_detached=True))

    def _create(self) -> tuple[Run, Settings, Parts]:
        """Return the run with its first events, its settings, and what was built for it."""
        settings = with_earlier(self.settings)
        parts = build_new(settings)
        return create_run(settings, parts, existing(settings, parts)), settings, parts

    def __repr__(self) -> str:
        settings = self.settings
        goals = ", ".join(f"{goal.metric} {goal.direction[:-2]}sed" for goal in settings.objectives)
        goals = goals or f"{settings.objective.direction[:-2]}sed"
        budget, workers = self.settings.budget.evaluations, self.settings.workers.count
        return f"<Campaign {self.settings.name}, {goals}: {budget} evaluations on {workers} workers>"


def tune(
    objective: Function | Mapping[str, object],
    space: Space,
    *,
    evaluations: int,
    direction: Direction | None = None,
    workers: int | None = None,
    strategy: StrategyChoice | Mapping[str, object] | None = None,
    seed: int | None = None,
    objectives: Goals = (),
    constraints: Goals = (),
    name: str | None = None,
    settings: Mapping[str, object] | None = None,
    address: str | None = None,
    progress: bool = True,
    on_result: OnResult | None = None,
    resume: Resume = False,
) -> Result:
    """Run a campaign and return its result: `Campaign(...).run(...)`.

    Args:
        objective: a function called with the parameters as keywords (and `seed` and `report` when
            its signature has them), which returns a number or a mapping with `value`; a lambda or a
            closure works. Or the campaign file's `objective:` section as a mapping.
        space: parameters by name: `Range`, `Choice`, `Ordered`, or mappings as in a campaign file.
        evaluations: number of trials.
        direction: "maximize" or "minimize". A function needs it, unless `objectives` are given,
            which have their own.
        workers: evaluations at the same time; this machine's cores when None.
        strategy: its name, a mapping with its name and options, `module:Name`, or a class or an
            object of your own; "bbkb" when None.
        seed: of all random numbers, >= 0; 0 when None.
        objectives: several objectives, as in a campaign file: [{"metric": "accuracy"}, {"metric":
            "seconds", "direction": "minimize"}]. The function then returns a mapping with these
            metrics.
        constraints: bounds on metrics: [{"metric": "memory_gb", "at_most": 4}].
        name: begins the name of the run's folder; the function's name when None.
        settings: further sections of a campaign file: {"budget": {"hours": 2}, "workers":
            {"retries": 0}}.
        address: Ray cluster to join; RAY_ADDRESS when None, else a local Ray is started, which
            further campaigns of this process use too.
        progress: whether a terminal or a notebook shows how far it is.
        on_result: called once for each trial that has ended, in this process, shortly after its
            result is stored.
        resume: the folder of a run to continue; True: the run that `settings` names, begun when
            there is none.

    Raises:
        ValueError: when an argument has a wrong type, or a function is given without a direction.
        ConfigError: when a setting is wrong.
        ObjectiveError: when the function cannot be pickled or called so.
        RunError: when the function cannot be written into the folder `runs`.

    >>> from bbkb import Range, tune
    >>> result = tune(lambda x: (x - 0.3) ** 2, {"x": Range(0.0, 1.0)}, evaluations=20, direction="minimize",
    ...               progress=False, settings={"workers": {"executor": "inline"}})  # doctest: +SKIP
    """
    campaign = Campaign(
        objective,
        space,
        evaluations=evaluations,
        direction=direction,
        workers=workers,
        strategy=strategy,
        seed=seed,
        objectives=objectives,
        constraints=constraints,
        name=name,
        settings=settings,
    )
    return campaign.run(address=address, progress=progress, on_result=on_result, resume=resume)


def _session(
    run: Run,
    settings: Settings,
    parts: Parts,
    console: SafeConsole,
    address: str | None,
    on_result: OnResult | None,
) -> Result:
    """Return the result of a run after one session, with its report written."""
    try:
        metric = settings.objectives[0].metric if settings.objectives else None
        with ResultDelivery(run, on_result, metric):
            launch(run, settings, console, address, parts, keeps_ray=True)
    finally:
        history = read_history(run)
        result = Result(run, history)
        write_report(history, run.report_file, run.folder.name)
    return result


def _check_direction(direction: object, is_needed: bool) -> None:
    """Raise ValueError for a wrong direction, and for none where a function needs one."""
    if direction is None and is_needed:
        raise ValueError(
            'direction is missing: write direction="minimize" for a loss, direction="maximize" for an accuracy'
        )
    check_direction(direction)


def _check_once(arguments: Mapping[str, object], sections: Mapping[str, object]) -> None:
    """Raise ValueError when an argument is also a section of `settings`."""
    for key, value in arguments.items():
        if value is not None and key in sections:
            raise ValueError(f"{key} must be given once, as an argument or in settings; got both")


def _section(sections: Mapping[str, object], key: str) -> Mapping[str, object]:
    section = sections.get(key, {})
    return section if isinstance(section, Mapping) else {}


def _with_function(checked: Settings, function: Function) -> Settings:
    """Return the settings with `function` as objective, checked before any file is written."""
    try:
        pickled = pickle_function(function, Path(checked.runs) / "functions")
    except OSError as error:
        rule = "runs must be a folder that can be made and written"
        raise RunError(f"{rule}, got {excerpt(checked.runs)}: {error.strerror or error}") from error
    objective = checked.objective.model_copy(update={"function": pickled.path, "options": pickled})
    return checked.model_copy(update={"objective": objective})


def _name_of(objective: Function | Mapping[str, object]) -> str:
    """Return a name that a run's folder may have."""
    if isinstance(objective, Mapping):
        return "campaign"
    if isinstance(objective, functools.partial):
        return _name_of(objective.func)
    return name_from(getattr(objective, "__name__", type(objective).__name__))
