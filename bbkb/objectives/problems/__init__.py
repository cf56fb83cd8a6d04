"""The objectives that bbkb provides: test functions, recorded benchmarks, data sets and trainings.

The core never imports this package: the table `OBJECTIVES` names its classes as strings. Code that
a user's objective needs belongs in `objectives` itself.
"""
