"""How each part of the cluster is started: etcd, containerd, the control plane, kubelet, kube-proxy and DNS."""

import json
import pathlib
import ssl
import textwrap
import urllib.request
from collections.abc import Callable

from hack.cluster.certificates import API, NODE, SERVICE_CIDR
from hack.cluster.machine import CGROUP, NODE_IP, POD_CIDR, Processes, quiet, run
from hack.image.oci import PAUSE_NAME, write_pause

DNS_IP = "10.96.0.10"
CNI_BIN = "/usr/lib/cni"


class Components:
    """Starts components that are not running, each with its configuration in the state folder."""

    def __init__(self, state: pathlib.Path, binary: Callable[[str], pathlib.Path]) -> None:
        self.dir = state
        self.binary = binary
        self.pki, self.etc, self.log = state / "pki", state / "etc", state / "log"
        self.socket = state / "containerd.sock"
        self.processes = Processes(state / "pid", self.log, state)

    def write(self, name: str, content: object) -> pathlib.Path:
        path = self.etc / name
        text = content if isinstance(content, str) else json.dumps(content, indent=1)
        if not path.exists() or path.read_text() != text:  # kube-proxy ends itself when its file is touched
            path.write_text(text)
        return path

    def ctr(self, *arguments: object) -> str:
        """containerd's own client, in the namespace kubelet uses; returns what it printed."""
        return run("ctr", "--address", self.socket, "--namespace", "k8s.io", *arguments, capture_output=True).stdout

    def etcd(self) -> None:
        self.processes.start(
            "etcd", self.binary("etcd"), "--data-dir", self.dir / "etcd", "--name", "etcd",
            "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
            "--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync", "--log-level", "warn",
        )  # fmt: skip

    def containerd(self) -> None:
        (self.etc / "cni").mkdir(exist_ok=True)
        ranges = [[{"subnet": POD_CIDR}]]
        ipam = {"type": "host-local", "dataDir": str(self.dir / "ipam"), "ranges": ranges,
                "routes": [{"dst": "0.0.0.0/0"}]}  # fmt: skip
        plugins = [{"type": "ptp", "ipMasq": False, "ipam": ipam}]
        self.write("cni/10-ptp.conflist", {"cniVersion": "1.0.0", "name": "pods", "plugins": plugins})
        config = self.write("containerd.toml", self._containerd_config())
        self.processes.start("containerd", "containerd", "--config", config)
        self.processes.wait("containerd", lambda: quiet("ctr", "--address", self.socket, "version"))
        if PAUSE_NAME not in self.ctr("images", "ls", "-q").split():
            pause = self.dir / "pause.tar"
            write_pause(pause)
            self.ctr("images", "import", "--digests=false", pause)

    def _containerd_config(self) -> str:
        return textwrap.dedent(f"""\
            version = 2
            root = "{self.dir}/containerd"
            state = "{self.dir}/run"
            disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
              "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper",
              "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
            [grpc]
              address = "{self.socket}"
            [plugins."io.containerd.internal.v1.opt"]
              path = "{self.dir}/containerd/opt"
            [plugins."io.containerd.grpc.v1.cri"]
              sandbox_image = "{PAUSE_NAME}"
              restrict_oom_score_adj = true        # lowering oom_score_adj needs CAP_SYS_RESOURCE
              netns_mounts_under_state_dir = true
              [plugins."io.containerd.grpc.v1.cri".cni]
                bin_dir = "{CNI_BIN}"
                conf_dir = "{self.etc}/cni"
              [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
                runtime_type = "io.containerd.runc.v2"
                [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
                  Root = "{self.dir}/runc"
                  SystemdCgroup = false
            """)

    def apiserver(self) -> None:
        pki = self.pki
        self.processes.start(
            "kube-apiserver", self.binary("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={NODE_IP}", f"--advertise-address={NODE_IP}", "--secure-port=6443",
            f"--tls-cert-file={pki}/apiserver.crt", f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt", "--authorization-mode=Node,RBAC", "--anonymous-auth=false",
            "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true", "--profiling=false",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki}/service-account.key",
            f"--service-account-signing-key-file={pki}/service-account.key",
            f"--kubelet-certificate-authority={pki}/ca.crt",
            f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet.key", "--kubelet-preferred-address-types=InternalIP",
        )  # fmt: skip
        tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
        self.processes.wait("kube-apiserver", lambda: opener.open(f"{API}/readyz", timeout=5).status == 200)

    def controllers(self) -> None:
        pki, etc = self.pki, self.etc
        local = ["--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false"]
        self.processes.start(
            "kube-controller-manager", self.binary("kube-controller-manager"), *local,
            f"--kubeconfig={etc}/kube-controller-manager.kubeconfig", "--use-service-account-credentials=true",
            f"--service-account-private-key-file={pki}/service-account.key", f"--root-ca-file={pki}/ca.crt",
            f"--cluster-signing-cert-file={pki}/ca.crt", f"--cluster-signing-key-file={pki}/ca.key",
            f"--flex-volume-plugin-dir={self.dir}/volumeplugins",
        )  # fmt: skip
        self.processes.start(
            "kube-scheduler", self.binary("kube-scheduler"), *local, f"--kubeconfig={etc}/kube-scheduler.kubeconfig"
        )

    def kubelet(self) -> None:
        pki = self.pki
        config = self.write(
            "kubelet.json",
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "address": NODE_IP,
                "healthzBindAddress": "127.0.0.1",
                "tlsCertFile": f"{pki}/kubelet-server.crt",
                "tlsPrivateKeyFile": f"{pki}/kubelet-server.key",
                "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": f"{pki}/ca.crt"}},
                "authorization": {"mode": "Webhook"},
                "containerRuntimeEndpoint": f"unix://{self.socket}",
                "failCgroupV1": False,  # machines with cgroup v1 are welcome
                "cgroupDriver": "cgroupfs",  # there may be no systemd
                "cgroupRoot": f"/{CGROUP}",
                "failSwapOn": False,
                "makeIPTablesUtilChains": False,  # kube-proxy uses nftables
                "clusterDNS": [DNS_IP],
                "clusterDomain": "cluster.local",
                "resolvConf": "/etc/resolv.conf",
                "podLogsDir": f"{self.log}/pods",
                "volumePluginDir": f"{self.dir}/volumeplugins",
                "imageGCHighThresholdPercent": 100,  # never delete images: they can't be pulled again
                "evictionHard": {
                    "memory.available": "100Mi",
                    "nodefs.available": "1%",
                    "imagefs.available": "1%",
                    "nodefs.inodesFree": "1%",
                },
                "registryPullQPS": 0,
                "eventRecordQPS": 0,
                "maxPods": 200,
                "syncFrequency": "10s",
                "nodeStatusUpdateFrequency": "5s",
            },
        )
        self.processes.start(
            "kubelet", self.binary("kubelet"), f"--config={config}", f"--kubeconfig={self.etc}/kubelet.kubeconfig",
            f"--root-dir={self.dir}/kubelet", f"--hostname-override={NODE}", f"--node-ip={NODE_IP}",
        )  # fmt: skip

    def kube_proxy(self) -> None:
        config = self.write(
            "kube-proxy.json",
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "kind": "KubeProxyConfiguration",
                "mode": "nftables",
                "clientConnection": {"kubeconfig": f"{self.etc}/kube-proxy.kubeconfig"},
                "hostnameOverride": NODE,
                "clusterCIDR": POD_CIDR,
                "bindAddress": NODE_IP,
                "healthzBindAddress": "127.0.0.1:10256",
                "metricsBindAddress": "127.0.0.1:10249",
                "nftables": {"minSyncPeriod": "100ms"},
                # the machine's conntrack settings stay as they are
                "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            },
        )
        self.processes.start("kube-proxy", self.binary("kube-proxy"), f"--config={config}")

    def coredns(self, kubeconfig: pathlib.Path) -> None:
        """CoreDNS is a process of the machine on NODE_IP; the Service kube-dns leads there."""
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": _dns_objects()})
        run(self.binary("kubectl"), "--kubeconfig", kubeconfig, "apply", "-f", "-", input=items, capture_output=True)
        corefile = self.write("Corefile", textwrap.dedent(f"""\
            .:53 {{
                bind {NODE_IP}
                errors
                ready 127.0.0.1:8181
                kubernetes cluster.local in-addr.arpa ip6.arpa {{
                    kubeconfig {self.etc}/coredns.kubeconfig
                    ttl 5
                    fallthrough in-addr.arpa ip6.arpa
                }}
                cache 5
                forward . /etc/resolv.conf
            }}
            """))  # fmt: skip
        self.processes.start("coredns", self.binary("coredns"), "-conf", corefile)


def _dns_objects() -> list[dict[str, object]]:
    rbac, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    watched: list[dict[str, object]] = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    return [
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "system:coredns"}, "rules": watched},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:coredns"},
            "subjects": [{"kind": "User", "name": "system:coredns", "apiGroup": group}],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {"clusterIP": DNS_IP, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "addressType": "IPv4",
            "metadata": {
                "name": "kube-dns",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "ports": ports,
            "endpoints": [{"addresses": [NODE_IP], "conditions": {"ready": True}}],
        },
    ]
