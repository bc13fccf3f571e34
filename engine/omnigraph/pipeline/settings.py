"""Settings of the pipeline, from the environment."""

from __future__ import annotations

import os

from omnigraph.errors import BadRequest
from omnigraph.records import dataclass

__all__ = ["PipelineSettings"]


@dataclass(frozen=True)
class PipelineSettings:
    """Read once per job.

    Args:
        split_bytes: how much of an NDJSON file one task reads (`OMNIGRAPH_SPARK_SPLIT_BYTES`).
        driver_memory: heap of the JVM when this process starts Spark itself (`OMNIGRAPH_SPARK_DRIVER_MEMORY`).
        staging: a folder that driver and executors share, for keys while they are checked
            (`OMNIGRAPH_SPARK_STAGING`); default: inside the graph's own folder.
    """

    split_bytes: int = 32 << 20
    driver_memory: str = "1g"
    staging: str | None = None

    @classmethod
    def from_env(cls) -> PipelineSettings:
        text = os.environ.get("OMNIGRAPH_SPARK_SPLIT_BYTES", "")
        try:
            split = int(text) if text else cls.split_bytes
        except ValueError:
            split = 0
        if split <= 0:
            raise BadRequest(f"OMNIGRAPH_SPARK_SPLIT_BYTES is {text!r}: give a number of bytes above 0")
        return cls(
            split_bytes=split,
            driver_memory=os.environ.get("OMNIGRAPH_SPARK_DRIVER_MEMORY") or cls.driver_memory,
            staging=os.environ.get("OMNIGRAPH_SPARK_STAGING") or None,
        )
