"""The live page: all campaigns of a folder or database in a browser, while they run.

Code that reads logs, answers requests and sends updates belongs here. It only reads the store,
except to stop a run. Pictures belong to `report`; totals belong to `history.fold`.
"""
