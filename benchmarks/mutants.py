"""Mutation testing: changes one expression at a time, and counts the changes that no test notices.

    make mutants                                        # 200 mutants; the score, and the survivors
    python -m benchmarks.mutants --count 60 --seed 1 --folder bbkb/orchestrator/campaign

Mutants are drawn at random, equally many in each folder. A first run with coverage finds the tests
of the folder that execute each line; each mutant runs these only, in a copy of the project, until
one fails. A mutant that takes much longer than its tests counts as noticed. Some mutants
change nothing that can be observed, so the score cannot reach 100 %: compare it between commits.

mutmut and cosmic-ray draw no samples, and have one command of tests for all folders.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

# package folder → the folder of its tests
FOLDERS = {
    "bbkb/orchestrator/campaign": "tests/orchestrator/campaign",
    "bbkb/orchestrator/bandit": "tests/orchestrator/bandit",
}
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "argmax": "argmin", "argmin": "argmax"}
_SHARE = 0.2  # of the time of all tests, for one mutant


class Mutant(NamedTuple):
    """A changed node: the `number`-th of its file's walk."""

    file: str
    line: int
    number: int
    text: str


def changed(node: ast.AST) -> ast.AST | None:
    """Return the changed copy of a node, if there is one."""
    match node:
        case ast.Compare(left, [operator, *others], operands):
            return ast.Compare(left, [_COMPARISONS[type(operator)](), *others], operands)
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
            return ast.BinOp(left, _OPERATORS[type(operator)](), right)
        case ast.BoolOp(operator, operands):
            return ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), operands)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            return operand
        case ast.If(test, body, orelse):
            return ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.IfExp(test, body, orelse):
            return ast.IfExp(test, orelse, body)
        case ast.Constant(bool(value)):
            return ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            return ast.Constant(value + 1)
        case ast.Name(name) if name in _NAMES:
            return ast.Name(_NAMES[name])
        case ast.Attribute(value, name) if name in _NAMES:
            return ast.Attribute(value, _NAMES[name])
        case ast.Return(value) if value is not None and not isinstance(value, ast.Constant):
            return ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Continue():
            return ast.Pass()
    return None


def _walk(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yield each node that may change, with its parent and place in it: not annotations, decorators,
    or the arguments of raised errors."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list") or isinstance(node, ast.Raise | ast.JoinedStr):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                yield node, field, index, child
                yield from _walk(child)


def mutants(root: Path, folder: str) -> list[Mutant]:
    """List all mutants of a folder's functions."""
    found = []
    for path in sorted((root / folder).rglob("*.py")):
        tree = ast.parse(path.read_text())
        inside = {id(node) for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) for node in ast.walk(each)}
        for number, (_, _, _, node) in enumerate(_walk(tree)):
            if id(node) in inside and (new := changed(node)):
                text = f"{_short(node)}  →  {_short(new)}"
                found.append(Mutant(str(path.relative_to(root)), node.lineno, number, text))  # type: ignore[attr-defined]
    return found


def _short(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).splitlines()[0][:70]


def mutated(source: str, mutant: Mutant) -> str:
    """Return the source of a file with one change."""
    tree = ast.parse(source)
    parent, field, index, node = list(_walk(tree))[mutant.number]
    if index is None:
        setattr(parent, field, changed(node))
    else:
        getattr(parent, field)[index] = changed(node)
    return ast.unparse(ast.fix_missing_locations(tree))


class Tests:
    """The tests of a folder in a copy of the project."""

    def __init__(self, copied: Path, folder: str) -> None:
        self._copied = copied
        data, times = copied / ".coverage", copied / "times.xml"
        self._run([folder, f"--cov={copied}", "--cov-context=test", "--cov-report=", f"--junitxml={times}"], check=True)
        with sqlite3.connect(data) as connection:
            tables = "line_bits JOIN file ON file.id = file_id JOIN context ON context.id = context_id"
            rows = connection.execute(f"SELECT path, context, numbits FROM {tables}").fetchall()
        self._lines = [(path, context.removesuffix("|run"), bits) for path, context, bits in rows]
        cases = list(ElementTree.parse(times).iter("testcase"))
        self._seconds = {f"{case.get('classname')}.{case.get('name')}": float(case.get("time", 0)) for case in cases}

    def _run(self, arguments: list[str], check: bool = False, cpu_seconds: int = 100_000) -> int:
        """Run pytest, and return its exit code."""
        environment = {**os.environ, "PYTHONPATH": str(self._copied), "PYTHONDONTWRITEBYTECODE": "1"}
        limited = ["prlimit", f"--cpu={cpu_seconds}", sys.executable]
        command = [*limited, *["-m", "pytest", "-q", "-x", "-n", "0", "--quick", "-p", "no:cacheprovider"], *arguments]
        return subprocess.run(command, cwd=self._copied, env=environment, check=check, capture_output=True).returncode

    def seconds(self, test: str) -> float:
        """Return the duration of a test."""
        name, bracket, parameters = test.partition("[")
        dotted = name.replace("/", ".").replace(".py::", ".").replace("::", ".")
        return self._seconds.get(f"{dotted}{bracket}{parameters}", 0.0)

    def executing(self, file: str, line: int) -> list[str]:
        """Return tests that execute a line, which take at most a fifth of the time of all: those of
        the file's own test first, then the fastest."""
        byte, bit, path = line // 8, 1 << line % 8, str(self._copied / file)
        found = {test for each, test, bits in self._lines if each == path and len(bits) > byte and bits[byte] & bit}
        left = _SHARE * sum(self._seconds.values())
        tests = []
        own = f"test_{Path(file).stem}.py"
        for test in sorted(found - {""}, key=lambda test: (own not in test, self.seconds(test), test)):
            left -= self.seconds(test)
            if left > 0:
                tests.append(test)
        return tests

    def notice(self, mutant: Mutant) -> bool:
        """Run the tests that execute a mutant, and return whether one fails or they take much longer."""
        tests = self.executing(mutant.file, mutant.line)
        path = self._copied / mutant.file
        source = path.read_text()
        path.write_text(mutated(source, mutant))
        limit = 60 + int(10 * sum(map(self.seconds, tests)))
        try:
            return bool(tests) and self._run(tests, cpu_seconds=limit) != 0
        finally:
            path.write_text(source)


def main() -> None:
    """Draw mutants, run their tests, and print the survivors and the score."""
    parser = argparse.ArgumentParser(description="Count the changes of the code that no test notices.")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the project")
    parser.add_argument("--folder", action="append", metavar="CODE[=TESTS]", help="default: campaign and bandit")
    arguments = parser.parse_args()
    folders = arguments.folder or list(FOLDERS)
    with tempfile.TemporaryDirectory() as temporary:
        copied = Path(temporary).resolve() / "project"
        ignored = shutil.ignore_patterns(".venv", ".git", ".*_cache", ".hypothesis", "runs", "site")
        shutil.copytree(arguments.root, copied, ignore=ignored, symlinks=True)
        for code, _, of_tests in (folder.partition("=") for folder in folders):
            every = mutants(copied, code)
            drawn = random.Random(arguments.seed).sample(every, min(len(every), arguments.count // len(folders)))
            tests = Tests(copied, of_tests or FOLDERS[code])
            noticed = 0
            for mutant in sorted(drawn):
                if tests.notice(mutant):
                    noticed += 1
                else:
                    print(f"  survived: {mutant.file}:{mutant.line}  {mutant.text}", flush=True)
            print(f"{code}: {noticed} of {len(drawn)} noticed, drawn from {len(every)}", flush=True)


if __name__ == "__main__":
    main()
