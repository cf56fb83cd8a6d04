from pathlib import Path

import pytest

from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.settings.loading import load
from tests.orchestrator.settings.small import ErrorLines


@pytest.fixture
def error_lines(tmp_path: Path) -> ErrorLines:
    """Return the lines of the error for a file (and overrides), without the folder's name."""

    def lines(text: str, *overrides: str) -> list[str]:
        (tmp_path / "x.yaml").write_text(text)
        with pytest.raises(ConfigError) as error:
            load(tmp_path / "x.yaml", overrides)
        return str(error.value).replace(f"{tmp_path}/", "").splitlines()

    return lines
