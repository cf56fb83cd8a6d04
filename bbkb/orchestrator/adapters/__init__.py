"""The bandit core behind other libraries' interfaces (a searcher of Ray Tune, a sampler of Optuna),
samplers of Optuna as a strategy, and exports to Optuna, TensorBoard and MLflow."""
