"""The terminal: the commands, the live view, and starting a campaign on Ray.

Code here only prints or parses; other packages compute what it shows.
"""
