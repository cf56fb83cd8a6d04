"""`python -m orchestrator`: the `bbkb` command without installation."""

from bbkb import main

main()
