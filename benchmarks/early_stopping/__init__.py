"""Early stopping on recorded learning curves: how soon a good configuration is found, with and without."""
