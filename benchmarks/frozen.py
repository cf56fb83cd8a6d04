"""Records what a rewrite may not change, and compares it: the picks of strategies, and the places of
mistakes in campaign files.

    python benchmarks/frozen.py --record before.json     # at the commit before
    python benchmarks/frozen.py --compare before.json    # at the commit after: prints what differs, exit code 1

Only the public names of `bbkb` are used, so the file can be run in the working directory of any
commit. Floating-point results differ between processors: record and compare on
one machine. `--only picks` (or mistakes) selects a part; `--case TEXT` the cases whose name
contains a text.

The texts of messages are recorded, and differences between them are printed, but they do not count.
"""

import argparse
import contextlib
import functools
import io
import json
import logging
import math
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

EVALUATIONS = 24
OBJECTIVES = """
import math

def box(x, y):
    return (x - 0.3) ** 2 + (y - 0.6) ** 2 * 0.5 + 0.1 * math.sin(9 * x)

def noisy(x, y, seed):
    return box(x, y) + 0.05 * math.sin(1000.0 * seed)

def mixed(lr, depth, model, degree=2):
    value = (math.log10(lr) + 2) ** 2 + 0.1 * abs(depth - 5)
    return value + {"svm": 0.0, "forest": 0.5, "net": 0.2}[model] + 0.05 * degree

def two(x, y):
    return {"gain": 1 - (x - 0.2) ** 2 - y / 4, "cost": x + y * y}

def bounded(x, y):
    return {"value": box(x, y), "memory": x + y}

def fails(x, y):
    if x + y > 1.2:
        raise ValueError("no convergence")
    return box(x, y)

def curve(x, y, report):
    for step in range(1, 28):
        report(box(x, y) + 1 / step**0.7, step)
    return box(x, y) + 1 / 27**0.7

def grows(x, y, report, folder):
    done = folder / "step"
    start = int(done.read_text()) if done.exists() else 0
    for step in range(start + 1, 13):
        done.write_text(str(step))
        report(box(x, y) + 1 / step, step)
    return box(x, y) + 1 / 12
"""

_BOX = "space: {x: {low: 0.0, high: 1.0}, y: {low: 0.0, high: 1.0}}\n"
_MIXED = """space:
  lr: {low: 1.0e-4, high: 1.0, log: true}
  depth: {low: 2, high: 9, integer: true}
  model: {choices: [svm, forest, net]}
  degree: {ordered: [1, 2, 4], when: {model: svm}}
"""
# name → the function, and the sections that differ from `_campaign`
PROBLEMS = {
    "box": ("box", _BOX),
    "mixed": ("mixed", _MIXED),
    "noisy": ("noisy", _BOX),
    "failures": ("fails", _BOX),
    "table": ("box", "candidates: {table: table.csv}\n"),
    "enqueued": ("box", _BOX + "enqueue: [{x: 0.5, y: 0.25}, {x: 0.1}]\n"),
    "known": ("box", _BOX + "known_results: [{results: [{parameters: {x: 0.9, y: 0.9}, value: 0.5}]}]\n"),
    "constraint": ("bounded", _BOX + "constraints: [{metric: memory, at_most: 0.8}]\n"),
    "two": (
        "two",
        _BOX + "objectives: [{metric: gain, direction: maximize}, {metric: cost, direction: minimize}]\n",
    ),
    "curve_model": ("curve", _BOX + "early_stopping: {rule: model, last_step: 27}\n"),
    "curve_median": ("curve", _BOX + "early_stopping: {rule: median, after: 3}\n"),
    "curve_asha": ("curve", _BOX + "early_stopping: {rule: asha, reduction: 3, after: 1}\n"),
}
# those of `bbkb strategies`, and options that keep small searches informative
STRATEGIES: dict[str, str] = {
    **dict.fromkeys(
        ("uniform", "gp_ucb", "bkb", "compressed_ucb", "compressed_ei", "compressed_mpi", "gp_bucb"),
        "",
    ),
    "regularized_evolution": ", population: 8, tournament: 3",
    **dict.fromkeys(("epsilon_greedy", "async_ts", "igp_ucb", "expected_improvement"), ""),
    "probability_of_improvement": "",
    "gp_threds": ", grid_points: 30",
    "adaptive_discretization": "",
    "optuna": "",
}
PAPER = ("bbkb", "gp_ucb", "bkb", "gp_bucb", "async_ts", "expected_improvement", "compressed_ucb")


