"""Builds the settings of a campaign from files and plain values, and checks the rules between their sections,
objective and strategy. Messages name file and line.

A rule is checked only if the sections that it reads are right by themselves, so one pass over a file
reports all of its mistakes.

Relative paths (`candidates.table`, those in `known_results`, `data.folder`, a SQLite URL, the
search path of a callable, the working directory of a command) are relative to the campaign file's
folder, so a campaign is the same from any working directory. Only `runs` is relative to the working
directory. The settings hold absolute paths.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, make_dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Range
from bbkb.objectives.reference import KnowsParameters
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.annotations import Section, annotations_of, default_of, whole
from bbkb.orchestrator.bandit.model.model import model_of
from bbkb.orchestrator.bandit.start.warm_start import DataStart, warm_start_of, with_known_results
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import AnyStrategy, LearnsCurves, Multiobjective, PausesTrials, WeighsResults
from bbkb.orchestrator.campaign.goals import VALUE, Constraint, Objective
from bbkb.orchestrator.campaign.settings import (
    OWN_RESULTS,
    Asha,
    Budget,
    CandidateSettings,
    GivenResults,
    KnownRun,
    Median,
    ModelStopping,
    ObjectiveSettings,
    OptunaStudy,
    ResultTable,
    Settings,
    Source,
    TuneExperiment,
    Workers,
    most_trials,
)
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.settings.imported import read_study, read_tune
from bbkb.orchestrator.settings.mistakes import (
    Refusal,
    RefusalError,
    align,
    config_error,
    describe,
    excerpt,
    unknown_in,
    without_meant,
)
from bbkb.orchestrator.settings.options import (
    AnyObjective,
    build_objective,
    check_sources,
    dump_objective,
    own_space,
)
from bbkb.orchestrator.settings.spaces import (
    build_enqueue,
    build_forbid,
    build_space,
    completed_enqueue,
    prior_problems,
    read_space,
    space_problems,
)
from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy
from bbkb.orchestrator.yaml_file import Document, Keys, Tree, check_texts, read, with_overrides

# sections that are read with others
_READ_APART = ("objective", "space", "strategy", "known_results")
# placeholders for sections that are wrong
_ANY: Mapping[str, Any] = {"name": "any", "budget": Budget(evaluations=1)}


def load(path: str | Path, overrides: Sequence[str] = ()) -> Settings:
    """Return the settings of a campaign file after `a.b.c=value` overrides, whose relative paths
    are also relative to the file.

    Raises ConfigError with one line for each mistake, which begins with its position (`file:line`
    or `--set …`).
    """
    path = Path(path)
    return _settings(with_overrides(read(path), overrides), path.parent.resolve())


def from_mapping(tree: Tree, overrides: Sequence[str] = (), origin: str = "settings") -> Settings:
    """Return the settings of plain values. Messages begin with `origin`. Raises ConfigError."""
    return _settings(with_overrides(Document(tree, {}, origin), overrides), Path.cwd())


def checked_goals(
    sections: Mapping[str, Sequence[Mapping[str, object]]], strategy: object
) -> tuple[tuple[Objective, ...], tuple[Constraint, ...]]:
    """Return the sections `objectives` and `constraints`, for Python callers. Raises ValueError with
    the first mistake."""
    try:
        objectives, constraints = (_take(key, sections[key]) for key in ("objectives", "constraints"))
    except ValidationError as error:
        raise ValueError(str(describe(error, sections, Settings)[0])) from None
    for problem in goal_problems([each.metric for each in objectives], bool(constraints), strategy):
        raise ValueError(str(problem))
    return objectives, constraints


@contextmanager
def naming_places(path: str | Path, overrides: Sequence[str] = ()) -> Iterator[None]:
    """Prefix an error's message with the position in the campaign file if it begins with a dotted
    key, such as `objective.callable`, or with a key and a colon. Such errors are raised by later
    checks, such as those of the objective's code."""
    try:
        yield
    except (ObjectiveError, UserError) as error:
        document = with_overrides(read(Path(path)), overrides)
        first_word = str(error).partition(" ")[0]
        subject = first_word.rstrip(":")
        keys: Keys = tuple(int(key) if key.isdecimal() else key for key in subject.split("."))
        beginnings = [keys[:length] for length in range(len(keys), 0, -1) if keys[:length] in document.places]
        if (len(keys) < 2 and subject == first_word) or not beginnings:
            raise
        raise UserError(f"{document.places[beginnings[0]]}: {error}") from error


