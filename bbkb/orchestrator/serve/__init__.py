"""The live page: all campaigns of a folder or database in a browser, while they run.

This code reads logs, answers requests and sends updates. It only reads the store, except for
stopping a run. Figures are in `report`, and totals in `history.fold`.
"""
