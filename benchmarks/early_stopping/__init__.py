"""The time until a good configuration is found on recorded learning curves, with and without early
stopping."""
