"""Campaigns in Python: they accept the settings of a campaign file, and any function as the
objective. `Campaign` and `tune` have the same arguments, whose keys in a file `settings_of` knows."""

import functools
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from bbkb.objectives.errors import checks_arguments, warn_user
from bbkb.objectives.parameters import Parameter
from bbkb.objectives.pickled import LiveFunction, PickledFunction, draft_function
from bbkb.orchestrator.annotations import written
from bbkb.orchestrator.api.result import Result, result_of
from bbkb.orchestrator.bandit.strategies.presets import StrategyChoice
from bbkb.orchestrator.campaign.goals import Constraint, Direction, Objective
from bbkb.orchestrator.campaign.policy import Close
from bbkb.orchestrator.campaign.settings import Settings, Workers, name_from
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.errors import RunError, UserError
from bbkb.orchestrator.history.fold import read_history
from bbkb.orchestrator.report.page import write_report
from bbkb.orchestrator.report.terminal import SafeConsole, say
from bbkb.orchestrator.running.launch import Delivery, OnResult, launch
from bbkb.orchestrator.running.ray_start import check_address, check_room, is_connected, join
from bbkb.orchestrator.running.resume import prepare
from bbkb.orchestrator.session.build import Parts, build_new
from bbkb.orchestrator.session.executors import unenforced_limits
from bbkb.orchestrator.session.open import create_run
from bbkb.orchestrator.settings.arguments import (
    check_direction,
    check_goals,
    check_kind,
    check_list,
    check_mapping,
    check_mappings,
    check_objective,
    check_space,
)
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.settings.loading import load as load_settings
from bbkb.orchestrator.settings.options import dump_objective, objective_of
from bbkb.orchestrator.settings.strategies import strategy_section
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import Run, find, make_folder, open_run, unwritable
from bbkb.orchestrator.wording import plural
from bbkb.workers.executor import ExecutorName

if TYPE_CHECKING:  # they import Ray
    from bbkb.orchestrator.running.coordinator.cluster import Cluster
    from bbkb.orchestrator.running.coordinator.remote import RemoteSession


Function: TypeAlias = Callable[..., object]
Space: TypeAlias = Mapping[str, Parameter | Mapping[str, object]]
Strategy: TypeAlias = StrategyChoice | Mapping[str, object]
Objectives: TypeAlias = Sequence[Objective | Mapping[str, object]]
Constraints: TypeAlias = Sequence[Constraint | Mapping[str, object]]
KnownResults: TypeAlias = Sequence[Mapping[str, object]]
Executor: TypeAlias = ExecutorName
Concurrency: TypeAlias = int | Workers | Mapping[str, object]
EarlyStopping: TypeAlias = Literal["model", "median", "asha"] | Mapping[str, object]
FurtherSettings: TypeAlias = Mapping[str, object]


_KEYS = {  # arguments whose key is in a section of the campaign file, or has another name
    "evaluations": ("budget", "evaluations"),
    "steps": ("budget", "steps"),
    "hours": ("budget", "hours"),
    "direction": ("objective", "direction"),
    "executor": ("workers", "executor"),
    "workers": ("workers", "count"),
}


def _converted(name: str, value: Any) -> object:
    """Return an argument as in a campaign file; None if it is empty. Raises ValueError."""
    match name:
        case "space":
            return dict(check_space(value, "give {} and settings={'candidates': {'table': 'candidates.csv'}}"))
        case "direction":
            check_direction(value)
        case "objectives":
            return check_goals(value, name, "[Objective('accuracy')]") or None
        case "constraints":
            return check_goals(value, name, "[Constraint('memory_gb', at_most=4)]") or None
        case "known_results":
            return check_mappings(value, name, "[{'table': 'results.csv'}]") or None
        case "strategy":
            return strategy_section(value)
        case "early_stopping" if isinstance(value, str):
            return {"rule": value}
    return value


