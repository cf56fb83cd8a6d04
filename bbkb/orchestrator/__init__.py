"""The orchestrator: chooses trials, runs them and records them. Users import the module `bbkb`
instead.

This package contains the packages below and their common modules: the tree of `errors`, `wording`, the
`version`. Evaluated functions belong in `objectives`; their execution belongs in `workers`.
"""
