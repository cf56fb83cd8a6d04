"""Any campaign file gives settings or an error with a rule and a place, never a traceback."""

import copy
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.settings import plain
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.settings.loading import load
from tests.fuzz.examples import check_examples, check_reason, few_or_many, values

FILE: dict[str, Any] = {
    "name": "f",
    "seed": 1,
    "objective": {"callable": "math:hypot", "direction": "minimize", "deterministic": True},
    "space": {
        "x": {"low": 1.0e-4, "high": 1.0, "log": True},
        "n": {"low": 1, "high": 9, "integer": True, "when": {"kind": "b"}},
        "kind": {"choices": ["a", "b"]},
        "size": {"ordered": [1, 2, 4]},
        "fixed": {"constant": 3},
    },
    "forbid": [{"kind": "a", "x": {"below": 0.5}}],
    "enqueue": [{"kind": "a", "x": 0.7, "size": 2, "fixed": 3}],
    "candidates": {"size": 64, "sampler": "sobol"},
    "strategy": {"name": "bbkb", "kernel": {"name": "matern", "lengthscale": 0.5}, "regularization": 0.5},
    "budget": {"evaluations": 8, "hours": 1.0, "target": 0.1},
    "workers": {"executor": "simulated", "count": 2, "timeout_seconds": 5, "simulation": {"seconds": 2.0}},
    "early_stopping": {"rule": "asha"},
    "store": "sqlite",
    "runs": "runs",
}


# tags, anchors, merge keys, other line ends, other scripts, depth
FRAGMENTS = [
    "name: f\n", "space: {x: {low: 0, high: 1}}\n", "budget: {evaluations: 3}\n",
    "objective: {callable: 'math:sin'}\n", "a: &a [*a]\n", "b: &b {c: *a}\n", "<<: *b\n", "? [1]\n: 2\n",
    "!!python/name:os.system x: 1\n", "name: !!binary aGk=\n", "seed: !!int x\n", "seed: !!float 1e5\n",
    "seed: 0o17\n", "seed: " + "9" * 5000 + "\n", "x: " + "[" * 300, "x: " + "{a: " * 300, "\ufeff", "\r\n",
    "\r", "\t", "\x00", "\x85", "\u2028", "\ud800", '"\\ud800": 1\n', 'runs: "a\\0b"\n', "---\n", "...\n",
    "%YAML 9.9\n", "store: sqlite://\n", "store: postgresql://[::1\n", "store: ${NO_SUCH}\n", "# ", "- ", ": ",
    "'", '"', "|\n", ">\n", "@", "`",
]  # fmt: skip


def paths(tree: Any, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of a value in the tree, as keys."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [so_far, *(path for key, value in entries for path in paths(value, (*so_far, key)))]


@st.composite
def broken_files(draw: st.DrawFn) -> str:
    """A valid file in which some values were changed, removed or added; or any other text."""
    match draw(st.integers(0, 9)):
        case 0:
            return draw(st.text(max_size=200))
        case 1:  # text that only a person or an attacker writes
            return draw(st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join))
    tree = copy.deepcopy(FILE)
    for path in draw(st.lists(st.sampled_from(paths(FILE)[1:]), min_size=1, max_size=3)):
        place: Any = tree
        for key in path[:-1]:
            place = place[key] if isinstance(place, dict) and key in place else None
        if not isinstance(place, dict):
            continue
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                place[path[-1]] = draw(values)
            case "remove":
                place.pop(path[-1], None)
            case _:
                place[draw(st.text(max_size=12))] = draw(values)
    return yaml.safe_dump(tree, allow_unicode=True)


@few_or_many
def test_campaign_file_is_read_or_rejected_with_a_reason(tmp_path: Path, examples: int) -> None:
    file = tmp_path / "campaign.yaml"

    def check(text: object) -> None:
        file.write_bytes(str(text).encode("utf-8", "surrogatepass"))
        try:
            settings = load(file)
        except UserError as error:
            check_reason(error)
            return
        assert save_and_load(file, dict(plain(settings))) == plain(settings)

    check_examples(examples, broken_files(), check)


def save_and_load(file: Path, resolved: dict[str, Any]) -> dict[str, Any]:
    """Write the settings and read them again, as a resume does."""
    file.write_text(yaml.safe_dump(resolved, allow_unicode=True), encoding="utf-8")
    return dict(plain(load(file)))
