"""Searches of trainings whose values are seen while they run, on recorded learning curves."""
