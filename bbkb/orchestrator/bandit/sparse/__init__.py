"""The sparse posterior of BBKB and BKB: dictionary, blocks of arms, batches, lazy argmaxes.

Exact posteriors are in `exact`; initial pulls and dictionaries are in `start`.
"""
