"""The model of the rewards that model-based strategies share: scores of the rewards, kernel, mean and noise, fitted."""
