"""Bad records of a Spark load: the same file, tables, counts and words as in process, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.errors import BadRequest
from omnigraph.pipeline import judging
from omnigraph.pipeline import load as pipeline_load
from omnigraph.pipeline.load import LoadJob, run
from omnigraph.pipeline.stage import Staged, StageTask
from omnigraph.write import LoadResult
from omnigraph.write.mapping import Mapping
from omnigraph.write.quarantine import Quarantine

pytestmark = pytest.mark.spark

SCHEMA = """
node Person {
  name: String @key  age: I32?  email: String? @unique  born: Date?  level: enum(junior, senior)?
  bio: String?  vec: Vector(4)? @embed("bio")  photo: Blob?
  @range(age, 0..150)
}
node Note { text: String }
edge Knows: Person -> Person @card(0..2) { since: Date? }
edge Owns: Person -> Person @card(1..)
"""
OPERATION = "01JZZZZZZZZZZZZZZZZZZZZZZZ"


@pytest.fixture(scope="module")
def spark() -> Iterator[object]:
    """A session that tries a failed task again."""
    from pyspark.sql import SparkSession

    from omnigraph.pipeline.session import session
    from omnigraph.pipeline.settings import PipelineSettings

    # Workers are told by the configuration: they have the environment in which the process's first session began.
    os.environ["OMNIGRAPH_EMBEDDINGS_MOCK"] = "1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    running = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.executorEnv.OMNIGRAPH_EMBEDDINGS_MOCK", "1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    try:
        with session("tests", PipelineSettings()) as shared:
            assert shared is running
            yield running
    finally:
        running.stop()
        del os.environ["OMNIGRAPH_EMBEDDINGS_MOCK"], os.environ["PYSPARK_PYTHON"], os.environ["SPARK_LOCAL_IP"]


def in_process(job: LoadJob) -> LoadResult:
    with omnigraph.open(job.uri) as graph:
        return graph.load(
            list(job.sources),
            mode=job.mode,
            mapping=job.mapping,
            operation_id=job.operation_id,
            quarantine=job.quarantine,
            max_quarantined=job.max_quarantined,
        )


LOADERS: dict[str, Callable[[LoadJob], LoadResult]] = {
    "process": in_process,
    "spark": lambda job: run(job, say=lambda _: None),
}


def content(uri: str) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table by id, with the Blobs' bytes."""
    with omnigraph.open(uri, read_only=True) as graph:
        assert graph.verify().ok
        snapshot = graph.snapshot()
        out = {key: sorted(snapshot.scan(key).to_pylist(), key=lambda r: str(r["id"])) for key in snapshot.tables}
        rows = snapshot.scan("node:Person", ["id", "_rowid"]).sort_by("id")
        photos = snapshot.blobs("node:Person", "photo", rows["_rowid"].combine_chunks()).to_pylist()
        for row, photo in zip(out["node:Person"], photos, strict=True):
            row["photo"] = photo
        return out


def files_aside(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("bad*"))}


def both(tmp_path: Path, *loads: dict[str, Any]) -> list[Any]:
    """The same loads by both ways into two graphs: what each said, the last graph's content, and the files."""
    said = []
    for name, loader in LOADERS.items():
        folder = tmp_path / name
        folder.mkdir()
        uri = str(folder / "graph")
        omnigraph.init(uri, schema=SCHEMA).close()
        words: list[Any] = []
        for i, given in enumerate(loads):
            job = LoadJob(
                uri,
                tuple(str(s) for s in given["sources"]),
                given.get("mode", "append"),
                "main",
                OPERATION[:-1] + str(i),
                given.get("mapping"),
                quarantine=str(folder / f"bad{i}"),
                max_quarantined=given.get("limit", 10_000),
            )
            import time

            t = time.time()
            try:
                done = (in_process if given.get("before") else loader)(job)
                words.append((done.tables, done.quarantined, done.vectors, done.unfilled))
            except BadRequest as error:
                words.append((error.message, error.code, error.details))
            print(name, i, time.time() - t)
            assert not (Path(uri) / "__staging").exists() or not any((Path(uri) / "__staging").iterdir())
        said.append((words, content(uri), files_aside(folder)))
    return said