def settings_of(
    objective: Function | Mapping[str, object], settings: FurtherSettings | None = None, /, **arguments: object
) -> Settings:
    """Build the settings of a campaign from the arguments of `Campaign`. None is an omitted
    argument. Write the pickle of a function if the settings are correct.

    Raises:
        ValueError: if an argument has a wrong type or is given twice, or a direction is missing.
        ConfigError: if a setting is wrong.
        ObjectiveError: if the function cannot be pickled for the workers.
        RunError: if the pickle cannot be written into the folder `runs`.
    """
    check_objective(objective)
    tree = dict(check_mapping({} if settings is None else settings, "settings", "{'workers': {'retries': 0}}"))
    tree = {key: written(section) for key, section in tree.items()}
    check_mapping(tree.get("objective", {}), "settings['objective']", "{'deterministic': True}")
    for name, value in arguments.items():
        plain = value.item() if isinstance(value, np.generic) else written(value)
        if name == "workers" and isinstance(plain, Mapping):
            for key, setting in plain.items():
                _insert(tree, (name, key), setting, f"{name}.{key}")
        elif plain is not None and (converted := _converted(name, plain)) is not None:
            _insert(tree, _KEYS.get(name, (name,)), converted, name)
    tree.setdefault("name", _name_of(objective))
    if "budget" not in tree:
        raise ValueError("evaluations is missing: write evaluations=20, the number of trials")
    if isinstance(objective, Mapping):
        return from_mapping({**tree, "objective": {**objective, **tree.get("objective", {})}}, origin="Campaign")
    return _with_function(tree, objective)


def _insert(tree: dict[str, Any], keys: tuple[str, ...], value: object, argument: str) -> None:
    """Set a key of one or two parts in `tree`. Raises ValueError if `settings` also contains the
    key."""
    section = tree
    key = keys[-1]
    if len(keys) == 2:
        given = tree.get(keys[0], {})
        if not isinstance(given, Mapping):  # the check of all settings reports this mistake
            return
        section = tree[keys[0]] = dict(given)
    if key in section:
        raise ValueError(f"{argument} must be given once, as an argument or in settings; got both")
    section[key] = value


def _with_function(tree: dict[str, Any], function: Function) -> Settings:
    """Check the settings with `function` as the objective. Then write its pickle if workers in other
    processes need it."""
    objective = tree.get("objective", {})
    if "direction" not in objective:
        check_direction(None, is_needed="objectives" not in tree)
    live = LiveFunction.of(function)
    section = {**objective, "function": live.path, "options": dump_objective(live)}
    settings = from_mapping({**tree, "objective": section}, origin="Campaign")
    if not settings.workers.traits.on_ray:
        return settings
    draft = draft_function(function, Path(settings.runs) / "functions")
    try:
        pickled = draft.write()
    except OSError as error:
        raise unwritable(settings.runs, error.strerror) from error
    pickled_section = replace(settings.objective, function=pickled.path, options=dump_objective(pickled))
    return replace(settings, objective=pickled_section)


def _name_of(objective: Function | Mapping[str, object]) -> str:
    """Return a valid name for a run's folder."""
    if isinstance(objective, Mapping):
        return "campaign"
    if isinstance(objective, functools.partial):
        return _name_of(objective.func)
    return name_from(getattr(objective, "__name__", type(objective).__name__))


_LOOK_SECONDS = 1.0


