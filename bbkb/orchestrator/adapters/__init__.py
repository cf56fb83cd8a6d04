"""The bandit core behind other libraries' interfaces (a searcher of Ray Tune, a sampler of Optuna),
and samplers of Optuna as a strategy."""
