"""Objectives that train a model: softmax regression, and a convolutional network.

`objectives.datasets` reads their data sets; functions with a formula are in `objectives.synthetic`.
"""
