"""Tests of orchestrator/errors.py: the display of a user's mistake in a notebook."""

import pytest

from bbkb.orchestrator.errors import ConfigError

IPython = pytest.importorskip("IPython")


def test_notebook_shows_the_message_of_a_users_mistake_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    shell = IPython.core.interactiveshell.InteractiveShell()
    shell.user_ns["ConfigError"] = ConfigError
    shell.run_cell("raise ConfigError('x.yaml:3: seed must be >= 0, got -1')")
    shown = capsys.readouterr()
    assert (shown.out + shown.err).strip() == "ConfigError: x.yaml:3: seed must be >= 0, got -1"
