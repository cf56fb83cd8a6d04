"""This project compared with other optimizers in simulated time."""
