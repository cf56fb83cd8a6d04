"""`bbkb.objectives.sobol`: Scrambled Sobol sequences."""

import numpy as np
import pytest
from scipy.stats import qmc

from bbkb.objectives.sobol import Sobol


@pytest.mark.parametrize(("dimensions", "seed"), [(1, 0), (4, 7), (40, 123456789), (300, 1)])
def test_sobol_sequence_is_that_of_scipy(dimensions: int, seed: int) -> None:
    ours = Sobol(dimensions, seed)
    reference = qmc.Sobol(dimensions, scramble=True, seed=seed)
    for count in (16, 16, 64, 1):
        np.testing.assert_array_equal(ours.random(count), reference.random(count))


def test_sobol_sequence_of_too_many_dimensions_is_rejected() -> None:
    with pytest.raises(ValueError, match="at most 21201 dimensions, got 21202"):
        Sobol(21202, 0)
