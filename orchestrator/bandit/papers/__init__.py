"""Strategies that reproduce published methods, for comparisons, and the parts that only they use.

The core never imports this room: the table `STRATEGIES` names its classes as strings. A part that
`bbkb` or another strategy of the core needs belongs in the rooms beside this one.
"""
