"""`python -m bbkb`: the `bbkb` command."""

from bbkb import _run_process

if __name__ == "__main__":
    _run_process()
