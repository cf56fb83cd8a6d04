"""Boxes of the continuous cube and grids in them, for strategies that search regions instead of a list of arms."""
