"""The product against other optimisers: the same problems, workers, durations and seeds for all, in simulated time."""
