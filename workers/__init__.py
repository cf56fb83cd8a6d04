"""How one evaluation is run, here or on a cluster. Imports `objectives` only."""
