"""The model of the rewards that model-based strategies share: scores of the rewards, and the fitted
kernel, mean and noise.

The posterior that follows from a model is in `sparse` or `exact`; kernels are in `bandit.kernels`.
"""
