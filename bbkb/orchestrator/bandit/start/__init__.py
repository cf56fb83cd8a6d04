"""The first pulls and the first dictionary: warm starts and BLESS.

Choices after the first rewards belong to the strategies.
"""
