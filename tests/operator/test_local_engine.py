"""`omnigraph up` over the real engine and the real server: from a manifest to an answer, and to a refusal."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import yaml

from tests.engine.embed import provider

MANIFEST = """\
apiVersion: omnigraph.io/v1alpha1
kind: OmniGraph
metadata: { name: people }
spec:
  storage: { uri: "file:people.omni" }
  schema:
    inline: |
      node Person { name: String @key }
      edge Knows: Person -> Person
  loads:
    - { name: people, source: { uri: people.ndjson }, mode: merge }
  server:
    auth: { unauthenticated: true }
    queries:
      - inline: |
          query friends($name: String) {
            match {
              $p: Person { name: $name }
              $p knows $friend
            }
            return { $friend.name as friend }
          }
"""
PEOPLE = [
    {"type": "Person", "data": {"name": "Ada"}},
    {"type": "Person", "data": {"name": "Bob"}},
    {"edge": "Knows", "from": "Ada", "to": "Bob"},
]


def omnigraph(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "omnigraph.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def write(folder: Path, records: list[dict[str, object]]) -> None:
    (folder / "graph.yaml").write_text(MANIFEST)
    (folder / "people.ndjson").write_text("".join(json.dumps(r) + "\n" for r in records))


def test_from_a_manifest_to_an_answer(tmp_path: Path) -> None:
    write(tmp_path, PEOPLE)
    up = omnigraph("up", "-f", str(tmp_path), "--once", "--keep")
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        path = tmp_path / ".omnigraph/objects/default/OmniGraph/people/status.yaml"
        status = yaml.safe_load(path.read_text())
        assert status["tables"] == {"count": 2, "rows": 3}
        assert status["loads"][0]["rows"] == 3
        request = urllib.request.Request(
            f"{status['endpoints']['readWrite']}/queries/friends",
            data=json.dumps({"params": {"name": "Ada"}}).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer)["rows"] == [{"friend": "Bob"}]
        shown = omnigraph("get", "og", "-o", "json", "--state", str(tmp_path / ".omnigraph"))
        assert json.loads(shown.stdout)["items"][0]["status"]["phase"] == "Serving"
    finally:
        stopped = omnigraph("up", "-f", str(tmp_path), "--stop")
    assert stopped.returncode == 0, stopped.stdout
    assert omnigraph("verify", str(tmp_path / "people.omni")).returncode == 0


def test_a_manifest_sets_up_who_makes_vectors(tmp_path: Path) -> None:
    """The load's vectors and the question's come from the provider it names, with the Secret's key."""
    manifest = yaml.safe_load(MANIFEST)
    spec = manifest["spec"]
    spec["schema"]["inline"] = 'node Person { name: String @key  bio: String?  v: Vector(4)? @embed("bio") }'
    near = "match { $p: Person } return { $p.name as name, nearest($p.v, $t) as d } order { d } limit 1"
    spec["server"]["queries"] = [{"inline": f"query near($t: String) {{ {near} }}"}]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ai"}, "stringData": {"token": provider.KEY}}
    people = [{"type": "Person", "data": {"name": n, "bio": f"{n} writes"}} for n in ("Ada", "Bob")]
    (tmp_path / "people.ndjson").write_text("".join(json.dumps(r) + "\n" for r in people))
    with provider.serving() as server:
        key = {"name": "ai", "key": "token"}
        spec["server"]["embedding"] = {"model": "m", "baseUrl": server.url, "apiKeySecretRef": key}
        (tmp_path / "graph.yaml").write_text(yaml.safe_dump_all([manifest, secret]))
        up = omnigraph("up", "-f", str(tmp_path), "--once", "--keep")
        try:
            assert up.returncode == 0, up.stdout + up.stderr
            status = yaml.safe_load((tmp_path / ".omnigraph/objects/default/OmniGraph/people/status.yaml").read_text())
            request = urllib.request.Request(
                f"{status['endpoints']['readWrite']}/queries/near",
                data=json.dumps({"params": {"t": "Bob writes"}}).encode(),
                headers={"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                assert json.load(answer)["rows"][0]["name"] == "Bob"
        finally:
            omnigraph("up", "-f", str(tmp_path), "--stop")
    assert {(r.json["model"], r.headers["authorization"]) for r in server.requests} == {("m", f"Bearer {provider.KEY}")}
    assert sorted(t for r in server.requests for t in r.texts)[:2] == ["Ada writes", "Bob writes"]


def test_an_edge_to_nobody_leaves_nothing_half_visible(tmp_path: Path) -> None:
    write(tmp_path, [*PEOPLE, {"edge": "Knows", "from": "Ada", "to": "Nobody"}])
    up = omnigraph("up", "-f", str(tmp_path), "--once")
    assert up.returncode == 1
    assert "Nobody" in up.stdout
    assert "LoadFailed" in up.stdout
    snapshot = json.loads(omnigraph("snapshot", str(tmp_path / "people.omni"), "--format", "json").stdout)
    assert "Ada" not in json.dumps(snapshot)
    exported = omnigraph("export", str(tmp_path / "people.omni"))
    assert exported.stdout.strip() == ""
    # Once the record is put right the same command goes on.
    write(tmp_path, PEOPLE)
    up = omnigraph("up", "-f", str(tmp_path), "--once")
    assert up.returncode == 0, up.stdout + up.stderr


def test_a_busy_port_stalls_and_the_next_up_tries_again(tmp_path: Path) -> None:
    write(tmp_path, PEOPLE)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        manifest = MANIFEST.replace("  server:\n", f"  server:\n    readWrite: {{ port: {port} }}\n")
        (tmp_path / "graph.yaml").write_text(manifest)
        up = omnigraph("up", "-f", str(tmp_path), "--once")
        assert up.returncode == 1, up.stdout
        assert f"{port}" in up.stdout
        assert "ServerFailed" in up.stdout
    up = omnigraph("up", "-f", str(tmp_path), "--once")
    assert up.returncode == 0, up.stdout + up.stderr
