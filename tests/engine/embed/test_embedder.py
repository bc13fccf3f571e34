# ruff: noqa: E501  (texts are long lines)
"""Embeddings against a real server that behaves badly in every way it can."""

from __future__ import annotations

import gzip
import json
import logging
import pickle
import sqlite3
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnigraph.embed import Embedder, EmbedSettings, Secret, TextRefused
from omnigraph.embed.cache import FileCache, MemoryCache, content_key
from omnigraph.errors import BadRequest, OmniGraphError, Unavailable
from tests.engine.embed import provider as p


def made(server: p.Provider, **more: str) -> Embedder:
    settings = EmbedSettings.from_env(server.environ(**more))
    assert settings is not None
    return Embedder(settings)


def unit(text: str, dim: int) -> Any:
    vector = np.array(p.vector_of(text, dim))
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def test_vectors_are_of_length_one_and_in_the_order_of_the_texts(server: p.Provider) -> None:
    texts = ["b", "a", "ü 漢", "a", "c" * 5000]
    found = made(server, BATCH="2", MODEL="m").documents(texts, 6)
    assert (found.dtype, found.shape) == (np.float32, (5, 6))
    for row, text in zip(found, texts, strict=True):
        np.testing.assert_allclose(row, unit(text, 6), rtol=1e-6)
    asked = [t for r in server.requests for t in r.texts]
    assert sorted(asked) == sorted(set(texts)), "an equal text is asked for once"
    first = server.requests[0]
    assert (first.path, first.json["model"], first.dim) == ("/v1/embeddings", "m", 6)
    assert first.headers["authorization"] == f"Bearer {p.KEY}"
    assert all(len(r.texts) <= 2 for r in server.requests)


def test_gemini_is_asked_its_own_way(server: p.Provider) -> None:
    embedder = made(server, PROVIDER="gemini")
    stored, asked = embedder.documents(["a", "b"], 3), embedder.query("a", 3)
    np.testing.assert_allclose(stored[0], asked)
    paths = {r.path for r in server.requests}
    assert paths == {"/v1/models/gemini-embedding-001:batchEmbedContents"}
    roles = [r["taskType"] for request in server.requests for r in request.json["requests"]]
    assert roles == ["RETRIEVAL_DOCUMENT"] * 2 + ["RETRIEVAL_QUERY"], "another role is another vector: no cache hit"
    assert server.requests[0].headers["x-goog-api-key"] == p.KEY
    assert "authorization" not in server.requests[0].headers


