"""Objectives that train a model: softmax regression, and convolutional networks.

`datasets` reads their data; functions with a formula are in `synthetic`, both in `problems`.
"""
