"""The candidates of a space, looked up by configuration. Their number grows."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from objectives.conditions import Scalar
from objectives.objective import Candidates
from objectives.space import SearchSpace
from orchestrator.candidates.pool import Appended, Pool


class SpaceCandidates:
    """The candidates of `space`, and the arm of each configuration.

    Args:
        pool: the initial candidates, and the space of the model's new candidates.
        space: the space of the caller's configurations.
    """

    def __init__(self, pool: Pool, space: SearchSpace) -> None:
        self.pool = pool
        self._space = space
        self._arms = {row.tobytes(): arm for arm, row in enumerate(pool.candidates.features)}

    def arm(self, configuration: Mapping[str, Scalar]) -> int:
        """Return the arm of a configuration that is a candidate."""
        return self._arms[_key(self._space.candidate(configuration))]

    def missing(self, configurations: Sequence[Mapping[str, Scalar]]) -> Iterator[Appended]:
        """Yield those of `configurations` that are not candidates. The caller appends each before
        the next. Raises ObjectiveError, before it yields any, if a configuration is not in the
        space."""
        for candidate in [self._space.candidate(configuration) for configuration in configurations]:
            if _key(candidate) not in self._arms:
                yield Appended({name: tuple(column.tolist()) for name, column in candidate.columns.items()}, ())

    def append(self, appended: Appended) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Append candidates. Return their features (n, d), and the logarithms of their priors (n,) if
        the space has priors."""
        first = len(self.pool.candidates)
        larger, features, log_prior = Pool(self.pool.candidates, self._space, self.pool.limit).append(appended)
        self.pool = Pool(larger.candidates, self.pool.space, self.pool.limit)
        self._arms.update({row.tobytes(): arm for arm, row in enumerate(features, start=first)})
        return features, log_prior


def _key(candidate: Candidates) -> bytes:
    key: bytes = candidate.features[0].tobytes()
    return key
