"""The log as tables: trials, attempts, refits, and their export to files.

Nothing here decides or writes to the log.
"""
