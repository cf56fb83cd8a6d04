"""This project compared with other optimisers in simulated time: the same problems, workers,
durations and seeds."""
