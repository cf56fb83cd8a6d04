"""The papers' experiments, one command each: `python -m benchmarks.papers abalone --seeds 10`."""
