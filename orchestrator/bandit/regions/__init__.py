"""Boxes of the continuous cube and grids in them, for strategies that search regions instead of a
list of arms.

The strategies that use them are in `strategies`; a finite list of candidates needs none of this.
"""
