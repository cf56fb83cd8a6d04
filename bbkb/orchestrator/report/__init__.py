"""What people see of a campaign: the terminal, the page of a run (its report, and live), and pictures.

No module here makes a decision or writes to the log.
"""