def person(name: str, **data: Any) -> str:
    return json.dumps({"type": "Person", "data": {"name": name, **data}})


def knows(a: str, b: str) -> str:
    return json.dumps({"edge": "Knows", "from": a, "to": b, "data": {"since": "2020-02-29"}})


def bad_lines(rng: random.Random) -> list[bytes]:
    """Records of which many are wrong in every way there is, and many rely on wrong ones."""
    names = [f"p{i}" for i in range(60)]
    lines: list[bytes] = []
    for name in names:
        data: dict[str, Any] = {
            "age": rng.choice([None, 20, 999, "old"]) if rng.random() < 0.5 else 7,
            "email": rng.choice([None, None, f"{rng.randrange(40)}@x"]),
            "level": rng.choice([None, "senior", "boss"]) if rng.random() < 0.3 else None,
            "bio": rng.choice([None, f"text {rng.randrange(9)}", " "]),
        }
        if rng.random() < 0.1:
            data["photo"] = rng.choice([f"base64:{b64encode(rng.randbytes(3000)).decode()}", "file:///etc/passwd"])
        if rng.random() < 0.1:
            data["born"] = rng.choice(["2000-01-01", "yesterday", 3.5])
        lines.append(person(name, **data).encode())
    lines += [person(rng.choice(names)).encode() for _ in range(4)]  # twice
    lines += [knows(rng.choice(names), rng.choice([*names, "nobody", "old"])).encode() for _ in range(50)]
    lines += [
        b"{broken",
        b'{"type": "Person", "data": {"name": "\xff"}}',
        b'{"type": "Person", "data": {"age": 1}}',
        b'{"type": "Alien", "data": {}}',
        b'{"type": "Person", "data": {"name": "s", "size": 1}}',
        b'{"edge": "Knows", "from": "p1"}',
        b'{"edge": "Knows", "from": ["p1"], "to": 5}',
        b'{"type": "Note", "data": {"text": "' + b"long " * 4000 + b'"}}',
        b'{"type": "Note", "data": {"text": ' + b"[" * 300 + b"]" * 300 + b"}}",
        b'{"type": "Person", "data": {"name": "far", "age": 99999999999999999999}}',
        b'{"type": "Person", "data": {"name": "taken", "email": "old@x"}}',
        b'{"type": "Person", "data": {"name": "old"}}',
    ]
    rng.shuffle(lines)
    return [b"// a comment", b"", *lines]


