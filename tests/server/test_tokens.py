"""Bearer tokens: what a file may hold, what is refused, and that changes are seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph.errors import BadRequest, Forbidden
from omnigraph_server.auth import Principal, TokenStore, parse_tokens


def test_forms_of_an_entry() -> None:
    parsed = parse_tokens("ada: one\nci: {token: two, allow: [read, change]}\n", "tokens.yaml")
    assert parsed == {"ada": ("one", frozenset({"read"})), "ci": ("two", frozenset({"read", "change"}))}
    assert parse_tokens('{"ada": "one"}', "tokens.json") == {"ada": ("one", frozenset({"read"}))}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- secret-1", "expected entries"),
        ("ada: [secret-1", "tokens.yaml:1:"),
        ("ada: ''", "ada: the token must be"),
        ("ada: 12345", "quote it"),
        ("ada: {token: secret-1, alow: [read]}", "alow"),
        ("ada: {token: secret-1, allow: [reed]}", "allow must be"),
        ("ada: {token: secret-1, allow: read}", "allow must be"),
        ("ada: *secret-1", "tokens.yaml:1:6"),
        ("ada: !!int secret-1", "tokens.yaml:1:6"),
        ("ada: one\nada: secret-1", "tokens.yaml:2:1"),
        ("secret-1: &a [*a]", "tokens.yaml:1:11"),
        ("[" * 3_000, "tokens.yaml:1:101"),
        (r'ada: "secret-1\ud800"', "tokens.yaml:1:6"),
    ],
)
def test_refusals_name_the_place_and_never_the_token(text: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message) as caught:
        parse_tokens(text, "tokens.yaml")
    assert caught.value.message.startswith("tokens.yaml")
    assert "secret-1" not in caught.value.message


def test_lookup_and_grants(tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text("ada: one\nci: {token: two, allow: [read, change]}\n")
    store = TokenStore(file)
    assert store.principal("one") == Principal("ada", frozenset({"read"}))
    assert store.principal("two").may("change")
    assert store.principal("three") is None
    assert store.principal("") is None
    with pytest.raises(Forbidden, match="ada may not change"):
        store.principal("one").require("change")


def test_nothing_of_a_token_stays_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text("ada: a-very-secret-token\n")
    assert "a-very-secret-token" not in repr(vars(TokenStore(file)))


def test_a_change_is_seen_and_a_broken_file_keeps_the_old(tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text("ada: one\n")
    store = TokenStore(file)
    file.write_text("ada: other\n")
    os.utime(file, ns=(1, 1))
    assert store.principal("one") is None
    assert store.principal("other") is not None
    for i, broken in enumerate(("ada: [", "ada: !!int x", "ada: !!bool x", "[" * 3_000, r'ada: "\ud800"')):
        file.write_text(broken)
        os.utime(file, ns=(i + 2, i + 2))
        assert store.principal("other") is not None
    file.unlink()
    assert store.principal("other") is not None


def test_a_folder_as_a_mounted_secret(tmp_path: Path) -> None:
    first = tmp_path / "..2026_01"
    first.mkdir()
    (first / "ada").write_text("one\n")
    (first / "more.yaml").write_text("ci: {token: two, allow: [change]}\n")
    (tmp_path / "..data").symlink_to(first.name)
    for name in ("ada", "more.yaml"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    store = TokenStore(tmp_path)
    assert store.principal("one").actor == "ada"
    assert store.principal("two").actor == "ci"
    assert len(store) == 2
    # The way a kubelet swaps a Secret's content.
    second = tmp_path / "..2026_02"
    second.mkdir()
    (second / "ada").write_text("three\n")
    (second / "more.yaml").write_text("ci: four\n")
    (tmp_path / "..data_tmp").symlink_to(second.name)
    (tmp_path / "..data_tmp").replace(tmp_path / "..data")
    assert store.principal("one") is None
    assert store.principal("three").actor == "ada"


def test_an_actor_that_no_commit_can_keep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "tokens") + b"/\xe9")).write_text("one")
    (tmp_path / "tokens.yaml").write_text('"": one')
    for path, actor in (("tokens", r"'\\udce9'"), ("tokens.yaml", "''")):
        with pytest.raises(BadRequest, match=f"{path}: actor {actor}: ") as caught:
            TokenStore(tmp_path / path)
        assert caught.value.code == "bad_actor"


@pytest.mark.parametrize("content", ["", "{}"])
def test_no_tokens_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(content)
    with pytest.raises(BadRequest):
        TokenStore(file)
    with pytest.raises(BadRequest, match="can't be read"):
        TokenStore(tmp_path / "nowhere.yaml")
