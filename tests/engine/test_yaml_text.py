"""YAML that users write: what comes out is what JSON knows, and anything else is one error that names the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import yaml_text
from omnigraph.yaml_text import NotYaml, read_documents, read_text, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ('{"a": [1, 2.5, true, null]}', {"a": [1, 2.5, True, None]}),
        (
            "when: 2020-01-31\nnever: 2020-13-45\n2020-13-45: x",
            {"when": "2020-01-31", "never": "2020-13-45", "2020-13-45": "x"},
        ),
        ("1: a\nyes: b\n~: c", {"1": "a", "yes": "b", "~": "c"}),
        ("separator: =", {"separator": "="}),
        (r'face: "\ud83d\ude00"', {"face": "\U0001f600"}),
        ("x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3", {"x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 3}}),
        ("a: {<<: [{b: 1}, {b: 2, c: 3}]}", {"a": {"b": 1, "c": 3}}),
    ],
)
def test_values_are_what_json_knows(text: str, value: object) -> None:
    assert read_yaml(text, "f.yaml") == value


DEEP = 3_000
REFUSED = {
    "open": ("a: [", "f.yaml:1:5: not YAML"),
    "integer": ("a: 1\nb: !!int foo", "f.yaml:2:4: not YAML: not a value of !!int"),
    "hexadecimal": ("a: 0x_", "1:4: not YAML: not a value of !!int"),
    "float": ("a: !!float x", "1:4: not YAML: not a value of !!float"),
    "boolean": ("a: !!bool maybe", "1:4: not YAML: not a value of !!bool"),
    "long number": ("a: " + "9" * 5_000, "1:4: not YAML: a number of more than 1,000 characters"),
    "infinite": ("a: .inf", "1:4: not YAML: not a finite number"),
    "bytes": ("a: !!binary QQ==", "1:4: not YAML: the tag !!binary isn't understood"),
    "set": ("a: !!set {x}", "1:4: not YAML: the tag !!set isn't understood"),
    "object": ("a: !!python/object:os.system x", "isn't understood"),
    "key twice": ("a: 1\na: 2", "f.yaml:2:1: not YAML: a is given twice"),
    "key of parts": ("? [a]\n: b", "1:3: not YAML: a key is a text"),
    "merged text": ("<<: 1", "1:5: not YAML: << takes over mappings alone"),
    "lists": ("[" * DEEP, "1:101: not YAML: nested more than 100 deep"),
    "mappings": ("{a: " * DEEP, "not YAML: nested more than 100 deep"),
    "list in itself": ("a: &a [*a]", "1:4: not YAML: contains itself"),
    "mapping in itself": ("&a {b: *a}", "1:1: not YAML: contains itself"),
    "merged with itself": ("&a {<<: *a}", "1:1: not YAML: contains itself"),
    "half a pair": (r'a: "\ud800"', "1:4: not YAML: half of a surrogate pair"),
    "half a pair as a key": (r'"\ud800": a', "1:1: not YAML: half of a surrogate pair"),
    "half a pair in the text": ("a: 1\nb: \ud800", "f.yaml:2: not YAML: character #xd800 isn't allowed"),
    "beyond Unicode": (r'a: "\UFFFFFFFF"', "f.yaml: not YAML"),
    "version": ("%YAML " + "9" * 5_000 + ".1\n---\na: 1", "f.yaml: not YAML"),
    "two documents": ("a: 1\n---\nb: 1", "f.yaml: not YAML: one document is expected"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_everything_else_is_one_error_that_names_the_place(case: str) -> None:
    text, message = REFUSED[case]
    with pytest.raises(NotYaml) as caught:
        read_yaml(text, "f.yaml")
    assert message in caught.value.message
    assert caught.value.message.startswith(f"{caught.value.place}: ")


def test_what_aliases_repeat_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "MAX_VALUES", 1_000)
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{name}: &{name} [{', '.join([f'*{below}'] * 10)}]" for below, name in zip("abc", "bcd", strict=True)]
    with pytest.raises(NotYaml, match="more than 1,000 values, counting what aliases repeat"):
        read_yaml("\n".join(lines), "f.yaml")


def test_documents_come_with_the_lines_of_their_values() -> None:
    first, second, third = read_documents("a: 1\nb:\n  - c: 2\n---\nq: 1\n---\n", "f.yaml")
    assert first.value == {"a": 1, "b": [{"c": 2}]}
    assert first.lines == {(): 1, ("a",): 1, ("b",): 2, ("b", 0): 3, ("b", 0, "c"): 3}
    assert second.lines == {(): 5, ("q",): 5}
    assert third.value is None


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "MAX_CHARACTERS", 1 << 20)
    (tmp_path / "latin").write_bytes(b"a: \xe9")
    (tmp_path / "large").write_bytes(b"#" * ((1 << 20) + 1))
    (tmp_path / "good").write_text("a: é", encoding="utf-8")
    assert read_text(tmp_path / "good") == "a: é"
    reasons = {
        "latin": r"not UTF-8 text \(byte 3\)",
        "large": "more than 1 MiB",
        "none": "No such file",
        "a\0b": "null",
    }
    for name, reason in reasons.items():
        with pytest.raises(NotYaml, match=f"can't be read: .*{reason}|can't be read: {reason}"):
            read_text(tmp_path / name)
    with pytest.raises(NotYaml, match="more than 1 Mi characters"):
        read_yaml("#" * ((1 << 20) + 1), "f.yaml")
