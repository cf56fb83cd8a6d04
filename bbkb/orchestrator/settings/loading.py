"""Builds `Settings` from campaign files and plain values. Messages name file and line."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from bbkb.objectives.objective import ObjectiveError
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.settings.file import Document, Keys, Tree, check_texts, read, with_overrides
from bbkb.orchestrator.settings.mistakes import Refusal, config_error, describe
from bbkb.orchestrator.settings.model import Settings
from bbkb.orchestrator.settings.strategies import with_model_in_strategy

# section → the sections with which it is read
_READ_WITH = {"space": {"objective", "candidates"}, "known_results": {"objective"}}
_ANY: Tree = {"name": "any", "budget": {"evaluations": 1}}  # placeholders for required keys


def load(path: str | Path, overrides: Sequence[str] = ()) -> Settings:
    """Return the settings of a campaign file after `a.b.c=value` overrides, whose relative paths
    are also relative to the file.

    Raises ConfigError with one line for each mistake, which begins with its position (`file:line`
    or `--set …`).
    """
    path = Path(path)
    return _settings(with_overrides(read(path), overrides), path.parent.resolve())


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


def from_mapping(tree: Tree, overrides: Sequence[str] = (), origin: str = "settings") -> Settings:
    """Return the settings of plain values. Messages begin with `origin`. Raises ConfigError."""
    return _settings(with_overrides(Document(tree, {}, origin), overrides), Path.cwd())


def _settings(document: Document, folder: Path) -> Settings:
    check_texts(document)
    document = with_model_in_strategy(document)
    context = {"folder": folder, "evaluations": _evaluations(document.tree)}
    try:
        return Settings.model_validate(document.tree, context=context)
    except ValidationError as error:
        problems = describe(error, document.tree, Settings)
        further = _further_problems(document.tree, problems, context)
        raise config_error(document, [*problems, *further]) from error


def _evaluations(tree: Tree) -> int | None:
    """Return the budget of evaluations for the conditions of a strategy; None if there is none."""
    budget = tree.get("budget")
    evaluations = budget.get("evaluations") if isinstance(budget, Mapping) else None
    return int(evaluations) if isinstance(evaluations, int | float) and evaluations >= 1 else None


def _further_problems(tree: Tree, problems: Sequence[Refusal], context: Mapping[str, object]) -> list[Refusal]:
    """Return the mistakes between valid sections, which have none of the `problems`. pydantic does
    not check them as long as any section has a problem."""
    wrong = {str(key) for problem in problems for key in problem.keys[:1]}
    wrong |= {section for section, others in _READ_WITH.items() if wrong & others}
    valid = {**_ANY, **{key: value for key, value in tree.items() if key not in wrong}}
    try:
        Settings.model_validate(valid, context={**context, "wrong": frozenset(wrong)})
    except ValidationError as error:
        return describe(error, valid, Settings)
    return []
