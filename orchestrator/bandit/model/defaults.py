"""The default kernels of strategies, over features in [0, 1]. A campaign without options of the
strategy has the calibrated `Model`, whose kernel is the same for all strategies. The other kernels
are for strategies as they were published (`preset: paper`, or λ and no kernel).
"""

from orchestrator.bandit.kernels import RBF, Matern52

CALIBRATED = Matern52()  # the kernel whose lengthscales are fitted
BBKB = Matern52(0.5)  # for rewards with a few hills
SMOOTH = RBF(0.7)  # for the algorithms with which BBKB is compared
BRANIN = RBF(0.2)  # Salgia, Vakili, Zhao 2021, Section 4
COMPRESSED = RBF(0.1)  # with the authors' lengthscale, 1, hardly a pair would be stored: see `Compressed`
