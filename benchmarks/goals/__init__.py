"""Several objectives, and constraints, against other optimisers on recorded tables: `python -m benchmarks.goals`."""
