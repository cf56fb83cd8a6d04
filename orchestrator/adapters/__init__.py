"""The bandit core behind other libraries' interfaces: a searcher of Ray Tune, a sampler of Optuna.

What such a library calls is here; the other direction, another library's sampler as a strategy of this project, is in
`orchestrator.bandit.strategies`.
"""