def _campaign(function: str, sections: str, strategy: str = "", evaluations: int = EVALUATIONS) -> str:
    goal = "" if "objectives:" in sections else ", direction: minimize"
    return (
        f"name: frozen\nseed: 3\nobjective: {{callable: 'frozen_objectives.py:{function}'{goal}}}\n{sections}{strategy}"
        f"budget: {{evaluations: {evaluations}}}\nworkers: {{count: 4, executor: simulated}}\n"
    )


def cases() -> dict[str, str]:
    """Return the campaign files by name."""
    files = {f"default {name}": _campaign(*problem) for name, problem in PROBLEMS.items()}
    for name in ("box", "mixed", "table", "noisy"):
        batch = "strategy: {name: bbkb, mode: batch}\n"
        files[f"batch {name}"] = _campaign(*PROBLEMS[name], batch)
    for name, options in STRATEGIES.items():
        files[f"strategy {name}"] = _campaign(*PROBLEMS["box"], f"strategy: {{name: {name}{options}}}\n")
    for name in PAPER:
        files[f"paper {name}"] = _campaign(*PROBLEMS["box"], f"strategy: {{name: {name}, preset: paper}}\n")
    population = "strategy: {name: pbt, population: 4, interval: 3, last_step: 12}\n"
    files["strategy pbt"] = _campaign("grows", _BOX, population, evaluations=12)
    return files


def run_campaign(text: str) -> list[list[Any]]:
    """Run a campaign file in simulated time and return its trials: parameters, status, value."""
    from bbkb import Campaign

    path = Path("frozen.yaml")
    path.write_text(text)
    result = Campaign.from_file(path, [f"run=r{len(list(Path('runs').glob('*')))}"]).run(progress=False)
    trials = sorted(result.trials, key=lambda trial: -1 if trial.trial is None else trial.trial)
    return [[_plain(trial.parameters), str(trial.status), _plain(trial.value)] for trial in trials]


def ask_box(size: int = 1, **options: Any) -> list[Any]:
    """Return the picks of a loop over an `Optimizer`."""
    import frozen_objectives as objectives  # type: ignore[import-not-found]

    from bbkb import Constraint, Objective, Optimizer

    kind = options.pop("kind", "box")
    space = options.pop("space", {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}})
    if kind == "two":
        options |= {"objectives": [Objective("gain"), Objective("cost", "minimize")]}
    else:
        options |= {"direction": "minimize"}
    if kind == "bounded":
        options["constraints"] = [Constraint("memory", at_most=0.8)]
    optimizer = Optimizer(space, seed=5, **options)
    picks: list[Any] = []
    while len(picks) < EVALUATIONS:
        asked = optimizer.ask(size)
        picks += [_plain(configuration) for configuration in asked]
        optimizer.tell(asked, [getattr(objectives, kind)(**configuration) for configuration in asked])
    return picks


def ask_steps() -> list[Any]:
    """Return the picks and ends of trainings that an `Optimizer` stops and continues."""
    import frozen_objectives as objectives

    from bbkb import Optimizer

    space = {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}}
    optimizer = Optimizer(space, "minimize", seed=5, steps=27, first_trials=8)
    picks = []
    for _ in range(30):
        (trial,) = optimizer.ask()
        parameters, step = _plain(trial), trial.last_step
        for step in range(trial.last_step + 1, 28):
            if not trial.report(objectives.box(**trial) + 1 / step, step):
                break
        else:
            trial.tell(objectives.box(**trial) + 1 / 27)
        picks.append([parameters, step])
    return picks


