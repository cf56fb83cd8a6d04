"""The log as tables of trials, attempts and refits, and their export to files.

No module here makes a decision or writes to the log.
"""
