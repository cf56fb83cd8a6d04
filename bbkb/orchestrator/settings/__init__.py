"""The campaign file: reading YAML with positions, the typed settings, their checks and their JSON
Schema.

The effect of a setting belongs to the package that implements it; no code here runs a campaign.
"""
