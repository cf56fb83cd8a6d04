"""Objectives that train a model: softmax regression, and a convolutional network.

Where their data sets come from is in `objectives.datasets`; functions with a formula are in `objectives.synthetic`.
"""
