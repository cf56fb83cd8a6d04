"""The `bbkb` command for the tests of the terminal."""

import contextlib
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bbkb.orchestrator.cli.main import main


@pytest.fixture(scope="session")
def bbkb() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command in a folder, with `text` as its standard input, in this process. A separate
    process takes seconds for its imports, and is needed only if it is killed or starts Ray."""
    return _run


@pytest.fixture
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's folder is the present one: runs are written there by default."""
    monkeypatch.chdir(tmp_path)


def _run(folder: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    stdout, complained = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(stream, "utf-8", write_through=True) for stream in (stdout, complained))
    with _process_in(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        sys.argv, sys.stdin = ["bbkb", *arguments], io.StringIO(text)
        with pytest.raises(SystemExit) as ending:
            main()
    code = ending.value.code
    texts = stdout.getvalue().decode(), complained.getvalue().decode()
    return subprocess.CompletedProcess(arguments, code if isinstance(code, int) else 0, *texts)


@contextlib.contextmanager
def _process_in(folder: Path) -> Iterator[None]:
    """Restore the state of the process afterwards: arguments, input, folder, and modules imported
    there."""
    arguments, stdin, path, modules = sys.argv, sys.stdin, list(sys.path), set(sys.modules)
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        sys.argv, sys.stdin, sys.path[:] = arguments, stdin, path
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path(file).is_relative_to(folder):
                del sys.modules[name]
