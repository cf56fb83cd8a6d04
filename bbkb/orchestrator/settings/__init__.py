"""The campaign file: its sections become settings and are checked, mistakes have their file and line; its JSON
Schema.

The effect of a setting belongs to the package that implements it; no code here runs a campaign.
"""
