"""Objectives that really train a model."""
