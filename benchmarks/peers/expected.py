"""Problems of which a user expects good values: the space of another problem with priors.

`lcbench-3945-expected` has priors near the best of 1024 random configurations,
`lcbench-3945-misled` near the twentieth worst. Each is Gaussian noise of a tenth of its scale away
from it; confidence is medium.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from benchmarks.peers.problems import Evaluation, Group, Point, Problem, WholeSpace
from objectives import coding
from objectives.parameters import Choice, Constant, Parameter, Space
from objectives.sampling import make_candidates

DRAWN, AWAY, NOISE = 1024, 20, 0.1
_STREAM = 7
SUFFIXES = ("expected", "misled")


@dataclass(frozen=True, eq=False)
class Expected(WholeSpace):
    """`inner` with priors."""

    inner: Problem
    seed: int
    is_misled: bool  # whether they are wrong

    @property
    def group(self) -> Group:
        return self.inner.group

    @cached_property
    def space(self) -> Space:
        candidates = make_candidates(self.inner.space, DRAWN, "random", 1000 + self.seed)
        still = np.random.default_rng(0)
        regrets = [self.inner.evaluate(candidates.parameters(arm), still).regret for arm in range(len(candidates))]
        row = int(np.argsort(regrets, kind="stable")[-AWAY if self.is_misled else 0])
        point, rng = candidates.parameters(row), np.random.default_rng([self.seed, _STREAM])
        return {name: _with_prior(kind, point[name], rng) for name, kind in self.inner.space.items()}

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        return self.inner.evaluate(point, rng)


def _with_prior(kind: Parameter, value: object, rng: np.random.Generator) -> Parameter:
    if isinstance(kind, Constant):
        return kind
    code = np.array([coding.code_of(kind, value)])
    if not isinstance(kind, Choice):
        place = coding.places(kind, code) + NOISE * rng.standard_normal(1)
        code = coding.nearest(kind, np.clip(place, 0.0, 1.0))
    return replace(kind, prior=coding.values(kind, code).tolist()[0], confidence="medium")
