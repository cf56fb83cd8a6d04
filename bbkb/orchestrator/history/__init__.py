"""The log as tables of trials, attempts and refits, and the export of these tables to files.

No module here makes a decision or writes to the log.
"""
