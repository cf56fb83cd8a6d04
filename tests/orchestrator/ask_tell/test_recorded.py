"""Suggestions, saved files and pickles of version 0.2.0: the same calls give the same suggestions.

Searches of rows were recorded again when the calibrated strategies stopped repeating exact values.
"""

import gzip
import json
import pickle
from typing import Any

import pytest

from bbkb import CandidateOptimizer, Optimizer
from tests.orchestrator.ask_tell.courses import COURSES, RECORDED, SAVED

SUGGESTIONS = json.loads((RECORDED / "suggestions.json").read_text())


class Rows(CandidateOptimizer):
    mark_pending = CandidateOptimizer.expect

    def fail(self, arms: Any) -> None:
        self.tell(arms, [None] * len(arms))


class Configurations(Optimizer):
    mark_pending, last_step = Optimizer.expect, Optimizer.reached

    def fail(self, configuration: Any) -> None:
        self.tell(configuration, None)


def build(kind: str, *arguments: Any, **options: Any) -> Any:
    return (Rows if kind == "rows" else Configurations)(*arguments, **options)


def facts(optimizer: Any) -> Any:
    """What was recorded of an optimizer after its course, as JSON has it."""
    if isinstance(optimizer, CandidateOptimizer):
        trials = [[trial["candidate"], trial["reward"]] for trial in optimizer.trials]
        pending: Any = optimizer.pending.tolist()
        return {"trials": trials, "pending": pending, "best": list(optimizer.best())}
    trials = [[trial["configuration"], trial["value"]] for trial in optimizer.trials]
    front = None if optimizer.metrics == ("value",) else [list(member) for member in optimizer.front()]
    plain = {"trials": trials, "pending": optimizer.pending, "paused": optimizer.paused}
    return {**plain, "best": list(optimizer.best()), "front": front}


@pytest.mark.parametrize("name", list(COURSES))
def test_suggestions_are_those_of_version_0_2_0(name: str) -> None:
    make, call, options, rounds = COURSES[name]
    recorded, optimizer = SUGGESTIONS[name], make(build)
    assert call(optimizer, rounds, **options) == recorded["before"]
    assert call(optimizer, rounds, **options) == recorded["after"]
    assert facts(optimizer) == {key: recorded[key] for key in recorded if key not in ("before", "after")}


@pytest.mark.parametrize("name", SAVED)
def test_saved_file_of_version_0_2_0_continues_as_that_version_did(name: str) -> None:
    _, call, options, rounds = COURSES[name]
    loader = Rows if name.startswith("rows") else Configurations
    optimizer: Any = loader.load(RECORDED / f"{name.replace(' ', '_')}.json")
    recorded = SUGGESTIONS.get(f"{name}, saved by version 0.2.0", SUGGESTIONS[name])
    assert call(optimizer, rounds, **options) == recorded["after"]
    assert facts(optimizer) == {key: recorded[key] for key in recorded if key not in ("before", "after")}


@pytest.mark.parametrize("name", ["rows existing", "trained"])
def test_pickle_of_version_0_2_0_continues_as_that_version_did(name: str) -> None:
    _, call, options, rounds = COURSES[name]
    packed = (RECORDED / f"{name.replace(' ', '_')}.pickle.gz").read_bytes()
    optimizer = pickle.loads(gzip.decompress(packed))
    optimizer.__class__ = Rows if isinstance(optimizer, CandidateOptimizer) else Configurations
    recorded = SUGGESTIONS.get(f"{name}, saved by version 0.2.0", SUGGESTIONS[name])
    assert call(optimizer, rounds, **options) == recorded["after"]
