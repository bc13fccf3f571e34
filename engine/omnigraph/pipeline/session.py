"""A Spark session: the one that spark-submit prepared, or our own on this machine."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.errors import Unavailable
from omnigraph.pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["java_problem", "session"]

MINIMUM_JAVA = 17


def java_problem() -> str | None:
    """Why Spark can't start here, or None. Runs `java -version`."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.path.exists(java):
        return f"no Java found ({'JAVA_HOME is ' + home if home else 'neither JAVA_HOME nor PATH has one'})"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < MINIMUM_JAVA:
        return f"{java} is Java {found[1] if found else 'of an unknown version'}"
    return None


@contextmanager
def session(name: str, settings: PipelineSettings) -> Iterator[SparkSession]:
    """A session for one job.

    Under spark-submit (a SparkApplication, any cluster) its master and configuration hold; a session that runs in this
    process already is used and left running. Otherwise Spark runs inside this process on all cores and is stopped
    afterwards.

    Raises:
        Unavailable: pyspark or Java 17+ is missing.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise Unavailable("the Spark load needs pyspark: pip install 'omnigraph[spark]'") from error
    if (running := SparkSession.getActiveSession()) is not None:
        yield running
        return
    builder = SparkSession.builder.appName(name).config("spark.sql.session.timeZone", "UTC")
    if not submitted:
        if problem := java_problem():
            raise Unavailable(
                f"Spark needs Java {MINIMUM_JAVA}+: {problem}. Install one, or load with --engine process"
            )
        # Workers must be this interpreter, with this environment's packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        cores = os.cpu_count() or 2
        builder = (
            builder.master("local[*]")
            .config("spark.driver.memory", settings.driver_memory)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", str(cores * 2))
            # Small machines: a quick start matters more than the last percent of speed.
            .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        if not submitted:
            spark.stop()
