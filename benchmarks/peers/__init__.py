"""This project compared with other optimizers in simulated time: the same problems, workers,
durations and seeds."""
