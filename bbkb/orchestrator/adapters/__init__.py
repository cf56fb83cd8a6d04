"""The bandit core behind other libraries' interfaces: a searcher of Ray Tune, a sampler of Optuna.

Code that such a library calls is here. Another library's sampler as a strategy of this project is
in `bbkb.orchestrator.interop`.
"""
