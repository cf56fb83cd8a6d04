"""Counts sizes, branches, wide classes and unclear English in the code: `make counts`.

    python -m benchmarks.counts                  # the table
    python -m benchmarks.counts --list branchy   # the places behind one of its rows
    python -m benchmarks.counts orchestrator/store --list what

A branch is an `if`, a loop, a comprehension, a `case`, or an operand of `and` and `or` after the
first. A class is wide if it has more than 15 fields, 12 attributes or 20 methods; the sections of
settings are exempt. Words are those of docstrings and comments.
"""

import argparse
import ast
import io
import math
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

PRODUCT = ("bbkb",)
MAX_BRANCHES = 11
MAX_FIELDS = 15
MAX_ATTRIBUTES = 12
MAX_METHODS = 20
MAX_LINES = 400
MAX_COLUMNS = 100

_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.comprehension, ast.match_case)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PRIVATE = re.compile(r"(?<!self)(?<!cls)\._(?!_)[a-z]\w*")


class Source:
    """A Python file with its syntax tree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.lines = self.text.splitlines()

    def prose(self) -> Iterator[str]:
        """Yield each docstring and each comment."""
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS)):
                yield ast.get_docstring(node) or ""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string.lstrip("# ")


def branches(function: ast.AST) -> int:
    """Count the branches of a function, without those of functions and classes inside it."""
    count = 0
    nodes = list(ast.iter_child_nodes(function))
    while nodes:
        node = nodes.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        count += isinstance(node, _BRANCHES)
        count += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        nodes.extend(ast.iter_child_nodes(node))
    return count


def width(definition: ast.ClassDef) -> tuple[int, int, int]:
    """Count the annotated fields, the attributes assigned to `self`, and the methods of a class."""
    annotated = [node for node in definition.body if isinstance(node, ast.AnnAssign)]
    fields = sum("ClassVar" not in ast.unparse(node.annotation) for node in annotated)
    methods = [node for node in definition.body if isinstance(node, _FUNCTIONS)]
    nodes = [node for method in methods for node in ast.walk(method)]
    attributes = {name for node in nodes for name in _assigned(node)}
    return fields, len(attributes), len(methods)


def _assigned(node: ast.AST) -> Iterator[str]:
    """Yield the attributes of `self` that a statement assigns."""
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    for target in targets:
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
            yield target.attr


def branchy(source: Source) -> Iterator[str]:
    """Yield the functions with too many branches."""
    for node in ast.walk(source.tree):
        if isinstance(node, _FUNCTIONS) and (count := branches(node)) > MAX_BRANCHES:
            yield f"{source.path}:{node.lineno} {node.name} {count}"


def wide(source: Source) -> Iterator[str]:
    """Yield the classes with too many fields, attributes or methods."""
    if "settings" in source.path.parts:
        return
    limits = (MAX_FIELDS, MAX_ATTRIBUTES, MAX_METHODS)
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ClassDef):
            continue
        sizes = width(node)
        if any(size > limit for size, limit in zip(sizes, limits, strict=True)):
            yield "{}:{} {} fields {} attributes {} methods {}".format(source.path, node.lineno, node.name, *sizes)


def pairs(source: Source) -> Iterator[str]:
    """Yield assignments of several values to several names, `a, b = x, y`."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Assign):
            continue
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield f"{source.path}:{node.lineno} {ast.unparse(node)[:MAX_COLUMNS]}"


def word(source: Source, name: str) -> Iterator[str]:
    """Yield the surroundings of each `name` in docstrings and comments."""
    for text in source.prose():
        for found in re.finditer(rf"\b{name}\b", text, re.IGNORECASE):
            excerpt = " ".join(text[max(0, found.start() - 80) : found.end() + 60].split())
            yield f"{source.path}: …{excerpt}…"


def long_lines(source: Source) -> Iterator[str]:
    """Yield the lines with too many columns."""
    for number, line in enumerate(source.lines, start=1):
        if len(line) > MAX_COLUMNS:
            yield f"{source.path}:{number} {len(line)}"


