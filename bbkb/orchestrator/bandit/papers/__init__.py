"""Strategies that reproduce published methods, for comparisons, and their exclusive parts.

The core never imports this package: the table `STRATEGIES` names its classes as strings. A part
that `bbkb` or another core strategy needs belongs in the packages beside this one.
"""