class Submitted:
    """A running campaign. Its coordinator, a Ray actor, is detached, so the campaign survives the
    program that submitted it.

    `bbkb attach FOLDER` and `bbkb stop FOLDER` also work for it. Created by `Campaign.submit`.

    Args:
        run: the run.
        session: its session, in the coordinator.
    """

    def __init__(self, run: Run, session: "RemoteSession") -> None:
        self._run = run
        self._session = session

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self._run.folder

    def status(self) -> Status | None:
        """Return the status of the campaign; None until it has started."""
        return self._session.status()

    def stop(self, now: bool = False) -> None:
        """Stop the campaign; `bbkb resume` continues it.

        Args:
            now: cancel running evaluations instead of draining them.
        """
        self._session.stop(now)

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether the campaign has ended.

        Args:
            timeout: the seconds to wait for the end; None: no limit.
        """
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while not self._session.wait(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return False
        return True

    def result(self) -> Result:
        """Wait until the campaign has ended, and return its result. Raises the error that ended the
        campaign, if there was one."""
        self._session.result()
        return result_of(self._run)

    def __repr__(self) -> str:
        return f"<Submitted campaign in {self.folder}>"


Resume: TypeAlias = bool | str | Path

# the file or the name of the function: pickles of the same function differ between processes
_FUNCTION = ("objective.function", "objective.options.")


class Campaign:
    """One campaign, ready to run.

    Arguments: see `tune`, which creates a campaign, runs it, and lists the errors.
    """

    _function: Callable[..., object] | None = None  # the user's own function, for evaluations in this process

    @checks_arguments
    def __init__(
        self,
        objective: Function | Mapping[str, object],
        space: Space,
        *,
        evaluations: int | None = None,
        direction: Direction | None = None,
        executor: Executor | None = None,
        workers: Concurrency | None = None,
        hours: float | None = None,
        steps: int | None = None,
        early_stopping: EarlyStopping | None = None,
        strategy: Strategy | None = None,
        seed: int | None = None,
        objectives: Objectives = (),
        constraints: Constraints = (),
        known_results: KnownResults = (),
        name: str | None = None,
        run: str | None = None,
        settings: FurtherSettings | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "objective", "settings")}
        self.settings: Settings = settings_of(objective, settings, **arguments)
        self._function = None if isinstance(objective, Mapping) else objective

    @classmethod
    @checks_arguments
    def from_file(cls, path: str | Path, overrides: Sequence[str] = ()) -> "Campaign":
        """Return the campaign of a file.

        Args:
            path: the campaign file.
            overrides: assignments that replace keys of the file, such as "budget.evaluations=50".

        Raises:
            ValueError: if an argument has a wrong type.
            ConfigError: if the file is invalid; the message names file and line.
        """
        check_kind(path, str | Path, "path must be the path of a campaign file")
        campaign = cls.__new__(cls)
        campaign.settings = load_settings(path, check_list(overrides, "overrides", '["budget.evaluations=50"]'))
        return campaign

    @checks_arguments
    def run(
        self,
        *,
        address: str | None = None,
        progress: bool = True,
        on_result: OnResult | None = None,
        resume: Resume = False,
    ) -> Result:
        """Run the campaign to its end and return the result.

        Arguments: see `tune`.

        Raises:
            UserError: for mistakes that `bbkb run` reports with exit code 2.
            ObjectiveError: if the objective cannot be built.
            CampaignError: if the campaign fails.

        Ctrl-C stops the campaign cleanly, and then raises KeyboardInterrupt; a second one stops it
        immediately. `resume` continues the campaign.

        `resume` keeps finished trials. Only budget, workers, runs, run, tags, note and objective.deterministic
        may differ from the recorded settings. With `resume=True`, the argument `run` names the run. If the run has
        already finished, its result is returned immediately.
        """
        check_kind(on_result, Callable | None, "on_result must be a function of one result")
        settings = self.settings
        check_address(settings, address)
        check_kind(resume, bool | str | Path, "resume must be the path of a run's folder, True or False")
        if resume is True and settings.run is None:
            raise UserError(
                "resume=True must know which run to continue, got no name: give run=NAME, or "
                "resume=FOLDER for a run that exists"
            )
        begun = find(settings) if isinstance(resume, bool) else open_run(Path(resume), runs_it=True)
        if begun is not None and resume is False:
            raise RunError(
                f"`run` must name a new run, got {settings.run!r}, which exists in {begun.folder}: pass resume=True to "
                "continue it, or give another name"
            )
        console = SafeConsole(quiet=not progress)
        say_here = functools.partial(say, console)
        if begun is None:
            ray = join(settings, address, say_here)
            return _session(*self._create(address), console, address, on_result, ray)
        with begun.store() as store:
            old = snapshots.current(begun, store).settings
        settings = replace(settings, runs=old.runs, run=old.run)  # the run stays in its current folder
        objectives = (objective_of(old.objective), objective_of(settings.objective))
        codes = [each.code for each in objectives if isinstance(each, PickledFunction | LiveFunction)]
        # a given function replaces the recorded one of the same name
        compared = _FUNCTION if len(codes) == 2 else ()
        prepared = prepare(begun, settings, say_here, compared=compared, function=self._function)
        if isinstance(prepared, Close):
            return result_of(begun)
        # the user may have fixed the function, or changed the quantity that it measures
        if len(set(codes)) == 2:
            warn_user(
                f"the function may not be the one that {begun.folder} began with: its code has changed. The run "
                "continues with the given function and keeps its finished results; if these measure something else, "
                "start a new run"
            )
        make_folder(begun.folder)
        return _session(begun, *prepared, console, address, on_result)

    def submit(self, address: str | None = None) -> Submitted:
        """Start the campaign on a Ray cluster and return immediately. The campaign outlives this
        program.

        Args:
            address: the Ray cluster to join; None: RAY_ADDRESS.

        Raises:
            UserError: if there is no cluster to join, or the campaign's executor is not Ray.
        """
        # imported here so that campaigns without Ray do not load it
        from bbkb.orchestrator.running.coordinator.cluster import connect
        from bbkb.orchestrator.running.coordinator.remote import RemoteSession

        if not self.settings.workers.traits.on_ray:
            raise UserError(
                f"submit needs workers.executor ray, got {self.settings.workers.executor}; call run instead"
            )
        if address is None and "RAY_ADDRESS" not in os.environ:
            raise UserError(
                "submit needs a running Ray cluster: give address=, or set RAY_ADDRESS; or call run instead"
            )
        workers = self.settings.workers
        connect(address, workers.count, workers.all_cpus, workers.all_gpus, dashboard=False)
        run, settings, _ = self._create(address)
        return Submitted(run, RemoteSession.start(run, settings, is_detached=True))

    def _create(self, address: str | None) -> tuple[Run, Settings, Parts]:
        """Create the run and its first events. Return the run, its settings and the built parts."""
        settings, parts, known = build_new(self.settings, self._function)
        check_room(settings, parts.largest, address, or_here=not is_connected())
        if remark := unenforced_limits(settings):
            warn_user(remark)
        if known is not None and known.left_out:
            warn_user(f"known_results: of {known.source}, {known.not_learned}")
        return create_run(settings, parts, known), settings, parts

    def __repr__(self) -> str:
        settings = self.settings
        goals = ", ".join(map(str, settings.objectives))
        goals = goals or f"{settings.objective.direction}d"
        budget = plural(settings.budget.evaluations, "evaluation")
        workers = plural(settings.workers.count, "worker")
        return f"<Campaign {settings.name}, {goals}: {budget} on {workers}>"


@checks_arguments
def tune(
    objective: Function | Mapping[str, object],
    space: Space,
    *,
    evaluations: int | None = None,
    direction: Direction | None = None,
    executor: Executor | None = None,
    workers: Concurrency | None = None,
    hours: float | None = None,
    steps: int | None = None,
    early_stopping: EarlyStopping | None = None,
    strategy: Strategy | None = None,
    seed: int | None = None,
    objectives: Objectives = (),
    constraints: Constraints = (),
    known_results: KnownResults = (),
    name: str | None = None,
    run: str | None = None,
    settings: FurtherSettings | None = None,
    address: str | None = None,
    progress: bool = True,
    on_result: OnResult | None = None,
    resume: Resume = False,
) -> Result:
    """Run a campaign and return its result: `Campaign(...).run(...)`.

    Args:
        objective: a function that is called with the parameters as keyword arguments (and with
            `seed` and `report` if its signature has them) and returns a number or a mapping with
            `value`; lambdas and closures are allowed. Or the campaign file's section `objective` as
            a mapping.
        space: parameters by name: `Range`, `Choice`, `Ordered`, or mappings as in a campaign file.
        evaluations: the number of trials; may be omitted if `steps` is given.
        direction: "maximize" or "minimize". A function needs it, unless `objectives` are given,
            which have their own directions.
        executor: "ray" evaluates in parallel on this machine or a cluster; "inline" evaluates in
            this process, one trial at a time. None: "ray". The guide to campaign files lists all
            executors.
        workers: the number of concurrent evaluations; None: the number of this machine's cores. Or
            the section of a campaign file: Workers(count=8, gpus=1), or a mapping.
        hours: the time limit in hours, after which no trial starts.
        steps: the total number of steps, such as epochs, that the trials may report.
        early_stopping: "model", "median" or "asha"; or the section of a campaign file as a mapping.
            Requires an objective that reports intermediate values.
        strategy: its name, a mapping with its name and options, `module:Name`, or a class or an
            object of your own; None: "bbkb".
        seed: the seed of all random numbers, >= 0; None: 0.
        objectives: several objectives: [Objective("accuracy"), Objective("seconds", "minimize")].
            The function then returns a mapping with these metrics.
        constraints: bounds on metrics: [Constraint("memory_gb", at_most=4)].
        known_results: results that already exist and cost no budget: [{"table": "results.csv"}],
            [{"run": "runs/a"}], or other sources of the campaign file's section `known_results`.
        name: the beginning of the name of the run's folder; None: the function's name.
        run: the name of the run's folder; None: `name` followed by the time.
        settings: further sections of a campaign file, {"workers": {"retries": 0}}, as mappings or as
            objects of `bbkb.settings`.
        address: the Ray cluster to join; None: RAY_ADDRESS. Without either, a local Ray is started,
            which later campaigns of this process also use.
        progress: whether a terminal or a notebook displays the progress.
        on_result: called once for each trial that has ended, in this process, shortly after its
            result was stored. If it raises an error, the campaign stops and the error is raised.
        resume: the folder of a run to continue. True continues the run that `run` names, or starts
            it if it does not exist.

    Raises:
        ValueError: if an argument has a wrong type, or a function is given without a direction.
        ConfigError: if a setting is wrong.
        ObjectiveError: if the function cannot be pickled or cannot be called with the parameters.
        RunError: if the function cannot be written into the folder `runs`.

    >>> from bbkb import Range, tune
    >>> result = tune(lambda x: (x - 0.3) ** 2, {"x": Range(0.0, 1.0)}, evaluations=20, direction="minimize",
    ...               executor="inline", progress=False)  # doctest: +SKIP
    """
    arguments = locals()
    how_to_run = {name: arguments.pop(name) for name in ("address", "progress", "on_result", "resume")}
    return Campaign(**arguments).run(**how_to_run)


def _session(
    run: Run,
    settings: Settings,
    parts: Parts,
    console: SafeConsole,
    address: str | None,
    on_result: OnResult | None,
    ray: "Future[Cluster] | None" = None,
) -> Result:
    """Return the result of a run after one session, with its report written.

    Raises the error of `on_result`. Signals that stopped the session are handled again by the
    handlers of the program: usually, Ctrl-C raises KeyboardInterrupt.
    """
    delivery = None if on_result is None else Delivery(run, on_result)
    received: list[int] = []
    try:
        launch(run, settings, console, address, parts, ray, keeps_ray=True, delivery=delivery, received=received)
    finally:
        if delivery is not None:
            delivery.finish()
        history = read_history(run)
        result = Result(run, history)
        write_report(history, run.report_file, run.folder.name)
    if delivery is not None and delivery.error is not None:
        raise delivery.error
    if received:
        say(console, f"stopped; to continue: tune(…, resume={str(run.folder)!r})")
        signal.raise_signal(received[0])
    return result
