"""A grid over a finite candidate set, coarse at first: an order of the arms whose every prefix
covers them well."""

import numpy as np
from scipy.spatial.distance import cdist

from orchestrator.bandit.arrays import Floats, Indices, read_only


def farthest_first(arms: Floats, count: int) -> Indices:
    """Return all of `arms` (A, d) in order, (A,): the first `count` by farthest-first traversal,
    the others by index.

    Gonzalez 1985: arm 0, then again and again the arm farthest from those taken, the lowest index
    among equals. Every prefix, up to `count`, covers the arms with at most twice the radius of the
    best subset of its size. On a regular grid the prefixes run through coarser regular grids. Exact
    duplicates come last. O(A d) an arm taken, no randomness.
    """
    taken, distance = [0], np.full(len(arms), np.inf)
    for _ in range(min(count, len(arms)) - 1):
        distance = np.minimum(distance, cdist(arms[taken[-1:]], arms, "sqeuclidean")[0])
        distance[taken[-1]] = -1.0  # a duplicate of a taken arm is at 0, and not taken itself
        taken.append(int(np.argmax(distance)))
    others = np.setdiff1d(np.arange(len(arms)), taken, assume_unique=True)
    return read_only(np.concatenate((taken, others)), np.intp)
