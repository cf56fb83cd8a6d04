"""The orchestrator: chooses trials, runs them and records them. Users import the module `bbkb`
instead.

The packages below belong here, and what all of them share: the tree of `errors`, `wording`, the
`version`. Evaluated functions belong in `objectives`; their execution belongs in `workers`.
"""
