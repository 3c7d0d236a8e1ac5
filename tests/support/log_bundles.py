"""Log bundles as an installer gathers them, written in our own words: records, journals, logs, certificates."""

import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, client_profile, server_profile

ROOT: Final = "log-bundle-20261115150000"
BEGIN: Final = datetime(2026, 11, 15, 14, 0, tzinfo=UTC)
BEFORE: Final = ("openshift-manifests", "cvo-bootstrap", "etcd-bootstrap")
STAGES: Final = (
    *BEFORE,
    "konnectivity-certs",
    "konnectivity-server-bootstrap",
    "kube-apiserver-bootstrap",
    "konnectivity-agent-manifest",
    "cb-bootstrap",
    "wait-for-ceo",
    "konnectivity-cleanup",
)
JOURNAL: Final = "bootstrap/journals/bootkube.log"
SERVER_LOG: Final = "bootstrap/containers/konnectivity-server-0a1b2c.log"
APISERVER_LOG: Final = "bootstrap/containers/kube-apiserver-3d4e5f.log"
AGENT_LOG: Final = "control-plane/10.0.0.5/containers/konnectivity-agent-6a7b8c.log"
EVENTS: Final = "resources/events.json"
DAEMON_SET: Final = "rendered-assets/openshift/manifests/konnectivity-agent-daemonset.yaml"
APISERVER_CONFIG: Final = "rendered-assets/openshift/kube-apiserver-bootstrap/config"
NETWORKS: Final = "rendered-assets/openshift/manifests/cluster-network-02-config.yml"
OWN_PKI: Final = "rendered-assets/openshift/umbilical/pki"


class Record:
    """The record of one service, as its script appends to it; every entry is a second later."""

    def __init__(self, begin: datetime = BEGIN) -> None:
        self.entries: list[dict[str, str]] = []
        self._now = begin

    def add(self, phase: str, result: str = "", stage: str = "", line: str = "", message: str = "") -> "Record":
        keys = ("timestamp", "phase", "result", "stage", "errorLine", "errorMessage")
        values = (f"{self._now:%Y-%m-%dT%H:%M:%SZ}", phase, result, stage, line, message)
        self.entries.append({key: value for key, value in zip(keys, values, strict=True) if value})
        self._now += timedelta(seconds=1)
        return self

    def start(self) -> "Record":
        return self.add("service start")

    def done(self, *stages: str) -> "Record":
        for stage in stages:
            self.add("stage start", stage=stage).add("stage end", "success", stage)
        return self

    def enters(self, stage: str) -> "Record":
        return self.add("stage start", stage=stage)

    def fails(self, stage: str, message: str = "it did not work", line: str = "231 main bootkube.sh") -> "Record":
        """The stage fails, and with it the run."""
        self.add("stage start", stage=stage).add("stage end", "failure", stage, line, message)
        return self.add("service end", "failure", "", line, message)

    def stumbles(self, stage: str) -> "Record":
        """The stage fails, and the run goes on."""
        return self.add("stage start", stage=stage).add("stage end", "failure", stage, "1 main x.sh", "no such host")

    def ends_well(self) -> "Record":
        return self.add("service end", "success")

    def content(self) -> bytes:
        return json.dumps(self.entries, indent=2).encode() + b"\n"


WITHOUT_TUNNEL: Final = tuple(stage for stage in STAGES if not stage.startswith("konnectivity-"))
EGRESS_ARGUMENT: Final = ("  egress-selector-config-file:", "  - /etc/kubernetes/config/egress-selector-config.yaml")


def good_record() -> Record:
    return Record().start().done(*STAGES).ends_well()


class BundleBuilder:
    """Files by their path in the bundle."""

    def __init__(self, bootkube: Record | None = None) -> None:
        self.files: dict[str, bytes] = {"gather.log": b"Gathering ...\n", "failed-units.txt": b"\n"}
        if bootkube is not None:
            self.record("bootkube", bootkube)
            self.record("release-image", Record().start().done("pull-release-image").ends_well())

    def record(self, service: str, record: Record) -> "BundleBuilder":
        self.files[f"bootstrap/services/{service}.json"] = record.content()
        return self

    def log(self, path: str, *lines: str) -> "BundleBuilder":
        text = "".join(f"{line}\n" for line in lines).encode()
        self.files[path] = gzip.compress(text) if path.endswith(".gz") else text
        return self

    def resource(self, path: str, *items: Mapping[str, Any]) -> "BundleBuilder":
        self.files[path] = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=4).encode()
        return self

    def event(self, message: str) -> "BundleBuilder":
        return self.resource(EVENTS, {"kind": "Event", "reason": "FailedCreate", "message": message})

    def agents(self, host: str, port: int = 8091) -> "BundleBuilder":
        arguments = f"        - --proxy-server-host={host}\n        - --proxy-server-port={port}\n"
        self.files[DAEMON_SET] = f"kind: DaemonSet\nspec:\n      - args:\n{arguments}".encode()
        return self

    def networks(self, pods: str = "10.128.0.0/14", services: str = "172.30.0.0/16") -> "BundleBuilder":
        lines = ("kind: Network", "spec:", "  clusterNetwork:", f"  - cidr: {pods}", "    hostPrefix: 23")
        return self.log(NETWORKS, *lines, "  networkType: OVNKubernetes", "  serviceNetwork:", f"  - {services}")

    def apiserver_config(self, *more: str) -> "BundleBuilder":
        """The configuration that the operator's render command wrote."""
        head = ("apiServerArguments:", "  enable-aggregator-routing:", '  - "true"')
        return self.log(APISERVER_CONFIG, *head, *more, "kind: KubeAPIServerConfig")

    def certificates(self, address: str, begin: datetime = BEGIN, folder: str = OWN_PKI) -> "BundleBuilder":
        """What is left of the node's PKI in a bundle: certificates without keys."""
        authority = Authority.create("konnectivity-signer", begin, timedelta(days=1), KeyType.ECDSA_P256)
        server = server_profile("konnectivity-server", [address], KeyType.ECDSA_P256)
        agent = client_profile("konnectivity-agent", (), KeyType.ECDSA_P256)
        for name, profile in (("server", server), ("agent", agent)):
            self.files[f"{folder}/{name}/ca.crt"] = authority.certificate_pem
            self.files[f"{folder}/{name}/tls.crt"] = authority.issue(profile, begin, timedelta(days=1)).certificate
        return self

    def archive(self, folder: Path, name: str = f"{ROOT}.tar.gz", root: str = ROOT) -> Path:
        path = folder / name
        path.write_bytes(self.packed(root))
        return path

    def packed(self, root: str = ROOT) -> bytes:
        return gzip.compress(tar_of((f"{root}/{path}", content) for path, content in self.files.items()), 1)

    def unpack(self, folder: Path) -> Path:
        for path, content in self.files.items():
            target = folder / ROOT / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        return folder / ROOT


def tar_of(files: Iterable[tuple[str, bytes]], tar_format: int = tarfile.GNU_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def klog(*messages: str) -> Sequence[str]:
    """Lines as Go's klog writes them."""
    return [f"E1115 14:10:0{number}.123456       1 main.go:48] {text}" for number, text in enumerate(messages)]
