"""Objectives that train a model: softmax regression, and a convolutional network.

`datasets` reads their data; functions with a formula are in `synthetic`, both in the room above.
"""
