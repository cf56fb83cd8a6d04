"""The objectives that bbkb brings: test functions, recorded benchmarks, data sets and trainings.

The core never imports this room: the table `OBJECTIVES` names its classes as strings. Code that a
user's objective needs belongs in the room above.
"""