def ask_candidates(strategy: str, size: int) -> list[int]:
    """Return the picks of a loop over a `CandidateOptimizer`, rows of an array."""
    import numpy as np

    from bbkb import CandidateOptimizer

    rows = np.random.default_rng(0).random((300, 2))
    optimizer = CandidateOptimizer(rows, strategy=strategy, seed=5)
    picks: list[int] = []
    while len(picks) < 2 * EVALUATIONS:
        asked = optimizer.ask(size)
        picks += [int(row) for row in asked]
        optimizer.tell(asked, np.sin(6 * rows[asked, 0]) - (rows[asked, 1] - 0.4) ** 2)
    return picks


_MIXED_SPACE: Mapping[str, Any] = {
    "lr": {"low": 1e-4, "high": 1.0, "log": True},
    "depth": {"low": 2, "high": 9, "integer": True},
    "model": {"choices": ["svm", "forest", "net"]},
}
LOOPS: dict[str, Callable[[], list[Any]]] = {
    "ask box": ask_box,
    "ask box by four": lambda: ask_box(size=4),
    "ask mixed": lambda: ask_box(kind="mixed", space=_MIXED_SPACE),
    "ask two": lambda: ask_box(size=2, kind="two"),
    "ask constraint": lambda: ask_box(kind="bounded"),
    "ask steps": ask_steps,
    **{
        f"candidates {name}": lambda name=name: ask_candidates(name, 2)  # type: ignore[misc]
        for name in ("bbkb", "bkb", "gp_bucb", "async_ts", "compressed_ei")
    },
}

