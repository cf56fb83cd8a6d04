"""Each mutant is one change of a function, and can be compiled."""

from pathlib import Path

from benchmarks.mutants import mutants, mutated

SOURCE = """
LIMIT = 3


def clip(x: int = 0, low: float = 1.5) -> float:
    if not x <= low and x is not None:
        raise ValueError(f"{x + 1}")
    print(x)
    return min(x, low) * 2 if x else -low
"""


def test_mutants_change_one_place_of_a_function_and_no_text_of_an_error(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "clip.py").write_text(SOURCE)
    found = mutants(tmp_path, "code")
    sources = {mutated(SOURCE, mutant) for mutant in found}
    assert len(sources) == len(found)
    for source in sources:
        compile(source, "clip.py", "exec")
        assert "LIMIT = 3" in source
        assert "{x + 1}" in source
    changes = [
        "x < low",
        "x is None",
        "low or x",
        "max(x, low)",
        "min(x, low) / 2",
        "x: int=1",
        "low: float=2.5",
        "pass",
    ]
    for change in changes:
        assert sum(change in source and change not in SOURCE for source in sources) == 1, change
