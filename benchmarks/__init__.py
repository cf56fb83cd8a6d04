"""Measurements of this project: the papers' experiments, and its speed. Not part of what is installed."""