def test_the_same_records_are_put_aside(tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """NDJSON in splits and Parquet in row groups: appended, merged, refused for too many, and overwritten."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    monkeypatch.setenv("OMNIGRAPH_SPARK_SPLIT_BYTES", "9000")
    first, second, third = (tmp_path / f"{n}.ndjson" for n in ("first", "second", "third"))
    first.write_text("\n".join([person("old", email="old@x"), person("q0")]))
    second.write_bytes(b"\r\n".join(bad_lines(rng)))
    third.write_bytes(b"\n".join(bad_lines(rng)))
    names = pa.array([f"q{i}".encode() if i % 30 else b"\xff" for i in range(200)]).view(pa.string())
    table = pa.table({"name": names, "age": [i if i % 20 else 500 + i for i in range(200)]})
    pq.write_table(table, tmp_path / "people.parquet", row_group_size=50)
    mapping = Mapping.parse("sources: [{path: people.parquet, node: Person}]", base=tmp_path)
    (tmp_path / "people.csv").write_bytes(b"name,age\nc1,1\nc2\nc3,3,\nc\xff,4\nc5,old\nc6,6\n")
    cells = Mapping.parse("sources: [{path: people.csv, node: Person}]", base=tmp_path)
    process, on_spark = both(
        tmp_path,
        {"sources": [first], "before": True},
        {"sources": [second]},
        {"sources": [third], "mode": "merge"},
        {"sources": [second], "limit": 3},
        {"sources": [tmp_path], "mapping": mapping},
        {"sources": [tmp_path], "mapping": cells},
    )
    assert process[2]["bad4"].count('{"name": "base64:/w==", ') == 7
    assert [json.loads(line)["row"] for line in process[2]["bad5"].splitlines()] == [2, 3, 4, 5]
    assert process[0] == on_spark[0]
    assert process[2] == on_spark[2]
    assert process[1] == on_spark[1]
    assert process[0][3][1] == "too_many_bad_records"
    assert f"{second}:" in process[0][3][0]
    assert set(process[2]) >= {"bad1", "bad2", "bad4", "bad5"}


def test_a_task_tried_again_or_twice_writes_no_record_twice(
    tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt of each split dies when its work is done, as a lost executor does."""
    lines = [person(f"p{i}", age=i % 160, photo=f"base64:{b64encode(bytes([i] * 50)).decode()}") for i in range(200)]
    (tmp_path / "p.ndjson").write_text("\n".join(lines))
    monkeypatch.setenv("OMNIGRAPH_SPARK_SPLIT_BYTES", "10000")
    stage, kept, folder = pipeline_load.stage, judging.write_kept, str(tmp_path)

    def dying(work: Callable[[Any], Staged], kind: str) -> Callable[[Any], Staged]:
        def attempt(task: StageTask) -> Staged:
            import os

            done = work(task)
            try:
                os.close(os.open(f"{folder}/{kind}{task.part}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return done
            os._exit(1)

        return attempt

    monkeypatch.setattr(pipeline_load, "stage", dying(stage, "stage"))
    monkeypatch.setattr("omnigraph.pipeline.judging.write_kept", dying(kept, "write"))
    for i, aside in enumerate((str(tmp_path / "bad"), None)):
        uri = str(tmp_path / f"graph{i}")
        omnigraph.init(uri, schema=SCHEMA).close()
        if aside is None:
            (tmp_path / "p.ndjson").write_text(
                "\n".join(line for line in lines if json.loads(line)["data"]["age"] <= 150)
            )
            for marker in tmp_path.glob("stage*"):
                marker.unlink()
        done = run(LoadJob(uri, (str(tmp_path / "p.ndjson"),), "append", "main", OPERATION, quarantine=aside))
        rows = content(uri)["node:Person"]
        assert len(rows) == len({r["id"] for r in rows}) == dict(done.tables)["node:Person"] == 191
        assert all(r["photo"] == bytes([int(r["id"][1:])] * 50) for r in rows)
    assert len((tmp_path / "bad").read_text().splitlines()) == 9
    assert len(list(tmp_path.glob("stage*"))) > 1
    assert len(list(tmp_path.glob("write*"))) > 1


def test_a_killed_driver_leaves_nothing_half_done(
    tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the commit, and ended after it; the same operation again ends what it began."""
    uri, bad = str(tmp_path / "graph"), tmp_path / "bad"
    omnigraph.init(uri, schema=SCHEMA).close()
    (tmp_path / "p.ndjson").write_text("nonsense\n" + "\n".join(person(f"p{i}") for i in range(20)))
    code = (
        "import os, sys\nfrom omnigraph.storage import Repository\nfrom omnigraph.pipeline.load import LoadJob, run\n"
        "Repository.commit = lambda *a: os.kill(os.getpid(), 9)\n"
        "run(LoadJob(sys.argv[1], (sys.argv[2],), 'append', 'main', sys.argv[4], quarantine=sys.argv[3]))\n"
    )
    arguments = [uri, str(tmp_path / "p.ndjson"), str(bad), OPERATION]
    ran = subprocess.run([sys.executable, "-c", code, *arguments], timeout=300, capture_output=True, text=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert content(uri)["node:Person"] == []
    assert files_aside(tmp_path).keys() == {f"bad.{OPERATION}.part"}
    job = LoadJob(uri, (str(tmp_path / "p.ndjson"),), "append", "main", OPERATION, quarantine=str(bad))
    with monkeypatch.context() as patch:
        patch.setattr(Quarantine, "keep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(job)
    for _ in range(2):
        assert len(content(uri)["node:Person"]) == 20
        run(job)
        assert [json.loads(line)["raw"] for line in bad.read_text().splitlines()] == ["nonsense"]
        assert files_aside(tmp_path).keys() == {"bad"}
