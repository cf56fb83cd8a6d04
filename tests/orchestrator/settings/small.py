"""The smallest campaign, as a mapping and as the first lines of a file; tables of wrong files."""

import re
from collections.abc import Callable, Mapping
from typing import Any

SMALL: Mapping[str, Any] = {"name": "x", "objective": {"name": "branin"}, "budget": {"evaluations": 5}}
ErrorLines = Callable[..., list[str]]
HEAD = "name: x\nobjective: {name: branin}\nbudget: {evaluations: 5}\n"  # three lines


def cases(table: str) -> list[tuple[str, str]]:
    """The texts of a table, each followed by `=>` and a message on one line."""
    return re.findall(r"(\S.*?)\s+=> ([^\n]+)", table, re.DOTALL)
