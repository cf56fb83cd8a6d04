"""The first pulls and the first dictionary: warm starts and BLESS.

What happens after the first rewards belongs to the strategies.
"""
