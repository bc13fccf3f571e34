"""The allocator of a load is put back, whoever ends last and however."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.write.pool import system_pool


def test_loads_beside_each_other_leave_the_allocator_as_it_was() -> None:
    before = pa.default_memory_pool().backend_name
    inside, first_left = threading.Barrier(2), threading.Event()
    seen: list[str] = []

    def one(last: bool) -> None:
        with system_pool():
            inside.wait(30)
            assert not last or first_left.wait(30)
            seen.append(pa.default_memory_pool().backend_name)
        first_left.set()

    threads = [threading.Thread(target=one, args=(last,)) for last in (False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == ["system", "system"]
    assert pa.default_memory_pool().backend_name == before


def test_a_refused_load_puts_the_allocator_back(tmp_path: object) -> None:
    graph = omnigraph.init(f"{tmp_path}/g", schema="node P { name: String @key }")
    before = pa.default_memory_pool().backend_name
    with pytest.raises(omnigraph.BadRequest):
        graph.load('{"type": "P", "data": {}}\n')
    assert pa.default_memory_pool().backend_name == before