def _settings(document: Document, folder: Path) -> Settings:
    check_texts(document)
    reading = _Reading(document.tree, folder)
    settings = reading.read()
    if reading.problems:
        raise config_error(document, reading.problems) from None
    return settings


@dataclass
class _Reading:
    """One pass over the plain values of a campaign file, which collects all mistakes."""

    tree: Tree
    folder: Path  # of relative paths

    def __post_init__(self) -> None:
        self.problems: list[Refusal] = []
        self.values: dict[str, Any] = {}  # the sections that are right by themselves
        self.objective: AnyObjective | None = None
        self.strategy: AnyStrategy = build_strategy({})

    def read(self) -> Settings:
        """Return the settings, with placeholders for wrong sections."""
        tree = dict(self.tree)
        if isinstance(tree.get("space"), str):
            self._attempt("space", lambda: self._read_space_file(tree))
        self.problems += [unknown_in(Settings, (key,), (key,)) for key in map(str, tree) if key not in _hints()]
        self._attempt("objective", lambda: self._objective(tree))
        for key in _hints():
            if key in _READ_APART:
                continue
            if key in tree:
                read = _READERS.get(key)
                self._attempt(key, partial(read, self, tree[key]) if read else partial(_take, key, tree[key]))
            elif key in _ANY:
                self.problems.append(Refusal((key,), "is required"))
            else:
                self.values[key] = default_of(Settings.__dataclass_fields__[key])
        self._attempt("strategy", lambda: self._strategy(tree.get("strategy", {})))
        is_unreadable = isinstance(self.tree.get("space"), str) and "space" not in self.values  # a wrong file
        if not is_unreadable and self.values.keys() >= {"objective", "candidates"}:
            self._attempt("space", lambda: self._space(tree.get("space", {})))
        if "objective" in self.values:
            self._attempt("known_results", lambda: self._known(tree.get("known_results", ())))
        if "runs" in self.values:
            self.values["runs"] = str(Path.cwd() / Path(self.values["runs"]).expanduser())
        if "data" in self.values:
            # worker processes and a later resume may not have the variable
            folder, variable = self.values["data"].folder, os.environ.get("BBKB_DATA")
            if folder is not None:
                self.values["data"] = replace(self.values["data"], folder=self._path(folder))
            elif variable:
                self.values["data"] = replace(self.values["data"], folder=str(Path(variable).expanduser().absolute()))
        self.problems = without_meant(self.problems)

        settings = Settings(**{**_ANY, **self.values})
        between = list(problems_between(settings, self.objective, self.strategy, self.values))
        self.problems += between
        wrong = {problem.keys[0] for problem in between}
        if settings.space and {"space", "forbid", "enqueue"} <= self.values.keys() - wrong:
            # recorded completely, so that a resume needs no draws
            whole_ones, mistakes = completed_enqueue(
                SearchSpace(settings.space, settings.forbid),
                settings.enqueue,
                settings.seed,
                bool(settings.known_results),
            )
            self.problems += mistakes
            settings = replace(settings, enqueue=whole_ones)
        if settings.objective.direction is None:
            settings = replace(settings, objective=replace(settings.objective, direction="maximize"))
        if settings.known_results and hasattr(self.strategy, "warm_start"):
            settings = replace(settings, strategy=dump_strategy(with_known_results(self.strategy)))
        return settings

    def _attempt(self, key: str, read: Callable[[], Any]) -> None:
        """Store the section that `read` returns, or its mistakes."""
        try:
            self.values[key] = read()
        except ValidationError as error:
            self.problems += describe(error, self.tree, Settings)
        except RefusalError as error:
            self.problems += [problem.below(key) for problem in error.problems]
        except ValueError as error:
            self.problems.append(align((key,), str(error), self.tree.get(key)))

    def _objective(self, tree: Tree) -> ObjectiveSettings:
        section: ObjectiveSettings = _take("objective", tree.get("objective", {}))
        check_sources(section)
        objectives = tree.get("objectives")
        first = objectives[0] if isinstance(objectives, list | tuple) and objectives else None
        if section.direction is None and isinstance(first, Mapping):
            # a wrong one is reported once
            is_minimized = first.get("direction") == "minimize"
            section = replace(section, direction="minimize" if is_minimized else "maximize")
        if len(section.sources) != 1:  # reported elsewhere; the options cannot be checked then
            return replace(section, options={})
        (source,) = section.sources
        self.objective = build_objective(source, getattr(section, source), section.options, self.folder)
        return replace(section, options=dump_objective(self.objective))

    def _read_space_file(self, tree: dict[str, Any]) -> object:
        """Read a ConfigSpace file into `space` and `forbid` of `tree`."""
        file = tree.pop("space")
        space, forbid = read_space(file, self.folder)
        clauses = tree.get("forbid", [])
        tree |= {"space": space, "forbid": [*clauses, *forbid] if isinstance(clauses, list | tuple) else clauses}
        return space

    def _space(self, space: object) -> object:
        candidates: CandidateSettings = self.values["candidates"]
        if space or candidates.table is not None or self.objective is None:
            return build_space(space)
        return dict(own_space(self.objective) or {})

    def _strategy(self, options: object) -> object:
        budget: Budget | None = self.values.get("budget")
        self.strategy = build_strategy(options, None if budget is None else budget.evaluations)
        return dump_strategy(self.strategy)

    def _known(self, sources: object) -> tuple[Source, ...]:
        """Return the sources with absolute paths, in which results of another tuner have been read."""
        direction = self.values["objective"].direction or "maximize"
        known: list[Source] = []
        for number, source in enumerate(_take("known_results", sources)):
            match source:
                case OptunaStudy():
                    with _refusing(number, "optuna"):
                        known.append(read_study(source.optuna, source.study, self.folder, direction))
                case TuneExperiment():
                    with _refusing(number, "ray_tune"):
                        known.append(read_tune(self.folder / Path(source.ray_tune).expanduser(), source.metric))
                case ResultTable():
                    known.append(replace(source, table=self._path(source.table)))
                case KnownRun(store=None):
                    known.append(replace(source, run=self._path(source.run)))
                case KnownRun(store=str(url)):
                    known.append(replace(source, store=self._store(url)))
                case _:
                    known.append(source)
        return tuple(known)

    def _path(self, path: str) -> str:
        return str(self.folder / Path(path).expanduser())

    def _store(self, url: str) -> str:
        scheme, slashes, path = url.partition(":///")
        is_relative = scheme.startswith("sqlite") and path and not Path(path).is_absolute()
        return f"{scheme}{slashes}{self._path(path)}" if is_relative else url


