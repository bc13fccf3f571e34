"""A provider on a real socket, and an environment that points to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.embed import provider as p


@pytest.fixture
def server() -> Iterator[p.Provider]:
    with p.serving() as provider:
        yield provider


@pytest.fixture
def configured(server: p.Provider, monkeypatch: pytest.MonkeyPatch) -> p.Provider:
    """The provider, set up for this process."""
    monkeypatch.delenv("OMNIGRAPH_EMBED_PROVIDER", raising=False)
    for name, value in server.environ().items():
        monkeypatch.setenv(name, value)
    return server
