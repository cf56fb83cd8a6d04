"""What to do next, as pure functions: events that happened, the state folded from them, and the
command that follows.

No clock, no input or output, no arrays, no randomness; `orchestrator.session` carries out the
commands.
"""
