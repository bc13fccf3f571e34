"""Certificates and kubeconfigs of the test cluster, made with openssl."""

import base64
import json
import pathlib

from hack.cluster.machine import NODE_IP, run

NODE = "node"
SERVICE_CIDR = "10.96.0.0/16"
API = f"https://{NODE_IP}:6443"


def make_all(pki: pathlib.Path, etc: pathlib.Path, kubeconfig: pathlib.Path) -> None:
    """Make whatever is not there yet; EC keys, so it takes less than a second."""
    _certificate(pki, "ca", "/CN=cluster-ca")
    first_service_ip = SERVICE_CIDR.split("/")[0][:-1] + "1"
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
    _certificate(
        pki,
        "apiserver",
        "/CN=kube-apiserver",
        ",".join([f"IP:{NODE_IP}", f"IP:{first_service_ip}", *(f"DNS:{name}" for name in names)]),
    )
    _certificate(pki, "apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client")
    _certificate(pki, "kubelet-server", f"/CN={NODE}", f"IP:{NODE_IP},DNS:{NODE}")
    accounts = pki / "service-account.key"
    if not accounts.exists():
        run("openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", accounts,
            capture_output=True)  # fmt: skip
    _client(pki, "admin", "/O=system:masters/CN=admin", kubeconfig)
    for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns"):
        _client(pki, name, f"/CN=system:{name}", etc / f"{name}.kubeconfig")
    _client(pki, "kubelet", f"/O=system:nodes/CN=system:node:{NODE}", etc / "kubelet.kubeconfig")


def _certificate(pki: pathlib.Path, name: str, subject: str, alternative_names: str = "") -> None:
    certificate, key = pki / f"{name}.crt", pki / f"{name}.key"
    if certificate.exists():
        return
    config = pki / "openssl.cnf"
    config.write_text("[req]\ndistinguished_name = dn\n[dn]\n")  # no extensions by default
    if name == "ca":
        extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"]
        signer: list[object] = []
    else:
        extensions = ["basicConstraints=CA:FALSE", "keyUsage=critical,digitalSignature"]
        extensions.append("extendedKeyUsage=clientAuth,serverAuth")
        if alternative_names:
            extensions.append(f"subjectAltName={alternative_names}")
        signer = ["-CA", pki / "ca.crt", "-CAkey", pki / "ca.key"]
    run("openssl", "req", "-x509", "-config", config, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes", "-days", "3650", "-subj", subject, *signer, "-keyout", key, "-out", certificate,
        *(argument for extension in extensions for argument in ("-addext", extension)),
        capture_output=True)  # fmt: skip


def _client(pki: pathlib.Path, name: str, subject: str, path: pathlib.Path) -> None:
    """A kubeconfig with a client certificate of its own."""
    _certificate(pki, name, subject)
    if path.exists():
        return

    def data(file: str) -> str:
        return base64.b64encode((pki / file).read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "omnigraph-test",
        "clusters": [
            {"name": "omnigraph-test", "cluster": {"server": API, "certificate-authority-data": data("ca.crt")}}
        ],
        "users": [
            {
                "name": name,
                "user": {"client-certificate-data": data(f"{name}.crt"), "client-key-data": data(f"{name}.key")},
            }
        ],
        "contexts": [{"name": "omnigraph-test", "context": {"cluster": "omnigraph-test", "user": name}}],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1))
