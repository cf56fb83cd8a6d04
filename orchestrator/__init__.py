"""Which trial is next, when it runs, and what is remembered of it. Users import the module `bbkb` instead.

Here belong the rooms below and what all of them share: the public `optimizer`, the tree of `errors`, `wording` and the
`version`. What an evaluation is belongs in `objectives`, how it is executed in `workers`.
"""
