"""Early stopping on recorded learning curves: the time until a good configuration is found, with and without it."""
