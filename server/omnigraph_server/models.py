"""Bodies of requests and replies."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "BranchCreate",
    "InvokeRequest",
    "MutateReply",
    "MutateRequest",
    "QueryReply",
    "QueryRequest",
    "SnapshotReply",
    "SnapshotTable",
    "Target",
]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


# A version is a positive 64-bit number wherever it is kept.
Point: TypeAlias = Annotated[int, Field(ge=1, le=2**63 - 1)] | str


_TIMEOUT = "how long the query may take; the server may allow less"
Seconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class QueryRequest(Strict):
    query: str = Field(
        description="The text in the query language", examples=["query q() { match { $p: Person } return { $p.name } }"]
    )
    name: str | None = Field(default=None, description="Which query of the text; needed if it has several")
    params: dict[str, Any] = Field(default_factory=dict, description="Values by parameter name")
    branch: str = Field(default="main", description="The branch to read")
    snapshot: Point | None = Field(default=None, description="A manifest version or commit id to read it at")
    timeout_seconds: Seconds | None = Field(default=None, description=_TIMEOUT)


class MutateRequest(Strict):
    query: str = Field(description="The text in the query language")
    name: str | None = Field(default=None, description="Which query of the text; needed if it has several")
    params: dict[str, Any] = Field(default_factory=dict, description="Values by parameter name")
    branch: str = Field(default="main", description="The branch to change")


class InvokeRequest(Strict):
    params: dict[str, Any] = Field(default_factory=dict, description="Values by parameter name")
    branch: str = Field(default="main", description="The branch to read or change")
    snapshot: Point | None = Field(default=None, description="For reads: a manifest version or commit id")
    timeout_seconds: Seconds | None = Field(default=None, description=f"For reads: {_TIMEOUT}")


class BranchCreate(Strict):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: str = Field(description="The new branch")
    from_: str = Field(default="main", alias="from", description="The branch it begins at")
    snapshot: Point | None = Field(default=None, description="A manifest version or commit id of it")


class Target(BaseModel):
    branch: str
    snapshot: int = Field(description="The manifest version that was read")


class QueryReply(BaseModel):
    query_name: str
    target: Target
    row_count: int
    columns: list[str]
    rows: list[dict[str, Any]]


class MutateReply(BaseModel):
    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    graph_commit_id: str | None = Field(description="The new commit; null if nothing changed")


class SnapshotTable(BaseModel):
    table_key: str
    table_path: str
    table_version: int
    table_branch: str | None
    row_count: int


class SnapshotReply(BaseModel):
    branch: str
    manifest_version: int
    graph_commit_id: str
    tables: list[SnapshotTable]
