"""The sparse posterior of BBKB and BKB: dictionary, all arms, batches, lazy argmaxes.

Exact posteriors are in `exact`; initial pulls and dictionaries are in `start`.
"""
