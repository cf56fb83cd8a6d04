"""Finished searches on disk: `<folder>/<method>.jsonl`, so that an interrupted run continues."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from bbkb.orchestrator.errors import UserError

SearchKey = tuple[str | int, ...]
Key = tuple[str, int]  # problem and seed


class Finished(Protocol):
    """The stored record of one search: a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def key(self) -> SearchKey:
        """The key that identifies this search of a method."""
        ...


F = TypeVar("F", bound=Finished)


class Cache(Generic[F]):
    """The stored records, of class `kind`, of the searches of one method. Raises UserError when a
    line of the file cannot be read."""

    def __init__(self, folder: Path, method: str, kind: type[F]) -> None:
        self._path, self._kind = folder / f"{method}.jsonl", kind
        self._found: dict[SearchKey, F] = {}
        if self._path.is_file():
            for number, line in enumerate(self._path.read_text(encoding="utf-8").splitlines(), start=1):
                record = self._parse(line, f"{self._path}:{number}")
                self._found[record.key] = record

    def get(self, *key: str | int) -> F | None:
        """The record of the search with this key; None if it has not been run."""
        return self._found.get(key)

    def add(self, record: F) -> None:
        """Append a record to the file, in one write."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        digits = json.loads(json.dumps(dataclasses.asdict(record)), parse_float=_rounded)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(digits, separators=(",", ":"), allow_nan=False) + "\n")
        self._found[record.key] = record

    def _parse(self, line: str, where: str) -> F:
        try:
            names = self._kind.__dataclass_fields__  # older records had further fields
            return self._kind(**{name: value for name, value in json.loads(line).items() if name in names})
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{where} is not a finished search ({error}); delete that line, and the search is run again"
            ) from error


def read(caches: Mapping[str, Cache[F]], keys: Mapping[Key, SearchKey]) -> dict[str, dict[Key, F]]:
    """The finished searches of each method; methods without any are left out."""
    found = {
        method: {key: record for key, search in keys.items() if (record := cache.get(*search)) is not None}
        for method, cache in caches.items()
    }
    return {method: records for method, records in found.items() if records}


def common(results: Mapping[str, Mapping[Key, object]]) -> list[Key]:
    """The searches that all methods have finished."""
    return sorted(set.intersection(*map(set, results.values()))) if results else []


def _rounded(number: str) -> float:
    """The number with six significant digits, more than any table shows."""
    return float(f"{float(number):.6g}")
