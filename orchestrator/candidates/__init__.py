"""The candidates: those that are appended during a search, those in other processes, and those that
match a configuration.

The features of candidates as a strategy reads them are `orchestrator.bandit.arms`; spaces and
tables of configurations are in `objectives`.
"""
