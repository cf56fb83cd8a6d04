"""The candidates: those appended during a search, those in other processes, and those that match a
configuration.

`bbkb.orchestrator.bandit.arms` has the features of candidates for strategies; spaces and tables of
configurations are in `objectives`.
"""
