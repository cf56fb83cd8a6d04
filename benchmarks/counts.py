"""Counts the sizes of the project, and how far three stories travel through its code: `make counts`."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.hops import STORIES, stories

_CODE = {".py", ".html", ".css", ".js", ".jinja", ".j2"}
_PRIVATE_RAY = re.compile(r"\bray\._[a-z]\w+|\b_raylet\b|\b_internal_kv\w*|\._internal\b")
_OPEN_SECTIONS = ("space", "strategy", "options")  # their keys are parameters and options
# functions and files of each story
_STORY_GOALS = {"start": (300, 60), "result": (350, 60), "report": (25, 10)}


def files(folder: str, suffixes: Iterable[str] = (".py",)) -> list[Path]:
    """List the files of a folder with these suffixes, without links."""
    found = sorted(path for path in Path(folder).rglob("*") if path.suffix in suffixes)
    return [path for path in found if path.is_file() and not path.is_symlink()]


def lines(of: Iterable[Path]) -> int:
    """Count the lines of files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in of)


def words(of: Iterable[Path]) -> int:
    """Count the words of files."""
    return sum(len(path.read_text(encoding="utf-8").split()) for path in of)


def arrows(package: str) -> set[tuple[str, str]]:
    """Return the pairs of rooms of which the first imports from the second. A room is a folder, named
    with at most three words, such as `bbkb.orchestrator.bandit`."""
    modules = {_dotted(path) for path in files(package)}
    return {
        (room, other)
        for path in files(package)
        for name in _imported(path)
        if (room := _room(_dotted(path), modules)) != (other := _room(name, modules)) and name.startswith(f"{package}.")
    }


def rooms(package: str) -> set[str]:
    """Return the rooms of a package."""
    modules = {_dotted(path) for path in files(package)}
    return {_room(name, modules) for name in modules}


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _room(name: str, modules: set[str]) -> str:
    """Return the room of a module, or of a name in one."""
    while name not in modules and "." in name:
        name = name.rpartition(".")[0]
    folder = name if Path(*name.split(".")).is_dir() else name.rpartition(".")[0]
    return ".".join(folder.split(".")[:3])


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def private_ray(of: Iterable[Path]) -> list[str]:
    """List the uses of Ray's private parts."""
    return [f"{path}: {found[0]}" for path in of for found in _PRIVATE_RAY.finditer(path.read_text(encoding="utf-8"))]


def settings_keys(schema: Mapping[str, Any]) -> set[str]:
    """Return the dotted keys of a campaign file's JSON Schema that a user may write, without sections,
    parameters and options of strategies and objectives."""
    found: set[str] = set()

    def visit(part: Any, prefix: str) -> None:
        if isinstance(part, list):
            for each in part:
                visit(each, prefix)
        elif isinstance(part, Mapping):
            if reference := part.get("$ref"):
                visit(schema["$defs"][reference.rpartition("/")[2]], prefix)
            for name, below in part.get("properties", {}).items():
                if below.get("readOnly"):  # filled in by bbkb
                    continue
                found.add(prefix + name)
                if name not in _OPEN_SECTIONS:
                    visit(below, f"{prefix}{name}.")
            for name in ("anyOf", "oneOf", "allOf", "then", "else", "items"):
                visit(part.get(name, []), prefix)

    visit(schema, "")
    return {key for key in found if not any(other.startswith(f"{key}.") for other in found)}


def table() -> Iterator[tuple[str, int, int | None]]:
    """Yield the name, the value and the goal of each row for the project in the current folder."""
    product = files("bbkb", _CODE)
    yield "lines of the product", lines(product), 36_000
    yield "lines of tests", lines(files("tests")), 30_000
    yield "lines of benchmarks", lines(files("benchmarks")), 6_000
    pages = [*files("docs", {".md"}), Path("README.md"), Path("CONTRIBUTING.md")]
    yield "words of docs, README, CONTRIBUTING", words(pages), 32_000
    yield "words of the changelog", words([Path("CHANGELOG.md")]), 600
    yield "files of the product", len(product), None
    yield "files of tests", len(files("tests")), 150
    yield "rooms", len(rooms("bbkb")), 20
    yield "arrows between them", len(arrows("bbkb")), 90
    yield "uses of Ray's private parts", len(private_ray(files("bbkb"))), 12
    schema = subprocess.run([sys.executable, "-m", "bbkb", "schema"], check=True, capture_output=True).stdout
    yield "keys of settings", len(settings_keys(json.loads(schema))), 70
    found = stories()
    for story in STORIES:
        functions, crossed = _STORY_GOALS[story]
        yield f"story {story}: functions", found[story].functions, functions
        yield f"story {story}: files", found[story].files, crossed


def main() -> None:
    """Print the table."""
    print(f"{'value':>8} {'goal':>8}")
    for name, value, goal in table():
        print(f"{value:>8} {'' if goal is None else goal:>8}  {name}")


if __name__ == "__main__":
    main()
