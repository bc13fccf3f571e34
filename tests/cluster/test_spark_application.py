"""A load as a SparkApplication under a real Spark operator.

Its binary and CRDs are looked for where `SPARK_OPERATOR_BIN` (may be .xz) and `SPARK_OPERATOR_CRDS` say; it runs as a
process of this machine, with the pyspark of this environment for its spark-submit.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.cluster.support import CHECKOUT, RECORDS, Journal, Kube, OperatorProcess, graph, purpose_of, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(420)]

CRDS = ("sparkapplications", "scheduledsparkapplications", "sparkconnects")


@pytest.fixture
def spark_operator(kube: Kube, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """A Spark operator for the test's namespace; gives its log."""
    given, crds = os.environ.get("SPARK_OPERATOR_BIN"), os.environ.get("SPARK_OPERATOR_CRDS")
    if not given or not crds:
        pytest.skip("SPARK_OPERATOR_BIN and SPARK_OPERATOR_CRDS aren't set")
    binary = tmp_path / "spark-operator"
    with lzma.open(given) if given.endswith(".xz") else open(given, "rb") as source, binary.open("wb") as target:
        shutil.copyfileobj(source, target)
    binary.chmod(0o755)
    kube.run("apply", "--server-side", "-f", crds)
    for name in CRDS:
        wait = ("wait", "--for=condition=Established", f"crd/{name}.sparkoperator.k8s.io", "--timeout=30s")
        wait_for(f"{name} to be served", lambda wait=wait: "condition met" in kube.run(*wait, check=False))
    kube.run("create", "serviceaccount", "spark-operator", "-n", namespace)
    kube.run("create", "clusterrolebinding", namespace, "--clusterrole=cluster-admin",
             f"--serviceaccount={namespace}:spark-operator")  # fmt: skip
    kube.run(
        "apply", "-f", "-", text=(CHECKOUT / "deploy/spark-driver.yaml").read_text().replace("NAMESPACE", namespace)
    )
    log = tmp_path / "spark-operator.log"
    process = _start(kube, namespace, binary, log)
    yield log
    process.terminate()
    process.wait(timeout=20)
    kube.run("delete", "clusterrolebinding", namespace)
    kube.run("delete", "crd", *(f"{name}.sparkoperator.k8s.io" for name in CRDS), "--wait=false")
    print(f"--- Spark operator's log\n{log.read_text()[-3000:]}")


def _start(kube: Kube, namespace: str, binary: Path, log: Path) -> subprocess.Popen[bytes]:
    # Its Java client can't read the EC key of the cluster's kubeconfig: a token does.
    config = json.loads(kube.run("config", "view", "--raw", "-o", "json"))
    token = kube.run("create", "token", "spark-operator", "-n", namespace, "--duration=1h").strip()
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    kubeconfig = log.with_name("spark-kubeconfig")
    kubeconfig.write_text(json.dumps(config))
    server = config["clusters"][0]["cluster"]["server"]
    host, _, port = server.removeprefix("https://").partition(":")
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port or "443",
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx256m",
    }
    command = [str(binary), "controller", "start", f"--namespaces={namespace}", "--metrics-bind-address=0"]
    command += ["--health-probe-bind-address=127.0.0.1:0", "--controller-threads=2", "--enable-ui-service=false"]
    with log.open("wb") as out:
        return subprocess.Popen(command, env=environment, stdout=out, stderr=out)


def test_a_load_runs_as_a_spark_application_once(
    kube: Kube, image: str, namespace: str, spark_operator: Path, journal: Journal, operator: OperatorProcess
) -> None:
    (kube.folders[namespace] / "incoming/people.ndjson").write_text(RECORDS)
    load = {"name": "people", "source": {"uri": "file:///graphs/incoming/people.ndjson"}, "spark": "Always"}
    part = {"memory": "600m"}
    spark = {
        "driver": part,
        "executor": part,
        "conf": {
            "spark.kubernetes.driver.request.cores": "200m",
            "spark.kubernetes.executor.request.cores": "200m",
        },
    }
    kube.apply(graph(namespace, loads=[load], spark=spark))
    found = kube.wait_condition(namespace, "people", "Loaded", timeout=240)
    [loaded] = found["status"]["loads"]
    assert (loaded["phase"], loaded["rows"], loaded["engine"]) == ("Loaded", 5, "spark-application")
    assert journal.added("load") == []  # no Job did it
    [swept, *_] = journal.added("sweep")
    assert purpose_of(swept) == "sweep"
    spark_condition = next(c for c in found["status"]["conditions"] if c["type"] == "SparkAvailable")
    assert (spark_condition["status"], spark_condition["reason"]) == ("True", "SparkApplications")
    for application in kube.items(namespace, "sparkapplications"):
        assert application["metadata"]["generation"] == 1  # never edited
        [owner] = application["metadata"]["ownerReferences"]
        assert owner["uid"] == found["metadata"]["uid"]
