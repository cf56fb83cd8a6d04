"""Uses an installed wheel as a user does: its files and metadata, the quickstart, and README's two examples.

Called by `.ci/package` in a folder outside the repository, with the repository as its argument.
"""

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

BIN = Path(sys.executable).parent


def run(*command: str) -> str:
    """Run a command in this folder, and return its output. Exits with it if the command fails."""
    print("$", " ".join(command), flush=True)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nexit code {done.returncode}")
    return done.stdout


def check(condition: object, message: str) -> None:
    """Exit with `message` unless the condition holds."""
    if not condition:
        sys.exit(message)


def block(text: str, language: str) -> str:
    """Return the first fenced block of `language` in a Markdown text."""
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found.group(1)


def check_files(repository: Path) -> None:
    """Every file of the package, also those that are no Python modules, is in the wheel."""
    installed = {str(file) for file in distribution("bbkb-orchestrator").files or ()}
    tracked = subprocess.run(
        ["git", "-C", repository, "ls-files", "bbkb"], capture_output=True, text=True, check=True
    ).stdout.split()
    missing = sorted(set(tracked) - installed)
    check(not missing, f"the wheel lacks {', '.join(missing)}")
    strays = [name for name in installed if not name.startswith(("bbkb/", "bbkb_orchestrator-", "../"))]
    check(not strays, f"the wheel has files of other folders: {', '.join(strays[:3])}")


def main() -> None:
    """Check the wheel that is installed in this environment."""
    repository = Path(sys.argv[1])
    os.environ.pop("PYTHONPATH", None)
    check(
        Path.cwd() not in repository.parents and repository not in Path.cwd().parents, "run it outside the repository"
    )
    check_files(repository)
    bbkb = str(BIN / "bbkb")
    version = distribution("bbkb-orchestrator").version
    check(run(bbkb, "--version").split() == ["bbkb", version], f"bbkb --version is not {version}")
    check(
        "the package of the user" in run(sys.executable, "-c", "import objectives; print(objectives.NAME)"),
        "`objectives` is not the user's own package",
    )

    readme = (repository / "README.md").read_text()
    Path("train.py").write_text(block(readme, "python"))
    print(run(sys.executable, "train.py"))
    Path("campaign.yaml").write_text(block(readme, "yaml"))
    run(bbkb, "validate", "campaign.yaml")
    print(run(bbkb, "run", "campaign.yaml", "--set", "budget.evaluations=20", "--set", "workers.count=2"))
    print(run(bbkb, "run", str(repository / "configs" / "quickstart.yaml")))
    check(len(list(Path("runs").iterdir())) >= 2, "the runs are not in the folder runs")


if __name__ == "__main__":
    main()
