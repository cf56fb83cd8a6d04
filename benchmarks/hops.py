"""Counts how far three stories travel through the code: calls, distinct functions and files.

start    from the call of `tune` to the first evaluation
result   from the end of an evaluation to the start of the next: the largest of 38
report   from the call of `report` to its return, with the rule `median`: the median of 100

The stories run inline, without Ray. Only public names of `bbkb` are used.
"""

import contextlib
import functools
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

PACKAGES = ("bbkb", "orchestrator", "workers", "objectives")  # beside `bbkb`, or `bbkb.py`
STORIES = ("start", "result", "report")
# functions of a module run in this process, whether or not functions of a script are copied
_MODULE = """
def cost(x, y):
    evaluated()
    return (x - 0.3) ** 2 + y


def train(x, y, report):
    for step in range(1, 11):
        followed(report, (x - 0.3) ** 2 + y + 1 / step, step)
    return (x - 0.3) ** 2 + y
"""


class Figures(NamedTuple):
    """The length of a story."""

    calls: int
    functions: int
    files: int


class Trace:
    """Counts the calls of the project's functions in all threads, while it is on."""

    def __init__(self, root: Path) -> None:
        self._roots = tuple(str(root / name) for name in PACKAGES)
        self._is_ours = functools.cache(lambda file: os.path.realpath(file).startswith(self._roots))
        self.is_on = False
        self.restart()

    def restart(self) -> None:
        """Forget all calls, and count."""
        self._calls, self._codes = 0, set[CodeType]()
        self.is_on = True

    def figures(self) -> Figures:
        """Return the length of the story since the last start."""
        return Figures(self._calls, len(self._codes), len({code.co_filename for code in self._codes}))

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count a call: a function for `sys.setprofile`."""
        code = frame.f_code
        if self.is_on and event == "call" and code.co_name[0] != "<" and self._is_ours(code.co_filename):
            self._calls += 1
            self._codes.add(code)


def stories() -> dict[str, Figures]:
    """Return the length of each story. All threads that start later in this process become slower."""
    import bbkb

    root = Path(os.path.realpath(bbkb.__file__)).parent
    trace = Trace(root.parent if root.name == "bbkb" else root)
    between: list[Figures] = []
    reports: list[Figures] = []

    def evaluated() -> None:
        between.append(trace.figures())
        trace.restart()

    def followed(report: Callable[[float, int], None], value: float, step: int) -> None:
        trace.restart()
        try:
            report(value, step)
        finally:
            trace.is_on = False
            reports.append(trace.figures())

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("hops_objectives.py").write_text(_MODULE)
        sys.path.insert(0, folder)
        import hops_objectives  # type: ignore[import-not-found]

        hops_objectives.evaluated, hops_objectives.followed = evaluated, followed
        space = {"x": bbkb.Range(0.0, 1.0), "y": bbkb.Range(0.0, 1.0)}
        how: dict[str, Any] = {"direction": "minimize", "executor": "inline", "seed": 1, "progress": False}
        bbkb.tune(hops_objectives.cost, space, evaluations=2, **how)  # imports
        between.clear()
        threading.setprofile(trace)
        sys.setprofile(trace)
        try:
            trace.restart()
            bbkb.tune(hops_objectives.cost, space, evaluations=40, **how)
            trace.is_on = False
            bbkb.tune(hops_objectives.train, space, evaluations=20, early_stopping="median", **how)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    later = reports[len(reports) // 2 :]
    report = Figures(*(int(statistics.median(column)) for column in zip(*later, strict=True)))
    return dict(zip(STORIES, (between[0], max(between[2:40]), report), strict=True))
