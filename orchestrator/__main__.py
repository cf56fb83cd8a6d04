"""`python -m orchestrator`: the `bbkb` command without installation."""

from orchestrator.cli.main import main

main()
