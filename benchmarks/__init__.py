"""Measurements of this project: the papers' experiments, comparisons and speed. They are not
installed."""