def test_known_texts_are_not_asked_for_again(server: p.Provider, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    first = made(server, CACHE=cache).documents(["a", "b"], 4)
    assert len(server.requests) == 1
    again = made(server, CACHE=cache)  # as another process would find it
    np.testing.assert_array_equal(again.documents(["b", "a"], 4), first[::-1])
    assert len(server.requests) == 1
    np.testing.assert_array_equal(again.query("a", 4), first[0])
    assert len(server.requests) == 1
    again.documents(["a"], 5)
    made(server, CACHE=cache, MODEL="other").documents(["a"], 4)
    assert len(server.requests) == 3, "another dimension or model is another vector"
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0


RETRIED = [p.status(429), p.status(500), p.status(503, b"busy"), p.hang_up, p.cut_off, p.no_http]


@pytest.mark.parametrize("bad", RETRIED, ids=range(len(RETRIED)))
def test_what_may_pass_is_tried_again(server: p.Provider, bad: p.Behaviour) -> None:
    server.script = [bad, bad, p.good]
    np.testing.assert_allclose(made(server).documents(["a"], 4)[0], unit("a", 4), rtol=1e-6)
    assert len(server.requests) == 3


@pytest.mark.parametrize("bad", RETRIED, ids=range(len(RETRIED)))
def test_the_last_attempt_ends_it(server: p.Provider, bad: p.Behaviour) -> None:
    server.default = bad
    with pytest.raises(Unavailable) as caught:
        made(server, RETRY_ATTEMPTS="3").documents(["a"], 4)
    assert (caught.value.code, caught.value.retryable) == ("embed_unavailable", True)
    assert len(server.requests) == 3


@pytest.mark.parametrize("slow", [p.silent, p.drip_headers, p.drip_body])
def test_a_slow_server_is_given_up_in_time(server: p.Provider, slow: p.Behaviour) -> None:
    server.default = slow
    started = time.monotonic()
    with pytest.raises(Unavailable, match="no whole answer within 100 ms"):
        made(server, TIMEOUT_MS="100", RETRY_ATTEMPTS="2").documents(["a"], 4)
    with pytest.raises(Unavailable, match=r"given up after 0\.2 s"):
        made(server, TIMEOUT_MS="30000", DEADLINE_MS="200").documents(["a"], 4)
    with pytest.raises(Unavailable, match="given up after"):
        made(server).query("a", 4, deadline=time.monotonic() + 0.2)
    assert time.monotonic() - started < 2.5, "each of them takes 3 s to say anything"


def test_retry_after_is_heeded(server: p.Provider) -> None:
    server.script = [p.status(429, Retry_After="0.3"), p.good]
    started = time.monotonic()
    made(server).documents(["a"], 4)
    assert time.monotonic() - started >= 0.3
    for later in ("3600", formatdate(time.time() + 3600, usegmt=True)):
        server.script = [p.status(503, Retry_After=later)]
        with pytest.raises(Unavailable, match="would be past the deadline"):
            made(server).documents(["b"], 4)
    server.script = [p.status(503, Retry_After="soon"), p.good]
    made(server).documents(["b"], 4)


def datum(vector: Any) -> Any:
    return lambda request: {"data": [{"index": i, "embedding": vector} for i in range(len(request.texts))]}


BAD_ANSWERS = {
    "no JSON": (p.raw(b"<html>hello</html>"), "it is no JSON"),
    "empty": (p.raw(b""), "it is no JSON"),
    "another shape": (p.raw(b'{"result": []}'), "no list 'data'"),
    "a list": (p.raw(b"[1, 2]"), "no list 'data'"),
    "deep": (p.raw(b"[" * 200_000), "it is no JSON"),
    "too few": (p.raw(lambda r: {"data": p.answer_of(r, 4)["data"][:1]}), "1 vectors for 2 texts"),
    "too many": (p.raw(lambda r: {"data": p.answer_of(r, 4)["data"] * 2}), "4 vectors for 2 texts"),
    "repeated": (p.raw(lambda r: {"data": [p.answer_of(r, 4)["data"][0]] * 2}), "each once"),
    "wrong place": (p.raw(lambda r: {"data": [{"index": i + 1, "embedding": [1.0] * 4} for i in range(2)]}), "each once"),
    "short": (p.raw(datum([1.0, 2.0, 3.0])), "has 3 numbers, and the property has 4"),
    "long": (p.raw(datum([1.0] * 5)), "has 5 numbers"),
    "zero": (p.raw(datum([0.0, -0.0, 0, 0])), "all zeros"),
    "NaN": (p.raw(datum([1.0, float("nan"), 0, 0])), "NaN or infinity"),
    "infinite": (p.raw(datum([1.0, float("inf"), 0, 0])), "NaN or infinity"),
    "too large": (p.raw(b'{"data":[{"index":0,"embedding":[1e999,1,1,1]},{"index":1,"embedding":[1,1,1,1]}]}'), "infinity"),
    "huge integer": (p.raw(datum([10**400, 1, 1, 1])), "no number"),
    "text": (p.raw(datum(["1", "2", "3", "4"])), "no number"),
    "null": (p.raw(datum([None, 1, 1, 1])), "no number"),
    "boolean": (p.raw(datum([True, 1, 1, 1])), "no number"),
    "nested": (p.raw(datum([[1], [1], [1], [1]])), "no number"),
    "base64": (p.raw(datum("AAAA")), "no list of numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_a_wrong_answer_is_refused_and_nothing_of_it_kept(server: p.Provider, tmp_path: Path, name: str) -> None:
    server.default, says = BAD_ANSWERS[name]
    embedder = made(server, CACHE=str(tmp_path))
    with pytest.raises(Unavailable, match=says) as caught:
        embedder.documents(["a", "b"], 4)
    assert (caught.value.code, caught.value.retryable) == ("embed_bad_answer", False)
    assert len(server.requests) == 1
    server.default = None
    np.testing.assert_allclose(embedder.documents(["a", "b"], 4)[1], unit("b", 4), rtol=1e-6)


def test_numbers_at_the_ends_of_a_double_keep_their_direction(server: p.Provider) -> None:
    server.script = [p.raw(datum([1e300, -1e300])), p.raw(datum([5e-324, 0]))]
    embedder = made(server)
    np.testing.assert_allclose(embedder.documents(["a"], 2)[0], [0.5**0.5, -(0.5**0.5)], rtol=1e-6)
    np.testing.assert_allclose(embedder.documents(["b"], 2)[0], [1, 0])


@pytest.mark.parametrize(("code", "hint"), [(401, "the key is missing"), (403, "may not"), (404, "no such model"), (307, "isn't followed")])  # fmt: skip
def test_a_refusal_is_final_and_never_shows_the_key(server: p.Provider, code: int, hint: str) -> None:
    body = json.dumps({"error": {"message": f"bad key {p.KEY}\x1b[31m" + "x" * 5000}}).encode()
    server.default = p.status(code, body, Location=f"{server.url}/elsewhere")
    with pytest.raises(Unavailable, match=hint) as caught:
        made(server).documents(["a"], 4)
    assert (caught.value.code, caught.value.retryable, len(server.requests)) == ("embed_refused", False, 1)
    assert "bad key ***" in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_the_text_that_is_refused_is_named(server: p.Provider) -> None:
    server.default = p.refusing(lambda text: text == "poison")
    texts = [f"t{i}" for i in range(20)] + ["poison"] + [f"u{i}" for i in range(20)]
    embedder = made(server, BATCH="16")
    with pytest.raises(TextRefused, match=r"a text of 6 characters with status 400.*too long") as caught:
        embedder.documents(texts, 4)
    assert caught.value.index == 20
    embedder.documents(["t0", "t1"], 4)


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_provider_that_refuses_everything_is_the_fault_of_no_text(server: p.Provider, code: int) -> None:
    server.default = p.status(code, b'{"error": {"message": "model x is not loaded"}}')
    embedder = made(server, BATCH="16", CONCURRENCY="2")
    for _ in range(2):  # nothing is learnt from a refusal
        server.requests.clear()
        with pytest.raises(Unavailable, match=r"a harmless text is refused as well.*model x is not loaded") as caught:
            embedder.documents([f"t{i}" for i in range(200)], 4)
        assert (caught.value.code, caught.value.retryable) == ("embed_refused", False)
        assert len(server.requests) <= 2 * 4
    server.default = None
    embedder.documents(["a"], 4)


def test_gemini_says_in_its_own_way_that_the_key_is_wrong(server: p.Provider) -> None:
    reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    error = {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [reason]}
    server.default = p.status(400, json.dumps({"error": error}).encode())
    with pytest.raises(Unavailable, match=r"the key is missing or wrong; API key not valid") as caught:
        made(server, PROVIDER="gemini").documents(["a"], 4)
    assert (caught.value.code, caught.value.retryable, len(server.requests)) == ("embed_refused", False, 1)


@pytest.mark.parametrize("sized", [True, False])
def test_a_first_batch_of_bad_texts_alone_names_the_first(server: p.Provider, sized: bool) -> None:
    """Also where the server is one that takes no dimension: told one, it refuses good texts too."""
    refuses = p.refusing(lambda text: text.startswith("bad"))

    def behave(handler: p.Handler, request: p.Request) -> None:
        (refuses if sized or request.dim is None else p.status(400))(handler, request)

    server.default = behave
    embedder = made(server, BATCH="4")
    with pytest.raises(TextRefused) as caught:
        embedder.documents(["bad 0", "bad 1", "bad 2", "bad 3"], 4)
    assert caught.value.index == 0
    server.requests.clear()
    with pytest.raises(TextRefused):
        embedder.documents(["bad 4"], 4)
    assert len(server.requests) == 1, "the provider is known to answer"


def test_a_batch_under_way_learns_from_another_that_no_dimension_is_taken(server: p.Provider) -> None:
    def behave(handler: p.Handler, request: p.Request) -> None:
        if request.dim is not None and request.texts != ["a"]:
            time.sleep(0.1)  # the answer to `a` without one is there before
        (p.good if request.dim is None else p.status(400))(handler, request)

    server.default = behave
    assert made(server, BATCH="1").documents(["a", "b"], 4).shape == (2, 4)


def test_a_question_is_given_up_in_time_over_all_its_requests(server: p.Provider) -> None:
    def behave(handler: p.Handler, request: p.Request) -> None:
        time.sleep(0.15)
        handler.send(400, b"no")

    server.default = behave
    with pytest.raises(Unavailable, match="given up after"):
        made(server).query("a", 4, deadline=time.monotonic() + 0.25)


def test_a_server_with_one_dimension_is_not_told_another(server: p.Provider) -> None:
    def behave(handler: p.Handler, request: p.Request) -> None:
        if request.dim is not None:
            handler.send(400, b'{"error": "this model does not support dimensions"}')
        else:
            p.good(handler, request)

    server.default = behave
    embedder = made(server)
    embedder.documents(["a"], 4)
    embedder.documents(["b"], 4)
    assert [r.dim for r in server.requests] == [4, None, None]
    with pytest.raises(Unavailable, match="has 4 numbers, and the property has 5"):
        embedder.documents(["a"], 5)


def test_answers_may_be_compressed_and_may_not_be_endless(server: p.Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    def zipped(handler: p.Handler, request: p.Request) -> None:
        body = gzip.compress(json.dumps(p.answer_of(request, 4)).encode())
        handler.send(200, body, Content_Encoding="gzip")

    server.script = [zipped, p.raw(b"no gzip", Content_Encoding="gzip"), p.good]
    embedder = made(server)
    embedder.documents(["a"], 4)
    embedder.documents(["b"], 4)
    assert len(server.requests) == 3
    monkeypatch.setattr("omnigraph.embed.transport.MAX_ANSWER_BYTES", 1 << 20)
    server.default = p.raw(gzip.compress(b" " * (20 << 20)), Content_Encoding="gzip")
    with pytest.raises(Unavailable, match="more than 1,048,576 bytes"):
        made(server, RETRY_ATTEMPTS="1").documents(["a"], 4)


def test_nobody_there(server: p.Provider) -> None:
    environ = server.environ(RETRY_ATTEMPTS="2") | {"OMNIGRAPH_EMBED_BASE_URL": "http://user:pass@127.0.0.1:9/v1"}
    settings = EmbedSettings.from_env(environ)
    assert settings is not None
    with pytest.raises(Unavailable, match=r"127.0.0.1:9/v1 gives no vectors.*2 attempts") as caught:
        Embedder(settings).documents(["a"], 4)
    assert "pass" not in str(caught.value)


def test_the_key_shows_nowhere(server: p.Provider, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    settings = EmbedSettings.from_env(server.environ())
    assert settings is not None
    Embedder(settings).documents(["a"], 4)
    assert p.KEY not in f"{settings!r} {settings.api_key}"
    assert p.KEY not in caplog.text
    with pytest.raises(TypeError, match="doesn't travel"):
        pickle.dumps(settings)
    assert Secret("a") == Secret("a") != Secret("b")


def test_models_must_agree(server: p.Provider) -> None:
    embedder = made(server, MODEL="one")
    with pytest.raises(BadRequest, match=r"'two'.*'one'") as caught:
        embedder.query("a", 4, model="two")
    assert (caught.value.code, server.requests) == ("embed_model", [])
    embedder.query("a", 4, model="one")
    made(server).query("a", 4, model="recorded")
    assert [r.json["model"] for r in server.requests] == ["one", "recorded"]


@pytest.mark.parametrize(
    ("environ", "provider"),
    [
        ({}, None),
        ({"OPENAI_API_KEY": "k"}, "openai-compatible"),
        ({"OMNIGRAPH_EMBED_BASE_URL": "http://localhost:1/v1/"}, "openai-compatible"),
        ({"OMNIGRAPH_EMBED_PROVIDER": "none", "OPENAI_API_KEY": "k"}, None),
        ({"GEMINI_API_KEY": "k"}, None),
        ({"OMNIGRAPH_EMBED_PROVIDER": "gemini", "GEMINI_API_KEY": "k"}, "gemini"),
        ({"OMNIGRAPH_EMBED_PROVIDER": "gemini", "OMNIGRAPH_EMBEDDINGS_MOCK": "1"}, "mock"),
        ({"OMNIGRAPH_EMBED_PROVIDER": "mock", "OMNIGRAPH_EMBEDDINGS_MOCK": "0"}, "mock"),
    ],
)
def test_which_provider_the_environment_names(environ: dict[str, str], provider: str | None) -> None:
    settings = EmbedSettings.from_env(environ)
    assert (settings and settings.provider) == provider


@pytest.mark.parametrize(
    ("environ", "code"),
    [
        ({"OMNIGRAPH_EMBED_PROVIDER": "cohere"}, "bad_setting"),
        ({"OMNIGRAPH_EMBED_PROVIDER": "openai-compatible"}, "no_embedder"),
        ({"OMNIGRAPH_EMBED_PROVIDER": "gemini", "OPENAI_API_KEY": "k"}, "no_embedder"),
        ({"OMNIGRAPH_EMBED_BASE_URL": "ftp://x"}, "bad_setting"),
        ({"OMNIGRAPH_EMBED_BASE_URL": "http://h:99999/"}, "bad_setting"),
        ({"OPENAI_API_KEY": "k", "OMNIGRAPH_EMBED_TIMEOUT_MS": "-1"}, "bad_setting"),
        ({"OPENAI_API_KEY": "k", "OMNIGRAPH_EMBED_RETRY_ATTEMPTS": "0"}, "bad_setting"),
        ({"OPENAI_API_KEY": "k", "OMNIGRAPH_EMBED_DEADLINE_MS": "1e3"}, "bad_setting"),
        ({"OMNIGRAPH_EMBEDDINGS_MOCK": "maybe"}, "bad_setting"),
        ({"OPENAI_API_KEY": "k", "OMNIGRAPH_EMBED_BATCH": "9" * 5_000}, "bad_setting"),
        ({"OMNIGRAPH_EMBED_API_KEY": "sesame-é"}, "bad_setting"),
        ({"OPENAI_API_KEY": "sesame-\nx"}, "bad_setting"),
        ({"OMNIGRAPH_EMBED_PROVIDER": "gemini", "GEMINI_API_KEY": "sesame-\udce9"}, "bad_setting"),
        ({"OPENAI_API_KEY": "k", "OMNIGRAPH_EMBED_MODEL": "\udce9"}, "bad_setting"),
        ({"OMNIGRAPH_EMBED_BASE_URL": "http://\udce9/"}, "bad_setting"),
    ],
)
def test_settings_that_cannot_be_meant(environ: dict[str, str], code: str) -> None:
    with pytest.raises(OmniGraphError) as caught:
        EmbedSettings.from_env(environ)
    assert caught.value.code == code
    assert "sesame" not in caught.value.message


def test_an_address_that_no_host_has_is_told() -> None:
    settings = EmbedSettings.from_env(
        {"OMNIGRAPH_EMBED_BASE_URL": "http://a\u2603..b/v1", "OMNIGRAPH_EMBED_CACHE": "off"}
    )
    assert settings is not None
    with pytest.raises(Unavailable, match="no such address"):
        Embedder(settings).query("a", 4)


def test_the_mock_is_the_same_everywhere_and_knows_common_words() -> None:
    settings = EmbedSettings.from_env({"OMNIGRAPH_EMBEDDINGS_MOCK": "1"})
    assert settings is not None
    embedder = Embedder(settings)
    graph, also, other = embedder.documents(["a graph of people", "people in a graph", "rain tomorrow"], 64)
    assert graph @ also > graph @ other
    np.testing.assert_allclose(np.linalg.norm(embedder.documents(["", "x", "漢"], 1), axis=1), 1)
    code = (
        "from omnigraph.embed import Embedder, EmbedSettings as S;"
        "print(Embedder(S.from_env({'OMNIGRAPH_EMBEDDINGS_MOCK': '1'})).query('a graph of people', 64).tobytes().hex())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == graph.tobytes().hex()


# ---- the caches ----


def vectors(n: int, dim: int = 8, seed: int = 0) -> dict[bytes, Any]:
    rows = np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return {content_key(seed, i): row for i, row in enumerate(rows)}


def test_memory_is_bounded_and_keeps_what_was_used_last() -> None:
    some = vectors(100)
    cache = MemoryCache(limit=10 * (8 * 4 + 32))
    first = next(iter(some))
    for key, vector in some.items():
        cache.put({key: vector})
        cache.get([first])
    found = cache.get(list(some))
    assert len(found) == 10
    assert first in found


def test_the_file_is_bounded_and_a_damaged_one_is_begun_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = FileCache(str(tmp_path), limit=400_000)
    for seed in range(12):
        cache.put(vectors(500, seed=seed))
    with sqlite3.connect(tmp_path / "vectors.sqlite") as db:
        ((pages,), (free,)) = (db.execute(f"pragma {n}").fetchone() for n in ("page_count", "freelist_count"))
    assert (pages - free) * 4096 < 800_000
    last = vectors(500, seed=11)
    found = cache.get(list(last), 8)
    assert len(found) == 500
    assert all((found[k] == v).all() for k, v in last.items())
    assert cache.get(list(last), 9) == {}, "of another dimension"
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"vectors.sqlite{suffix}").unlink(missing_ok=True)
    (tmp_path / "vectors.sqlite").write_bytes(b"no database" * 1000)
    assert cache.get(list(last), 8) == {}
    assert "begun anew" in caplog.text
    cache.put(last)
    assert len(cache.get(list(last), 8)) == 500


def test_a_vector_that_was_altered_on_disk_is_not_used(tmp_path: Path) -> None:
    cache = FileCache(str(tmp_path), limit=1 << 20)
    some = vectors(2)
    cache.put(some)
    one, other = some
    with sqlite3.connect(tmp_path / "vectors.sqlite") as db:
        db.execute("update vectors set vector = zeroblob(32) where key = ?", (one,))
    assert list(cache.get([one, other], 8)) == [other]


def test_a_folder_that_cannot_be_written_is_said_once_and_done_without(
    server: p.Provider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    embedder = made(server, CACHE=str(tmp_path / "file" / "under"))
    for text in ("a", "b", "c"):
        embedder.documents([text], 4)
    assert caplog.text.count("aren't cached on disk") == 1


def test_many_processes_share_the_file(tmp_path: Path) -> None:
    code = (
        "import sys; from tests.engine.embed.test_embedder import vectors, FileCache\n"
        "cache, seed = FileCache(sys.argv[1], 1 << 30), int(sys.argv[2])\n"
        "for turn in range(4):\n"
        "    mine = vectors(40, seed=seed * 100 + turn); cache.put(mine); cache.put(vectors(40, seed=turn))\n"
        "    found = cache.get(list(mine), 8); assert len(found) == 40, len(found)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(n)]) for n in range(1, 4)]
    assert [r.wait(60) for r in running] == [0, 0, 0]
    cache = FileCache(str(tmp_path), 1 << 30)
    for seed in [*range(4), *(n * 100 + turn for n in range(1, 4) for turn in range(4))]:
        assert len(cache.get(list(vectors(40, seed=seed)), 8)) == 40
