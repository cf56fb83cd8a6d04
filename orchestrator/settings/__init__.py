"""The campaign file: reading YAML with positions, the typed settings, their checks and their JSON Schema.

What a setting does belongs to the room that acts on it; nothing here runs a campaign.
"""
