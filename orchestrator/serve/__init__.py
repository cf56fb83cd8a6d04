"""The live page: all campaigns of a folder or database in a browser, while they run.

What reads logs, answers requests and sends updates belongs here. It only reads the store, but for a request to stop.
Pictures are the report's; totals are the fold's.
"""
