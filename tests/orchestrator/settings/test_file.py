"""Tests of orchestrator/settings/file.py: accepted files, line numbers and rejected files."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator import yaml_file
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.yaml_file import Document, check_texts, read, with_overrides, write


def _file(folder: Path, text: str | bytes) -> Path:
    path = folder / "x.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def _scalar(folder: Path, text: str) -> Any:
    return read(_file(folder, f"key: {text}\n")).tree["key"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E6", 1e6),
        ("1.0e-4", 1e-4),
        (".5", 0.5),
        ("-3", -3),
        ("2.", 2.0),
        (".inf", float("inf")),
        ("true", True),
        ("null", None),
        ("", None),
    ],
)
def test_numbers_and_words_are_read_as_a_person_means_them(tmp_path: Path, text: str, value: object) -> None:
    got = _scalar(tmp_path, text)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize("text", ["on", "no", "12:30", "2024-01-01", "010", "0x10", "1_000", "e5", "1e", "'1e-4'"])
def test_text_that_other_yaml_readers_convert_stays_text(tmp_path: Path, text: str) -> None:
    assert _scalar(tmp_path, text) == text.strip("'")


def test_keys_and_entries_have_line_numbers(tmp_path: Path) -> None:
    path = _file(tmp_path, "a:\n  b: 1\n  c:\n    - 2\n    - 3\n# comment\nd: {e: 4,\n    f: 5}\n")
    places = read(path).places
    lines = {".".join(map(str, keys)): int(place.rpartition(":")[2]) for keys, place in places.items()}
    assert lines == {"a": 1, "a.b": 2, "a.c": 3, "a.c.0": 4, "a.c.1": 5, "d": 7, "d.e": 7, "d.f": 8}


def test_unwritten_key_has_the_line_of_its_nearest_parent(tmp_path: Path) -> None:
    path = _file(tmp_path, "a: 1\nb:\n  c: 2\n")
    assert read(path).place(("b", "missing", "deeper")) == f"{path}:2"
    assert read(path).place(("missing",)) == str(path)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb:\n\tc: 2\n", 3, "a tab cannot be used"),
        ("a: 1\nb: [1, 2\n", 3, "not valid YAML"),
        ("a: &a {x: 0}\nb:\n  <<: *a\n", 3, "the merge key << is not part of YAML 1.2; write out its keys"),
        ("a: 1\nb: *nowhere\n", 2, "undefined alias"),
        ("a: 1\n? [x]\n: 2\n", 2, "a key must be a single word"),
        ("a: 1\nb: !!python/object/apply:os.getcwd []\n", 2, "is not allowed"),
        ("a: 1\nb: !!int many\n", 2, "'many' is not a valid int"),
        ("a: 1\nb: !!timestamp 2024-01-01\n", 2, "is not allowed"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML"),
        ("a: 1\nb: \x00\n", 2, "U+0000 is not allowed"),
        ("a: &loop [*loop]\n", 1, "contain themselves"),
        ("a: " + "[" * 5000 + "\n", 1, "nested at most about 300 levels"),
        ("a: " + "9" * 5000 + "\n", 1, "is not a valid int"),
        (b"a: 1\nb: caf\xe9\n", 2, "must be UTF-8 text, got byte 0xe9"),
    ],
)
def test_unreadable_file_is_rejected_with_the_line(tmp_path: Path, text: str | bytes, line: int, words: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}:{line}: ")
    assert words in str(refused.value)


@pytest.mark.parametrize(("text", "key"), [('b: "x\\0y"', "b"), ('b: [1, "\\ud800"]', "b.1"), ('"\\0": 2', r"\x00")])
def test_text_that_no_database_can_hold_is_rejected_with_line_and_key(tmp_path: Path, text: str, key: str) -> None:
    path = _file(tmp_path, f"a: 1\n{text}\n")
    with pytest.raises(ConfigError, match=re.escape(f"{path}:2: {key} must hold neither NUL nor")):
        check_texts(read(path))


def test_duplicate_key_is_rejected_with_both_lines(tmp_path: Path) -> None:
    path = _file(tmp_path, "a:\n  b: 1\n  c: 2\n  b: 3\n")
    with pytest.raises(ConfigError) as refused:
        read(path)
    assert str(refused.value) == f"{path}:4: a.b is given twice, first at {path}:2; keep one of the two"


def test_anchors_cannot_expand_a_file_without_limit(tmp_path: Path) -> None:
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 10)]
    with pytest.raises(ConfigError, match=f"at most {yaml_file.MAX_VALUES} values"):
        read(_file(tmp_path, "\n".join(["l0: &l0 [lol]", *levels])))


@pytest.mark.parametrize(("text", "got"), [("", "nothing"), ("# only\n", "nothing"), ("- 1\n", "list"), ("x", "text")])
def test_file_without_a_mapping_is_rejected(tmp_path: Path, text: str, got: str) -> None:
    with pytest.raises(ConfigError, match=f"must be a mapping .*got .*{got}"):
        read(_file(tmp_path, text))


def test_missing_file_a_folder_and_a_device_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read(tmp_path / "none.yaml")
    for path in (Path("/dev/zero"), tmp_path):
        with pytest.raises(ConfigError, match="must be a regular file, got a folder or a device"):
            read(path)


def test_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    path = _file(tmp_path, b"\xef\xbb\xbfa: 1\r\nb: two\r\n")
    document = read(path)
    assert document.tree == {"a": 1, "b": "two"}
    assert document.place(("b",)) == f"{path}:2"


def test_override_replaces_or_adds_a_key_and_has_a_position() -> None:
    tree = {"a": {"b": 1, "c": {"d": 2}}, "e": None}
    document = Document(tree, {("a",): "f:1", ("a", "b"): "f:2", ("a", "c"): "f:3", ("a", "c", "d"): "f:4"}, "f")
    changed = with_overrides(document, ["a.c={x: 1e-3}", "e.f.g=[1, 2]"])
    assert changed.tree == {"a": {"b": 1, "c": {"x": 1e-3}}, "e": {"f": {"g": [1, 2]}}}
    assert changed.place(("a", "b")) == "f:2"
    assert changed.place(("a", "c", "x")) == changed.place(("a", "c", "d")) == "--set a.c={x: 1e-3}"
    assert changed.place(("e", "f", "g", 1)) == "--set e.f.g=[1, 2]"
    assert tree == {"a": {"b": 1, "c": {"d": 2}}, "e": None}, "the document given must not change"


def test_override_given_last_wins() -> None:
    assert with_overrides(Document({}, {}, "f"), ["a=1", "a=2=3"]).tree == {"a": "2=3"}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("a", "must be written key.key=value"),
        ("=1", "must be written key.key=value"),
        ("a..b=1", "must be written key.key=value"),
        ("a.b=1", "a is a number; only mappings"),
        ("c.d=1", "c is a list; only mappings"),
        ("x=[1", "not valid YAML"),
        ("x={y: 1, y: 2}", "x.y is given twice"),
        ("a" + ".a" * 50 + "=1", "must have at most 20 parts, got 51"),
    ],
)
def test_bad_override_is_rejected_by_its_own_name(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        with_overrides(Document({"a": 1, "c": [1]}, {}, "f"), [override])
    assert str(refused.value).startswith(f"--set {override}: ")
    assert words in str(refused.value).replace("y is given", "x.y is given")


def test_long_override_is_cut_in_messages() -> None:
    with pytest.raises(ConfigError) as refused:
        with_overrides(Document({}, {}, "f"), ["a" + ".a" * 5000 + "=1"])
    assert len(str(refused.value)) < 300


_plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["1e-4", "010"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(tree=st.dictionaries(st.text(), _plain, max_size=4))
def test_written_file_is_read_again_here_and_by_other_readers(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(write(tree), encoding="utf-8", newline="")
    assert read(path).tree == tree
    assert yaml.safe_load(write(tree)) == tree


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("x: [" + "0, " * 200_001 + "0]", "it must hold at most 100000 values", marks=pytest.mark.thorough),
        ("x: " + "0" * 5_000_000, "a campaign file must have at most 4,000,000 bytes, got 5,000,003"),
    ],
)
def test_file_that_is_far_too_large_is_rejected_before_it_is_composed(
    tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "x.yaml").write_text(content)
    with pytest.raises(ConfigError, match=message):
        read(tmp_path / "x.yaml")
