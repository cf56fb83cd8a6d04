"""The modules `bbkb.strategy` and `bbkb.adapters`: the names that users' own strategies and other libraries import.

A module here only names what other rooms define; `bbkb` finds the modules of this folder as its own. Code belongs in
`bandit` and `adapters`.
"""
