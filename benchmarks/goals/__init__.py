"""`python -m benchmarks.goals`: several objectives and constraints, compared with other optimisers
on tables."""
