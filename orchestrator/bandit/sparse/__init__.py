"""The sparse posterior of BBKB and BKB: dictionary, blocks of arms, batches, lazy and screened scoring.

Exact posteriors are in `exact`; first pulls and dictionaries are in `start`.
"""
