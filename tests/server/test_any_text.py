"""Requests with half a surrogate pair, which JSON can write and UTF-8 can't: refused like any other wrong text."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient

from omnigraph.errors import BadRequest
from omnigraph_server.settings import Settings
from tests.server.conftest import ADD, COUNT, bearer

HALF = "\ud800"
NAMED = "query parts_of($name: String) { match { $i: Item { name: $name } } return { $i.name } }"

CASES: dict[str, tuple[str, dict[str, object], int]] = {
    "query": ("/query", {"query": f"{COUNT} // {HALF}"}, 400),
    "branch": ("/query", {"query": COUNT, "branch": HALF}, 404),
    "name": ("/query", {"query": COUNT, "name": HALF}, 404),
    "snapshot": ("/query", {"query": COUNT, "snapshot": HALF}, 404),
    "parameter": ("/query", {"query": NAMED, "params": {"name": HALF}}, 400),
    "unknown parameter": ("/query", {"query": COUNT, "params": {HALF: 1}}, 400),
    "unknown field": ("/query", {"query": COUNT, HALF: 1}, 400),
    "mutate": ("/mutate", {"query": ADD, "params": {"name": HALF}}, 400),
    "branch of a mutation": ("/mutate", {"query": ADD, "params": {"name": "x"}, "branch": HALF}, 404),
    "new branch": ("/branches", {"name": HALF}, 400),
    "from": ("/branches", {"name": "new", "from": HALF}, 404),
    "from a snapshot": ("/branches", {"name": "new", "snapshot": HALF}, 404),
    "stored query": ("/queries/items", {"branch": HALF}, 404),
    "parameter of a stored query": ("/queries/items", {"params": {HALF: 1}}, 400),
}


@pytest.mark.parametrize("case", CASES)
def test_half_a_surrogate_pair_is_refused_like_any_wrong_text(client: TestClient, case: str) -> None:
    path, body, status = CASES[case]
    headers = bearer("writer") | {"Content-Type": "application/json"}
    if path.startswith("/queries"):
        headers |= bearer("caller")
    answer = client.post(path, content=json.dumps(body).encode(), headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["code"] == ("not_found" if status == 404 else "bad_request")
    answer.content.decode()


def test_a_length_of_thousands_of_digits_is_too_large(client: TestClient) -> None:
    headers = bearer("reader") | {"Content-Length": "9" * 5_000}
    assert client.post("/query", content=b"{}", headers=headers).status_code == 413


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "many", "9" * 5_000])
def test_a_limit_is_a_whole_number(value: str) -> None:
    with pytest.raises(BadRequest, match="OMNIGRAPH_SERVER_THREADS"):
        Settings.from_env({"OMNIGRAPH_SERVER_THREADS": value})
