"""Finished searches on disk: `<folder>/<method>.jsonl`, one line a search, so that an interrupted run goes on."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks.peers.search import Record
from orchestrator.errors import UserError

_DIGITS = 6


class Cache:
    """The searches of one method. Raises UserError when a line of its file cannot be read."""

    def __init__(self, folder: Path, method: str) -> None:
        self._path = folder / f"{method}.jsonl"
        self._found: dict[tuple[str, int, int, int], Record] = {}
        if self._path.is_file():
            for number, line in enumerate(self._path.read_text(encoding="utf-8").splitlines(), start=1):
                self._keep(_parsed(line, f"{self._path}:{number}"))

    def get(self, problem: str, workers: int, evaluations: int, seed: int) -> Record | None:
        """That search, or None when it is yet to be run."""
        return self._found.get((problem, workers, evaluations, seed))

    def add(self, record: Record) -> None:
        """Append it to the file, in one write."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_rounded(record), separators=(",", ":"), allow_nan=False) + "\n")
        self._keep(record)

    def _keep(self, record: Record) -> None:
        self._found[record.problem, record.workers, record.evaluations, record.seed] = record


def _rounded(record: Record) -> dict[str, object]:
    """Six digits are more than any measure shows."""
    return {name: _short(value) for name, value in dataclasses.asdict(record).items()}


def _short(value: object) -> object:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_short(item) for item in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _parsed(line: str, where: str) -> Record:
    try:
        return Record(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{where} is no finished search ({error}); delete that line, its search is run again"
        ) from error
