"""The map of docs/ARCHITECTURE.md and the import rules cover every module; every room documents its
scope."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("orchestrator", "workers", "objectives")
ROOMS = sorted(
    file.parent.relative_to(REPOSITORY) for package in PACKAGES for file in (REPOSITORY / package).rglob("__init__.py")
)
STRATEGIES = Path("orchestrator/bandit/strategies")  # its line speaks of one file a strategy


def map_of_rooms() -> dict[str, str]:
    """The lines of the map: a room and the files that its line names."""
    page = (REPOSITORY / "docs" / "ARCHITECTURE.md").read_text()
    return dict(re.findall(r"^\| `([a-z_/]+)` \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE))


def layers() -> list[set[str]]:
    """For each contract of layers, the full names of the modules that it orders."""
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [
        {
            ".".join(filter(None, (container, name.strip())))
            for container in contract.get("containers", [""])
            for layer in contract["layers"]
            for name in re.split(r"[|:]", layer)
        }
        for contract in contracts
        if contract["type"] == "layers"
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_are_ordered_by_a_contract_of_layers(package: str) -> None:
    ordered = {name for contract in layers() for name in contract if "." in name}
    for file in sorted((REPOSITORY / package).rglob("*.py")):
        module = ".".join(file.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
        if module != package:
            assert any(f"{module}.".startswith(f"{name}.") for name in ordered), f"no layer holds {module}"


def test_map_has_a_line_for_every_room_and_no_other() -> None:
    assert set(map_of_rooms()) == {*map(str, ROOMS), "bbkb"}


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_line_of_a_room_names_its_files(room: Path) -> None:
    named = set(re.findall(r"\w+", map_of_rooms()[str(room)]))
    files = {file.stem for file in (REPOSITORY / room).glob("*.py")} - {"__init__", "__main__"}
    if room == STRATEGIES:
        return
    assert files - named == set(), "files that the map does not name"
    assert named - files == set(), "files of the map that are gone"


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_room_documents_its_scope(room: Path) -> None:
    docstring = ast.get_docstring(ast.parse((REPOSITORY / room / "__init__.py").read_text()))
    assert docstring is not None
    assert len(docstring.split("\n\n")) >= 2, "one line for what belongs here, a paragraph for what does not"


def test_benchmarks_are_imported_by_their_own_tests_only() -> None:
    tests = REPOSITORY / "tests"
    importing = {
        file.relative_to(tests).parts[0]
        for file in tests.rglob("*.py")
        if re.search(r"^\s*(?:from|import) benchmarks\b", file.read_text(), re.MULTILINE)
    }
    assert importing == {"benchmarks"}
