"""The exact Gaussian-process posterior, updated one pull at a time, and the common code of the
strategies that use it.

Posteriors with inducing points are in `sparse`.
"""
