"""The live page: all campaigns of a folder or database in a browser, while they run.

The code here reads logs, answers requests and sends updates. It only reads the store, except to
stop a run. Figures are in `report`, and totals in `history.fold`.
"""