@contextmanager
def _refusing(*keys: str | int) -> Iterator[None]:
    """Report an error as a mistake at `keys`."""
    try:
        yield
    except UserError as error:
        raise RefusalError([Refusal(keys, f": {error}")]) from error


@cache
def _hints() -> Mapping[str, object]:
    return annotations_of(Settings)


@cache
def _adapter(key: str) -> TypeAdapter[Any]:
    """Return the adapter of a section, as the only field of a dataclass, so that it is strict."""
    cls = make_dataclass("Sections", [(key, _hints()[key])], bases=(Section,), frozen=True, kw_only=True)
    return TypeAdapter(cls)


def _take(key: str, value: object) -> Any:
    return getattr(_adapter(key).validate_python({key: value}), key)


def _budget(reading: _Reading, tree: Any) -> Budget:
    """Return the section with as many evaluations as steps if only `steps` is given: there can be
    no more trials, because each counts as at least one step."""
    steps = whole(tree.get("steps")) if isinstance(tree, Mapping) else None
    if steps is not None and "evaluations" not in tree:  # wrong steps are reported alone
        tree = {**tree, "evaluations": most_trials(steps) if isinstance(steps, int) else 1}
    budget: Budget = _take("budget", tree)
    return budget


def _early_stopping(reading: _Reading, section: object) -> object:
    """Return the section with its rule, which is `model` unless it, or an option of another
    rule, is given."""
    if isinstance(section, str):
        rule = "must be a mapping such as {rule: asha}, {rule: median} or {rule: model}"
        raise RefusalError([Refusal((), rule, excerpt(section))])
    if isinstance(section, Mapping) and section.keys().isdisjoint(("rule", "reduction", "metric")):
        section = {"rule": "model", **section}
    return _take("early_stopping", section)


def _candidates(reading: _Reading, tree: object) -> CandidateSettings:
    section: CandidateSettings = _take("candidates", tree)
    return section if section.table is None else replace(section, table=reading._path(section.table))


def _workers(reading: _Reading, tree: object) -> Workers:
    """Return the section; an executor that evaluates one trial at a time has one worker unless more
    are given."""
    workers: Workers = _take("workers", tree)
    is_given = isinstance(tree, Workers) or (isinstance(tree, Mapping) and "count" in tree)
    return workers if is_given or not workers.traits.one_at_a_time else replace(workers, count=1)


