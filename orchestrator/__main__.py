"""`python -m orchestrator`: the `bbkb` command without installation."""

from orchestrator.cli import main

main()
