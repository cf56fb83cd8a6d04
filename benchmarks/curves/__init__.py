"""Searches of trainings whose values are seen while they run, on recorded and modeled learning
curves."""