def large(source: Source) -> Iterator[str]:
    """Yield the file if it has too many lines."""
    if len(source.lines) > MAX_LINES:
        yield f"{source.path} {len(source.lines)}"


def private(source: Source) -> Iterator[str]:
    """Yield the accesses to private attributes of other objects."""
    for number, line in enumerate(source.lines, start=1):
        for found in _PRIVATE.finditer(line):
            yield f"{source.path}:{number} {found[0]}"


LISTS = {
    "branchy": branchy,
    "wide": wide,
    "pairs": pairs,
    "what": lambda source: word(source, "what"),
    "where": lambda source: word(source, "where"),
    "long": long_lines,
    "files": large,
    "private": private,
}


class Row(NamedTuple):
    """A row of the table."""

    value: float
    name: str
    goal: float = math.inf

    def __str__(self) -> str:
        goal = f"{self.goal:g}" if math.isfinite(self.goal) else ""
        verdict = "  above the goal" if self.value > self.goal else ""
        return f"{self.value:>9g} {goal:>9}  {self.name}{verdict}"


def sources(paths: Iterable[str | Path]) -> list[Source]:
    """Parse files, and all Python files in folders."""
    files: list[Path] = []
    for path in map(Path, paths):
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [Source(file) for file in files]


def found(name: str, of: Iterable[Source]) -> list[str]:
    """List the places of a kind, such as `branchy`, in some sources."""
    return [place for source in of for place in LISTS[name](source)]


def code_rows(code: list[Source]) -> list[Row]:
    """Count the code in some sources."""
    lines = max(1, sum(len(source.lines) for source in code))
    words = max(1, sum(len(text.split()) for source in code for text in source.prose()))
    count = {name: len(found(name, code)) for name in LISTS}
    return [
        Row(count["files"], f"files with more than {MAX_LINES} lines"),
        Row(count["branchy"], f"functions with more than {MAX_BRANCHES} branches", goal=12),
        Row(count["wide"], "wide classes", goal=0),
        Row(count["long"], f"lines with more than {MAX_COLUMNS} columns"),
        Row(round(1000 * count["pairs"] / lines, 1), "pair assignments in 1000 lines", goal=2),
        Row(round(1000 * count["what"] / words, 2), "'what' in 1000 words", goal=0.5),
        Row(round(1000 * count["where"] / words, 2), "'where' in 1000 words", goal=1.5),
    ]


def project_rows() -> list[Row]:
    """Count the project in the current folder."""
    product = sources(PRODUCT)
    tests = sources(["tests"])
    return [
        Row(_lines(product), "lines of the product", goal=42_000),
        Row(_lines(tests), "lines of tests", goal=40_000),
        Row(_lines(sources(["benchmarks"])), "lines of benchmarks", goal=8_000),
        *code_rows(product),
        Row(len(found("private", tests)), "accesses to private attributes in tests", goal=60),
        Row(_words("docs"), "words of docs"),
        Row(_words("docs/measurements"), "of these in docs/measurements", goal=8_000),
    ]


def _lines(of: Iterable[Source]) -> int:
    return sum(len(source.lines) for source in of)


def _words(folder: str) -> int:
    pages = Path(folder).rglob("*.md")
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def main() -> None:
    """Print the table, or the places of one row."""
    parser = argparse.ArgumentParser(description="Count lines, branches and unclear words, beside the project's goals.")
    parser.add_argument("paths", nargs="*", help="files and folders; default: the whole project")
    parser.add_argument("--list", choices=LISTS, help="print the places of this kind")
    arguments = parser.parse_args()
    if arguments.list:
        default = ("tests",) if arguments.list == "private" else PRODUCT
        print(*found(arguments.list, sources(arguments.paths or default)), sep="\n")
        return
    rows = code_rows(sources(arguments.paths)) if arguments.paths else project_rows()
    print(f"{'value':>9} {'goal':>9}", *rows, sep="\n")


if __name__ == "__main__":
    main()
