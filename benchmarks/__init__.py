"""Measurements of this project, which are not installed: papers, comparisons, speed, failures."""