_GOOD = """name: frozen
seed: 3
objective: {callable: "frozen_objectives.py:box", direction: minimize}
space:
  x: {low: 0.0, high: 1.0}
  y: {low: 0.0, high: 1.0}
strategy: {name: bbkb}
budget: {evaluations: 2}
workers: {count: 2, executor: simulated}
"""
# each replaces a text of `_GOOD`, or is appended to it
MISTAKES: list[tuple[str, str]] = [
    ("name: frozen\n", ""),
    ("name: frozen", "name: a/b"),
    ("name: frozen", "nam: frozen"),
    ("name: frozen", "name: [frozen]"),
    ("name: frozen", "name: frozen: x"),
    ("seed: 3", "seed: -1"),
    ("seed: 3", "seed: 1.5"),
    ("seed: 3", "seed: true"),
    ("seed: 3", "seed:\t3"),
    ("seed: 3", "seed: 3\nseed: 4"),
    ("seed: 3", "evaluations: 3"),
    (", direction: minimize", ""),
    ("minimize", "minimise"),
    ("minimize}", "minimize, determinstic: true}"),
    ("minimize}", 'minimize, command: "python x.py {args}"}'),
    ("py:box", "py:bix"),
    ("frozen_objectives.py:box", "missing.py:box"),
    ("frozen_objectives.py:box", "frozen_objectives:box:x"),
    ('callable: "frozen_objectives.py:box"', "name: brannin"),
    ('callable: "frozen_objectives.py:box"', 'command: "python x.py --x {x} --z {z}"'),
    ('{callable: "frozen_objectives.py:box", direction: minimize}', "box"),
    ("  y: {low: 0.0, high: 1.0}\n", ""),
    ("y: {low: 0.0", "z: {low: 0.0"),
    ("y: {low: 0.0", "y: {low: 2.0"),
    ("y: {low: 0.0", "y: {low: zero"),
    ("y: {low: 0.0, high: 1.0}", "y: {low: 0.0}"),
    ("y: {low: 0.0, high: 1.0}", "y: {low: 0.0, hihg: 1.0}"),
    ("y: {low: 0.0, high: 1.0}", "y: {low: 0.0, high: 1.0, log: true}"),
    ("y: {low: 0.0, high: 1.0}", "y: {low: 0.0, high: .inf}"),
    ("y: {low: 0.0, high: 1.0}", "y: {low: 0.0, high: 1.0, type: float}"),
    ("y: {low: 0.0, high: 1.0}", "y: {choices: []}"),
    ("y: {low: 0.0, high: 1.0}", "y: {choices: [1, 1]}"),
    ("y: {low: 0.0, high: 1.0}", "y: {choices: 4}"),
    ("y: {low: 0.0, high: 1.0}", "y: {low: 0, high: 3.5, integer: true}"),
    ("y: {low: 0.0, high: 1.0}", "y: {low: 0.0, high: 1.0, when: {q: 1}}"),
    ("y: {low: 0.0, high: 1.0}", "y: 3"),
    ("bbkb}", "bkbb}"),
    ("bbkb}", "bbkb, coverge: 0.1}"),
    ("bbkb}", "bbkb, coverage: 2}"),
    ("bbkb}", "bbkb, mode: sync}"),
    ("bbkb}", "bbkb, regularization: -1}"),
    ("bbkb}", "bbkb, kernel: {name: mattern}}"),
    ("strategy: {name: bbkb}", "strategy: 5"),
    ("evaluations: 2", "evaluations: 0"),
    ("evaluations: 2", 'evaluations: "2"'),
    ("evaluations: 2", "hours: 1"),
    ("evaluations: 2", "evaluations: 2, hours: -1"),
    ("evaluations: 2", "evaluations: 2, stop_when: {no_gain_of: 0.1}"),
    ("evaluations: 2", "evaluations: 2, hour: 1"),
    ("count: 2", "count: 0"),
    ("count: 2", "cout: 2"),
    ("count: 2", "count: 2, timeout_seconds: 10m"),
    ("count: 2", "count: 2, retries: -1"),
    ("count: 2", "count: 2, memory_gb: 0"),
    ("simulated", "dask"),
    ("", "early_stopping: {rule: medain}\n"),
    ("", "early_stopping: {rule: asha, last_step: 3}\n"),
    ("", "early_stopping: {rule: asha, reduction: 1}\n"),
    ("", "constraints: [{metric: memory}]\n"),
    ("", "constraints: [{metric: memory, at_most: 1, at_least: 2}]\n"),
    ("", "objectives: [{metric: a, direction: maximize}, {metric: a, direction: minimize}]\n"),
    ("", "enqueue: [{x: 3.0, y: 0.5}]\n"),
    ("", "enqueue: [{x: 0.5, z: 0.5}]\n"),
    ("", "forbid: [{q: 1}]\n"),
    ("", "known_results: [{table: missing.csv}]\n"),
    ("", "known_results: [{results: [{parameters: {x: 0.1, y: 0.1}}]}]\n"),
    ("", "candidates: {size: 0}\n"),
    ("", "candidates: {table: missing.csv}\n"),
    ("", "store: mysql://x/y\n"),
    ("", "data: {download: loud}\n"),
    ("", "worker: {count: 2}\n"),
    ("", "? [a]\n: 1\n"),
    ("", "log: {level: info\n"),
]
_PLACE = re.compile(r"^(?:bbkb: |Error: )?(?:\S*?([\w.-]+\.yaml)(?::(\d+))?: )?(.*)$")


def run_mistake(old: str, new: str) -> list[dict[str, Any]]:
    """Return the mistakes that `bbkb validate` prints for a file: line, key, text, and code if there
    is one."""
    from bbkb import main

    text = _GOOD.replace(old, new, 1) if old else _GOOD + new
    assert text != _GOOD, old
    Path("mistake.yaml").write_text(text)
    printed, sys.argv = io.StringIO(), ["bbkb", "validate", "mistake.yaml"]
    code: object = 0
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    found = []
    for line in printed.getvalue().replace(os.getcwd(), ".").splitlines():
        _, number, message = _PLACE.match(line).groups()  # type: ignore[union-attr]
        key = re.match(r"(?!not |a )[\w.]+(?=[: ])", message)  # a mistake in YAML itself has no key
        found.append({"line": int(number or 0), "key": key[0] if key and number else "", "text": message})
    return [{"exit": code}, *found]