_READERS: Mapping[str, Callable[[_Reading, Any], Any]] = {
    "budget": _budget,
    "early_stopping": _early_stopping,
    "candidates": _candidates,
    "workers": _workers,
    "store": lambda reading, value: reading._store(_take("store", value)),
    "forbid": lambda reading, value: build_forbid(value),
    "enqueue": lambda reading, value: build_enqueue(value),
}


_WITHOUT_DIRECTION = (
    "is required, because the objective is your own: write direction: minimize for a loss, direction: maximize for an "
    "accuracy"
)


def problems_between(
    settings: Settings, objective: AnyObjective | None, strategy: AnyStrategy, right: Collection[str]
) -> Iterator[Refusal]:
    """Yield the mistakes between the sections that are `right` by themselves; in place of the others,
    `settings` has placeholders."""

    def are_right(sections: str) -> bool:
        return all(section in right for section in sections.split())

    is_from_data = isinstance(warm_start_of(strategy), DataStart)
    if are_right("known_results strategy") and is_from_data and not settings.known_results:
        yield Refusal(("strategy", "warm_start"), "data needs known_results, such as [{table: results.csv}]")
    yield from _of_trainings(settings, strategy, are_right)
    yield from _of_objective(settings, objective, are_right)

    if are_right("objectives constraints strategy"):
        yield from goal_problems([each.metric for each in settings.objectives], bool(settings.constraints), strategy)
    has_goals = len(settings.objectives) > 1 or settings.constraints
    if are_right("objectives constraints budget known_results") and has_goals:
        rule = "must not be given beside several objectives or constraints"
        if settings.budget.target is not None and len(settings.objectives) > 1:
            yield Refusal(("budget", "target"), f"{rule}: no single value is good enough")
        if settings.budget.stop_when is not None:
            yield Refusal(("budget", "stop_when"), f"{rule}: no single value shows a gain")
        if settings.known_results:
            yield Refusal(("known_results",), f"{rule}: known results have one value each")

    most = settings.budget.evaluations
    if are_right("enqueue budget") and len(settings.enqueue) > most:
        rule = f"must hold at most budget.evaluations, {most}, configurations"
        yield Refusal(("enqueue",), rule, str(len(settings.enqueue)))
    if are_right("known_results space"):
        for number, source in enumerate(settings.known_results):
            written = source.results if isinstance(source, GivenResults) and source.source == OWN_RESULTS else ()
            for place, result in enumerate(written):
                for name, value in result.parameters.items():  # null: it is missing
                    is_number = isinstance(value, int | float) and not isinstance(value, bool)
                    if isinstance(settings.space.get(name), Range) and not is_number and value is not None:
                        keys = ("known_results", number, "results", place, "parameters", name)
                        yield Refusal(keys, "must be a number", excerpt(value))
    if are_right("space forbid"):
        yield from space_problems(settings.space, settings.forbid)
    rule = deviation_rule(settings, strategy) if settings.objective.deviation is not None else ""
    if are_right("objective objectives constraints strategy early_stopping") and rule:
        yield Refusal(("objective", "deviation"), rule)
    if are_right("space strategy"):
        yield from prior_problems(settings.space, strategy)
    if are_right("workers objective") and settings.workers.ray_train and settings.objective.command is not None:
        yield Refusal(("workers", "ray_train"), "needs a function: a command's trainer makes a group of its own")


def deviation_rule(settings: Settings, strategy: object) -> str:
    """Return why the deviation of a value cannot be used; an empty text if it can."""
    if not settings.goals.is_single:
        return "needs a single objective without constraints"
    if settings.objective.deviation == settings.goals.objectives[0].metric:
        return "must name another metric than that of the objective"
    if isinstance(settings.early_stopping, ModelStopping):
        return "cannot be used with early_stopping.rule: model, whose model of trainings estimates the noise itself"
    if not (isinstance(strategy, WeighsResults) and strategy.takes_deviations):
        return "needs a strategy that weighs results, such as bbkb with its default preset"
    return ""


def goal_problems(objectives: Sequence[str], has_constraints: bool, strategy: object) -> Iterator[Refusal]:
    """Yield conflicts between the metrics of `objectives`, and a mistake if the strategy does not
    support several goals."""

    def takes_goals(strategy: object) -> bool:
        return isinstance(strategy, Multiobjective) and strategy.takes_goals

    for number, name in enumerate(objectives):
        if name in objectives[:number]:
            yield Refusal(("objectives", number, "metric"), f"must differ from the earlier ones, got {name!r}")
    if (len(objectives) > 1 or has_constraints) and not takes_goals(strategy):
        rule = "must be one of those that take several objectives and constraints"
        defaults = {name: cls(**with_preset(cls, {})) for name, cls in STRATEGIES.items()}
        able = [name for name, default in defaults.items() if takes_goals(default)]
        yield Refusal(("strategy",), f"{rule}: {' and '.join(able)}")


