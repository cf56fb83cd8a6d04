"""Trainings in steps: trials that report values before their end.

These are parts of the campaign's state; the value with all facts is `curves.Trainings`.
`campaign.stops` decides with them which trial is stopped.
"""