def _plain(value: Any) -> Any:
    """Return a value that JSON keeps: floats with 9 digits."""
    if isinstance(value, Mapping):
        return {str(key): _plain(value[key]) for key in sorted(value)}
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int | bool | None) else str(value)


def measure(parts: Iterable[str], case: str = "") -> dict[str, dict[str, Any]]:
    """Return the record of these parts, in a folder of its own. An error is recorded as its type."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("frozen_objectives.py").write_text(OBJECTIVES)
        rows = "".join(f"{x / 9},{y / 9}\n" for x in range(10) for y in range(10))
        Path("table.csv").write_text(f"x,y\n{rows}")
        sys.path.insert(0, folder)
        campaigns = {name: functools.partial(run_campaign, text) for name, text in cases().items()}
        mistakes = {f"{old!r} → {new!r}": functools.partial(run_mistake, old, new) for old, new in MISTAKES}
        works: dict[str, Mapping[str, Callable[[], Any]]] = {"picks": {**LOOPS, **campaigns}, "mistakes": mistakes}
        for part in parts:
            for name, work in works[part].items():
                if case in name:
                    found.setdefault(part, {})[name] = json.loads(json.dumps(_result(work)))
    return found


def _result(work: Callable[[], Any]) -> Any:
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return work()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    """Yield whether a difference counts, and its text."""
    for part, name in ((each, case) for each, found in after.items() for case in found):
        old, new = before.get(part, {}).get(name), after[part][name]
        if old == new:
            continue
        if part == "mistakes" and isinstance(old, list) and isinstance(new, list):
            counts = [[{k: v for k, v in each.items() if k != "text"} for each in side] for side in (old, new)]
            yield counts[0] != counts[1], f"mistake {name}:\n    {_texts(old)}\n    {_texts(new)}"
        elif isinstance(old, list) and isinstance(new, list):
            first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
            yield (
                True,
                f"{name}: differs from number {first} on:\n    {old[first : first + 1]}\n    {new[first : first + 1]}",
            )
        else:
            yield True, f"{part} {name}:\n    {str(old)[:300]}\n    {str(new)[:300]}"


def _texts(found: list[dict[str, Any]]) -> str:
    parts = [f"{each['line']} [{each['key']}] {each['text']}" for each in found if "text" in each]
    return " | ".join([*parts, *(f"exit {each['exit']}" for each in found if "exit" in each)])


def main() -> None:
    """Record, or compare with a record."""
    parser = argparse.ArgumentParser(description="Record or compare picks and places of mistakes.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--record", type=Path)
    what.add_argument("--compare", type=Path)
    parser.add_argument("--only", choices=["picks", "mistakes"])
    parser.add_argument("--case", default="", help="only the cases whose name contains this text")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable()
    parts = [arguments.only] if arguments.only else ["picks", "mistakes"]
    after = measure(parts, arguments.case)
    total = f"{sum(map(len, after.values()))} cases of {sys.modules['bbkb'].__file__}"
    if arguments.record:
        arguments.record.write_text(json.dumps(after, indent=0, ensure_ascii=False))
        print(f"{total} recorded")
        return
    found = list(differences(json.loads(arguments.compare.read_text()), after))
    for counts, text in found:
        print(text if counts else f"(does not count) {text}")
    print(f"{total}, {sum(counts for counts, _ in found)} differ")
    sys.exit(any(counts for counts, _ in found))


if __name__ == "__main__":
    main()
