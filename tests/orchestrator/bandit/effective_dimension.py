"""The effective dimension of BBKB's theorems, from dense matrices."""

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.pulls import Pulls


def effective_dimension(kernel: Kernel, arms: Floats, pulls: Pulls, regularization: float) -> float:
    """Return d_eff = Tr K (K + λI)⁻¹ over the multiset of pulled arms (BBKB §2)."""
    roots = np.sqrt(pulls.counts[pulls.arms])
    gram = kernel.cross(arms[pulls.arms], arms[pulls.arms]) * np.multiply.outer(roots, roots)
    spectrum = np.maximum(np.linalg.eigvalsh(gram), 0.0)
    return float((spectrum / (spectrum + regularization)).sum())
