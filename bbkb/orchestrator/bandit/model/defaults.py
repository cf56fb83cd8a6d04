"""The default kernels of strategies, over features in [0, 1]. A campaign without options of the
strategy uses the calibrated `Model`, whose kernel is the same for all strategies. The other kernels
are for strategies as published (`preset: paper`, or λ without a kernel).
"""

from bbkb.orchestrator.bandit.kernels import RBF, Matern52

CALIBRATED = Matern52()  # the kernel whose lengthscales are fitted
SMOOTH = RBF(0.7)  # for BBKB and the algorithms that it is compared with
BRANIN = RBF(0.2)  # Salgia, Vakili, Zhao 2021, Section 4
# with the authors' lengthscale of 1, few pairs would be stored: see `Compressed`
COMPRESSED = RBF(0.1)
