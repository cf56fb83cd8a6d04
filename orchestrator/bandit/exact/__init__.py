"""The exact Gaussian-process posterior, one pull at a time, and the strategies' parts that need it.

Anything with inducing points is in `sparse`.
"""
