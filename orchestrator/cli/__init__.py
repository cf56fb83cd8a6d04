"""The terminal: the commands, the live view, and starting a campaign on Ray.

Everything here prints or parses; what it shows is computed elsewhere.
"""
