"""Problems with several objectives or constraints, minimized.

`re21` to `re37` are engineering designs (`benchmarks.peers.engineering`). `g6-margins`,
`g6-violations` and `g6-total` are one problem of pymoo (Blank and Deb 2020), whose constraints are
given as margins g, as violations max(0, g), or as the sum of all violations. `spring` is not pymoo's.

The regret is 1 − the hypervolume of the feasible results, as a share of that of the best known
ones: the non-dominated results of random and evolutionary search with 30 000 evaluations. The
hypervolume is measured from a point that is a tenth of their range beyond the worst of them, or,
with one objective, from the median of the first hundred feasible results. Needs pymoo.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np

from bbkb.objectives import coding
from bbkb.objectives.parameters import Parameter, Range, Space
from bbkb.orchestrator.errors import UserError
from benchmarks.peers.engineering import DESIGNS
from benchmarks.peers.problems import Evaluation, Point, Several, WholeSpace, numbered, vector
from benchmarks.tables import Floats

CONSTRAINED = (
    *("g4", "g6", "g7", "g8", "g9", "g24", "pressure_vessel", "cantilevered_beam", "spring"),
    *("tnk", "bnh", "srn", "osy", "welded_beam", "ctp1"),
)
FORMS: Mapping[str, Callable[[Floats], Floats]] = {
    "margins": lambda margins: margins,
    "violations": lambda margins: np.maximum(margins, 0.0),
    "total": lambda margins: np.maximum(margins, 0.0).sum(axis=1, keepdims=True),
}
_DRAWS = 20_000  # of random search
_POPULATION, _GENERATIONS = 100, 100  # of the evolutionary search after it
_FIRST = 100  # feasible results
_BEYOND = 0.1

Outputs = tuple[Floats, Floats]  # objectives (n, m) and margins (n, k)


@dataclass(frozen=True, eq=False)
class Design:
    """A function of points (n, d) with several outputs; `smallest`: the known minimum of one objective."""

    parameters: tuple[Parameter, ...]
    of: Callable[[Floats], Outputs]
    smallest: float = np.inf

    def share(self, objectives: Floats) -> float:
        """The hypervolume of feasible `objectives` (n, m), as a share of that of the best known ones."""
        return self._hypervolume(objectives) / self._largest

    def _hypervolume(self, objectives: Floats) -> float:
        from pymoo.indicators.hv import HV

        best, reference = self._bounds
        scaled = (objectives - best) / (reference - best)
        return float(HV(ref_point=np.ones(len(best)))(scaled)) if len(scaled) else 0.0

    @cached_property
    def _largest(self) -> float:
        return 1.0 if len(self._bounds[0]) == 1 else self._hypervolume(self._known)

    @cached_property
    def _bounds(self) -> Outputs:
        """The best value (m,) of each objective, and the point (m,) from which hypervolumes are measured."""
        from pymoo.util.nds.non_dominated_sorting import find_non_dominated

        known = self._known
        if known.shape[1] == 1:
            return np.minimum(known.min(axis=0), self.smallest), np.median(known[:_FIRST], axis=0)
        front = known[find_non_dominated(known)]
        best, worst = front.min(axis=0), front.max(axis=0)
        return best, worst + _BEYOND * (worst - best)

    @cached_property
    def _known(self) -> Floats:
        """The feasible objectives (n, m) of random search, then of evolutionary search."""
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.core.problem import Problem
        from pymoo.optimize import minimize

        found: list[Floats] = []

        def evaluate(cube: Floats) -> Outputs:
            placed = zip(self.parameters, cube.T, strict=True)
            columns = [coding.values(parameter, coding.draw(parameter, column)) for parameter, column in placed]
            objectives, margins = self.of(np.stack(columns, axis=1, dtype=np.float64))
            found.append(objectives[(margins <= 0.0).all(axis=1)])
            return objectives, margins

        class InCube(Problem):  # type: ignore[misc]
            def _evaluate(self, cube: Floats, out: dict[str, Floats], *_: Any, **__: Any) -> None:
                out["F"], out["G"] = evaluate(cube)

        d = len(self.parameters)
        objectives, margins = evaluate(np.random.default_rng(0).random((_DRAWS, d)))
        problem = InCube(n_var=d, n_obj=objectives.shape[1], n_ieq_constr=margins.shape[1], xl=0.0, xu=1.0)
        minimize(problem, NSGA2(pop_size=_POPULATION), ("n_gen", _GENERATIONS), seed=0)
        return np.concatenate(found)


@dataclass(frozen=True)
class Front(WholeSpace):
    """The design `name` with its constraints in one of FORMS; without constraints, `form` is "margins"."""

    name: str
    form: str

    @cached_property
    def space(self) -> Space:
        return numbered(self._design.parameters)

    @cached_property
    def several(self) -> Several:
        smallest = [float(coding.values(parameter, np.zeros(1))[0]) for parameter in self.space.values()]
        objectives, margins = self._outputs(np.array([smallest]))
        return Several(objectives.shape[1], margins.shape[1], self._loss)

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        """Evaluate a point. The rewards are the negated objectives."""
        objectives, margins = self._outputs(vector(point, len(self.space))[None])
        rewards = tuple((-objectives[0]).tolist())
        result = Evaluation(rewards, 0.0, margins=tuple(margins[0].tolist()))
        return replace(result, regret=self._loss([result]))

    def _loss(self, results: Sequence[Evaluation]) -> float:
        feasible = [result.rewards for result in results if result.is_feasible]
        return 1.0 - (self._design.share(-np.array(feasible)) if feasible else 0.0)

    def _outputs(self, points: Floats) -> Outputs:
        objectives, margins = self._design.of(points)
        return objectives, FORMS[self.form](margins) if margins.shape[1] else margins

    @property
    def _design(self) -> Design:
        return design(self.name)


def load_front(name: str) -> Front:
    """The problem of a name such as `re21` or `g6-total`."""
    of, _, form = name.partition("-")
    return Front(of, form or "margins")


@cache
def design(name: str) -> Design:
    """A design of DESIGNS or CONSTRAINED. Raises UserError without pymoo."""
    if find_spec("pymoo") is None:
        raise UserError(f"the problem {name} needs pymoo, which is not installed; pip install pymoo")
    if name == "spring":
        bounds = ((2.0, 15.0), (0.25, 1.3), (0.05, 2.0))
        return Design(tuple(Range(*bound) for bound in bounds), _spring, 0.0126652)
    if name in DESIGNS:
        known = DESIGNS[name]
        return Design(known.parameters, lambda x: (np.stack(known.of(tuple(x.T)), axis=1), np.empty((len(x), 0))))
    from pymoo.problems import get_problem

    problem = get_problem(name)
    smallest = float(problem.pareto_front().min()) if problem.n_obj == 1 else np.inf
    return Design(
        tuple(Range(float(low), float(high)) for low, high in zip(problem.xl, problem.xu, strict=True)),
        lambda x: tuple(problem.evaluate(x, return_values_of=["F", "G"])),
        smallest,
    )


def _spring(x: Floats) -> Outputs:
    """The weight of a tension spring of n coils of diameter `coil`, wire of diameter `wire` (Arora 1989)."""
    n, coil, wire = x.T
    shear = (4 * coil**2 - coil * wire) / (12566 * (coil * wire**3 - wire**4)) + 1 / (5108 * wire**2) - 1
    margins = (1 - coil**3 * n / (71785 * wire**4), shear, 1 - 140.45 * wire / (coil**2 * n), (coil + wire) / 1.5 - 1)
    return ((n + 2) * coil * wire**2)[:, None], np.stack(margins, axis=1)