def _of_objective(
    settings: Settings, options: AnyObjective | None, are_right: Callable[[str], bool]
) -> Iterator[Refusal]:
    """Exactly one objective, with a direction, and exactly one source of its candidates."""
    section, space, candidates = settings.objective, settings.space, settings.candidates
    parts: object = options
    count = len(section.sources) + (candidates.target is not None)
    if are_right("objective candidates"):
        if candidates.target is not None and section.sources:
            rule = "must not be given beside candidates.target, which is the objective"
            yield Refusal(("objective", section.sources[0]), rule)
        elif count != 1:
            got = " and ".join(section.sources) or "none of them"
            yield Refusal(("objective",), f"must have exactly one of name, callable and command, got {got}")
    if are_right("objectives objective candidates"):
        if settings.objectives and section.direction not in (None, settings.objectives[0].direction):
            rule = f"must be left out, or be that of the first of objectives, {settings.objectives[0].direction}"
            yield Refusal(("objective", "direction"), rule, str(section.direction))
        if count == 1 and section.direction is None and not settings.objectives and not section.is_listed:
            yield Refusal(("objective", "direction"), _WITHOUT_DIRECTION)
    if are_right("objective space"):
        try:
            if isinstance(parts, ShellCommand) and space:
                parts.check(space)
            elif isinstance(parts, KnowsParameters):
                for name, rule in parts.space_problems(space).items():
                    yield Refusal(("space", name), rule)
        except ObjectiveError as error:
            yield align(("objective", "command" if isinstance(parts, ShellCommand) else "options"), str(error))
    if not are_right("objective candidates space") or (candidates.target is None and len(section.sources) != 1):
        return  # otherwise, the intended objective is unknown
    is_table = candidates.table is not None
    if section.sources == ["name"] and own_space(options) is None:
        given = {("space",): bool(space), ("candidates", "table"): is_table}
        rule = f"must not be given: {section.name} brings its own candidates"
        yield from (Refusal(keys, rule) for keys, is_given in given.items() if is_given)
    elif space and is_table:
        yield Refusal(("space",), "must not be given beside candidates.table, whose rows are the candidates")
    elif not space and not is_table:
        yield Refusal(("space",), "is required (or candidates.table): the parameters and their ranges")


def _of_trainings(settings: Settings, strategy: AnyStrategy, are_right: Callable[[str], bool]) -> Iterator[Refusal]:
    """Conflicts between early stopping, or a strategy that pauses its trials itself, and others."""
    rule = settings.early_stopping
    if are_right("early_stopping strategy objectives constraints"):
        key = ("early_stopping", "rule")
        if isinstance(rule, Asha | Median):
            metrics = [objective.metric for objective in settings.objectives] or [VALUE]
            if rule.metric not in (None, *metrics):
                text = f"must be the metric of an objective ({', '.join(metrics)}), got {rule.metric!r}"
                yield Refusal(("early_stopping", "metric"), text)
        elif rule is not None and (not isinstance(strategy, LearnsCurves) or model_of(strategy) is None):
            text = "must be median or asha with this strategy: model needs one whose model learns curves, such as bbkb "
            yield Refusal(key, f"{text}with its default preset")
        elif rule is not None and (len(settings.objectives) > 1 or settings.constraints):
            text = "must be median or asha beside several objectives or constraints: they compare one reported metric"
            yield Refusal(key, f"{text}, early_stopping.metric")
    needed = "strategy early_stopping space budget known_results workers"
    if not are_right(needed) or not isinstance(strategy, PausesTrials):
        return
    name = f"strategy {settings.strategy['name']}"
    without = f"must be left out with {name}"
    if rule is not None:
        yield Refusal(("early_stopping",), f"{without}, which pauses and replaces trials itself")
    if not settings.space:
        yield Refusal(("space",), f"must be given with {name}, which perturbs its parameters")
    if settings.known_results:
        yield Refusal(("known_results",), f"{without}, which copies checkpoints of its own trials")
    if settings.budget.steps is not None and settings.workers.traits.in_virtual_time:
        yield Refusal(("budget", "steps"), f"{without} in virtual time, because stopped trials use all steps there")
    if settings.budget.evaluations <= strategy.population:
        text = f"must be above strategy.population, {strategy.population}, because each copy is a new trial"
        yield Refusal(("budget", "evaluations"), text, excerpt(settings.budget.evaluations))
