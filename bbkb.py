"""The public names of the project: `import bbkb`, the `bbkb` command and `python -m bbkb`.

    from bbkb import Optimizer

Everything that is imported from here is kept stable between minor versions; the packages below are free to change.
"""

from orchestrator.optimizer import Optimizer
from orchestrator.version import __version__

__all__ = ["Optimizer", "__version__", "main"]


def main() -> None:
    """Run the `bbkb` command on this process's arguments, and exit with its exit code."""
    from orchestrator.cli.main import main as command  # here, so that a script's `import bbkb` stays quick

    command()


if __name__ == "__main__":
    main()
