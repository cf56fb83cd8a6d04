"""The campaign file in a log as typed values, for readers: status, report, export, the live page.

A log is read on machines that cannot import the user's objective or strategy, so each
section is read separately by its model and nothing is imported. A session builds `Settings` instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from bbkb.objectives.parameters import Parameter
from bbkb.orchestrator.credentials import hide_address
from bbkb.orchestrator.settings.file import Document, Tree
from bbkb.orchestrator.settings.mistakes import config_error, describe, failure
from bbkb.orchestrator.settings.options import OBJECTIVE_KEYS
from bbkb.orchestrator.settings.sections import without_implied
from bbkb.orchestrator.settings.spaces import build_space
from bbkb.orchestrator.settings.worker_sections import WorkerSettings


@dataclass(frozen=True, kw_only=True)
class RecordedSettings:
    """The settings of one session. `plain` is the whole resolved file."""

    objective: str  # name, callable, function or command; empty if a table is the objective
    strategy: str
    space: Mapping[str, Parameter]  # empty if the candidates are a table's rows
    workers: WorkerSettings
    plain: Tree
    tags: tuple[str, ...] = ()
    note: str = ""

    @property
    def shown(self) -> Tree:
        """`plain` for display: without the webhook's address, which is a secret, and without a
        number of evaluations that follows from the number of steps."""
        plain = without_implied(self.plain)
        notify = plain.get("notify")
        if not isinstance(notify, Mapping) or not isinstance(notify.get("webhook"), str):
            return plain
        return {**plain, "notify": {**notify, "webhook": hide_address(notify["webhook"])}}


def read_recorded(tree: Tree) -> RecordedSettings:
    """Read a log's resolved campaign file. Raises ConfigError with the key of each mistake."""
    try:
        return RecordedSettings(
            objective=_objective_name(tree),
            strategy=str(tree.get("strategy", {}).get("name", "")),
            space=build_space(tree.get("space", {})),
            workers=_workers(tree.get("workers", {})),
            plain=tree,
            tags=tuple(tree.get("tags", ())),
            note=str(tree.get("note", "")),
        )
    except ValidationError as error:
        document = Document(tree, {}, "the campaign file in the log")
        raise config_error(document, describe(error, tree)) from error


def _objective_name(tree: Tree) -> str:
    """Return the objective as one word or line: for a pickled function, the campaign's name."""
    sources = tree.get("objective", {})
    if sources.get("function"):
        return str(tree.get("name", ""))
    return next((str(source) for key in OBJECTIVE_KEYS if (source := sources.get(key))), "")


def _workers(section: Tree) -> WorkerSettings:
    known = {key: value for key, value in section.items() if key in WorkerSettings.model_fields}
    try:
        return WorkerSettings.model_validate(known)
    except ValidationError as error:
        problems = describe(error, known, WorkerSettings)
        raise failure([problem.below("workers") for problem in problems]) from error
