"""The orchestrator: chooses trials, runs them and records them. Users import the module `bbkb`
instead.

This package contains the packages below and their common modules, such as the tree of `errors`, `wording` and
`yaml_file`. Evaluated functions belong in `objectives`; their execution belongs in `workers`.
"""

__version__ = "0.1.0.dev0"  # defined only here: the package's metadata read it
