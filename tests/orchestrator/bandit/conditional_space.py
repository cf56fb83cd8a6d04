"""Candidates of a space with a choice on which other parameters depend."""

from bbkb.objectives.parameters import Choice, Range, Space
from bbkb.objectives.sampling import make_candidates
from bbkb.orchestrator.bandit.arms import Arms

SPACE: Space = {
    "kind": Choice(("a", "b", "c")),
    "x": Range(0.0, 1.0),
    "b_y": Range(0.0, 1.0, when={"kind": "b"}),
    "b_way": Choice(("up", "down"), when={"kind": "b"}),
}
CANDIDATES = make_candidates(SPACE, 300)
ARMS = Arms.of(CANDIDATES.features, CANDIDATES.parameter_of, is_deterministic=True, is_sequence=True)
KINDS, WAYS = CANDIDATES.columns["kind"], CANDIDATES.columns["b_way"]
