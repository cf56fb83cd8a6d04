"""A campaign as pure functions: recorded events, the state folded from them, the next command.

No clock, no input or output, no arrays, no randomness; `bbkb.orchestrator.session` carries out the
commands.
"""
