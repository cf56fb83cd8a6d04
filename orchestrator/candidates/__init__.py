"""Which candidates there are: those that are appended during a search, those in other processes,
those that match.

The features of candidates as a strategy reads them are `orchestrator.bandit.arms`; spaces and
tables of configurations are in `objectives`.
"""
