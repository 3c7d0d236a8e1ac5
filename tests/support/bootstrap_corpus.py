"""Whole bootstrap configs as an installer writes them, one per release line and circumstance, for tests to patch.

One line of JSON with Go's escapes, base64 data URLs, the installer's modes and owners; and on request the forms
that only other tools write: gzip, percent-encoding, hashes, indentation, pointers.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final
from urllib.parse import quote

from tests.support.bootkube_companions import VERIFY_URLS, native_files
from tests.support.bootkube_script import NATIVE_RELEASES, RELEASES, Native, bootkube_script

from umbilical.lab.bootkube_script import BOOTKUBE_UNIT, CLUSTER_GATHER, RELEASE_IMAGE, SERVICE_RECORD
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType

__all__ = ["CORPUS", "NATIVE_RELEASES", "RELEASES", "Case", "bootstrap_config"]

BOOKKEEPING: Final = frozenset({"/etc/motd", "/etc/containers/containers.conf"})
"""Files that the installer appends to instead of writing."""
PADDING_CHUNK: Final = 60_000
INFRA_ID: Final = "cluster-x7k2p"


@dataclass(frozen=True)
class Case:
    """One config of the corpus, by what is special about it."""

    release: str = "4.18"
    native: Native = "none"
    ipv6: bool = False
    in_place: bool = False
    pointer: bool = False
    azure: bool = False
    gzip: bool = False
    percent: bool = False
    pretty: bool = False
    hashes: bool = False
    platform: str = "aws"
    padding_bytes: int = 0
    version: str = "3.2.0"

    def content(self) -> bytes:
        return bootstrap_config(**vars(self))

    def __str__(self) -> str:
        special = [name for name, value in vars(self).items() if value is True]
        native = [] if self.native == "none" else [f"native-{self.native}"]
        return "-".join([self.release, *native, *special])


def _patchable() -> Iterator[Case]:
    for release in RELEASES:
        yield Case(release)
        if release in NATIVE_RELEASES:
            yield Case(release, native="off")
    yield Case("4.16", ipv6=True)
    yield Case("5.1", native="off", ipv6=True)
    yield Case("4.17", azure=True, platform="azure")
    for name in ("gzip", "percent", "pretty", "hashes"):
        yield Case("4.19", **{name: True})  # type: ignore[arg-type]
    yield Case("4.20", gzip=True, hashes=True, pretty=True)
    yield Case("4.21", percent=True, hashes=True)


CORPUS: Final = tuple(_patchable())
"""Every config that must be patchable. What must be refused is asked for by name: in_place, pointer, native on."""


def bootstrap_config(
    release: str = "4.18",
    *,
    native: Native = "none",
    ipv6: bool = False,
    in_place: bool = False,
    pointer: bool = False,
    azure: bool = False,
    gzip: bool = False,
    percent: bool = False,
    pretty: bool = False,
    hashes: bool = False,
    platform: str = "aws",
    padding_bytes: int = 0,
    version: str = "3.2.0",
    script: str | None = None,
    extra_files: tuple[dict[str, Any], ...] = (),
) -> bytes:
    """Write one config. `script` stands in for bootkube.sh; `extra_files` are entries as they are, at the end."""
    encoding = _Encoding(gzip=gzip, percent=percent, hashes=hashes)
    bootkube = bootkube_script(release, native=native, in_place=in_place) if script is None else script
    texts = _texts(bootkube, native=native, ipv6=ipv6, platform=platform, release=release)
    files = [encoding.entry(path, text) for path, text in texts.items()]
    files += [encoding.entry(path, text) for path, text in _padding(padding_bytes).items()]
    value: dict[str, Any] = {
        "ignition": {"version": version, **(_POINTER if pointer else {})},
        "passwd": _PASSWD,
        "storage": {**(_AZURE_STORAGE if azure else {}), "files": [*files, *extra_files]},
        "systemd": {"units": [*_UNITS, *([_VAR_MOUNT] if azure else [])]},
    }
    return go_json(value, indent=2 if pretty else None)


def go_json(value: Any, indent: int | None = None) -> bytes:
    """Write JSON as Go does: no blanks, non-ASCII as it is, and no character that would mean something in HTML."""
    separators = None if indent else (",", ":")
    text = json.dumps(value, ensure_ascii=False, separators=separators, indent=indent)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


@dataclass(frozen=True)
class _Encoding:
    gzip: bool
    percent: bool
    hashes: bool

    def entry(self, path: str, text: str) -> dict[str, Any]:
        resource = self._resource(text.encode())
        node = {"overwrite": path not in BOOKKEEPING, "path": path, "user": {"name": "root"}}
        if path in BOOKKEEPING:
            return {**node, "append": [resource], "mode": _mode(path)}
        return {**node, "contents": resource, "mode": _mode(path)}

    def _resource(self, content: bytes) -> dict[str, Any]:
        payload = gzip.compress(content, mtime=0) if self.gzip else content
        if self.percent:
            source = "data:," + quote(payload, safe="/:;=@")
        else:
            kind = "application/x-gzip" if self.gzip else "text/plain;charset=utf-8"
            source = f"data:{kind};base64,{base64.b64encode(payload).decode()}"
        return {
            **({"compression": "gzip"} if self.gzip else {}),
            "source": source,
            **({"verification": {"hash": f"sha512-{hashlib.sha512(content).hexdigest()}"}} if self.hashes else {}),
        }


def _mode(path: str) -> int:
    folder = path.rsplit("/", 2)[-2]
    if folder in {"bin", "dispatcher.d", "system-generators"}:
        return 0o555
    is_manifest = folder in {"manifests", "openshift"} and path.count("/") > 3
    is_public = path in BOOKKEEPING or path.endswith(("/registries.conf", "/root-ca.crt"))
    return 0o644 if is_manifest or is_public else 0o600


def _texts(bootkube: str, *, native: Native, ipv6: bool, platform: str, release: str) -> dict[str, str]:
    certificate, key = _throwaway_pair()
    own = native_files(native, ipv6=ipv6)
    return {
        "/etc/containers/containers.conf": '[containers]\nlog_driver = "k8s-file"\n',
        "/etc/motd": "This machine brings a cluster up and goes away.\n",
        "/etc/containers/registries.conf": 'unqualified-search-registries = ["registry.example"]\n',
        **{path: text for path, text in own.items() if path.startswith("/opt/")},
        "/usr/local/bin/bootkube.sh": bootkube,
        "/usr/local/bin/bootstrap-cluster-gather.sh": CLUSTER_GATHER,
        "/usr/local/bin/bootstrap-service-record.sh": SERVICE_RECORD,
        "/usr/local/bin/bootstrap-verify-api-server-urls.sh": VERIFY_URLS,
        **{path: text for path, text in own.items() if path.startswith("/usr/")},
        "/usr/local/bin/release-image.sh": RELEASE_IMAGE,
        "/usr/local/bin/empty.sh": "",
        **_manifests(ipv6, platform, release),
        "/opt/openshift/auth/kubeconfig": _kubeconfig("api-int.cluster.example"),
        "/opt/openshift/auth/kubeconfig-loopback": _kubeconfig("localhost"),
        "/opt/openshift/tls/kube-apiserver-lb-server.crt": certificate,
        "/opt/openshift/tls/kube-apiserver-lb-server.key": key,
        "/opt/openshift/tls/root-ca.crt": certificate,
    }


def _manifests(ipv6: bool, platform: str, release: str) -> dict[str, str]:
    networks = _networks(ipv6)
    config = _install_config(networks, platform)
    indented = "".join(f"    {line}\n" for line in config.splitlines())
    return {
        "/opt/openshift/manifests/cluster-config.yaml": (
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cluster-config-v1\n  namespace: kube-system\n"
            f"data:\n  install-config: |\n{indented}"
        ),
        "/opt/openshift/manifests/cluster-network-02-config.yml": (
            "apiVersion: config.openshift.io/v1\nkind: Network\nmetadata:\n  name: cluster\nspec:\n"
            f"  clusterNetwork:\n  - cidr: {networks['cluster']}\n    hostPrefix: {networks['prefix']}\n"
            f"  networkType: OVNKubernetes\n  serviceNetwork:\n  - {networks['service']}\n"
        ),
        "/opt/openshift/manifests/cluster-infrastructure-02-config.yml": (
            "apiVersion: config.openshift.io/v1\nkind: Infrastructure\nmetadata:\n  name: cluster\n"
            f"status:\n  infrastructureName: {INFRA_ID}\n"
        ),
        "/opt/openshift/openshift/openshift-install-manifests.yaml": (
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: openshift-install-manifests\n"
            f"  namespace: openshift-config\ndata:\n  invoker: user\n  version: v{release}.3\n"
        ),
        "/opt/openshift/openshift/99_cluster-note.yaml": (
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: note\n  namespace: kube-system\n"
        ),
    }


def _networks(ipv6: bool) -> dict[str, str]:
    if ipv6:
        return {"machine": "fd2e:6f44:5dd8::/64", "service": "fd02::/112", "cluster": "fd01::/48", "prefix": "64"}
    return {"machine": "10.0.0.0/16", "service": "172.30.0.0/16", "cluster": "10.128.0.0/14", "prefix": "23"}


def _install_config(networks: dict[str, str], platform: str) -> str:
    return f"""\
apiVersion: v1
baseDomain: example
metadata:
  name: cluster
networking:
  clusterNetwork:
  - cidr: {networks["cluster"]}
    hostPrefix: {networks["prefix"]}
  machineNetwork:
  - cidr: {networks["machine"]}
  networkType: OVNKubernetes
  serviceNetwork:
  - {networks["service"]}
platform:
  {platform}: {{}}
pullSecret: ""
"""


def _kubeconfig(host: str) -> str:
    return f"apiVersion: v1\nkind: Config\nclusters:\n- name: cluster\n  cluster:\n    server: https://{host}:6443\n"


@cache
def _throwaway_pair() -> tuple[str, str]:
    """Draw one certificate for all: installers' own ones live for a day from now."""
    authority = Authority.create("root-ca", datetime.now(UTC), timedelta(days=1), key_type=KeyType.ECDSA_P256)
    return authority.certificate_pem.decode(), "-----BEGIN PRIVATE KEY-----\nbm90IGEga2V5\n-----END PRIVATE KEY-----\n"


def _padding(count: int) -> dict[str, str]:
    """Manifests of that many bytes in all, as clusters with many of them have."""
    texts = {}
    for number, start in enumerate(range(0, count, PADDING_CHUNK)):
        size = min(PADDING_CHUNK, count - start)
        texts[f"/opt/openshift/openshift/99_padding-{number:03}.yaml"] = ("# padding\n" * (size // 10 + 1))[:size]
    return texts


_POINTER: Final = {"config": {"replace": {"source": "https://storage.example/bootstrap.ign"}}}
_PASSWD: Final = {
    "users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3Nza core", "ssh-rsa AAAAB3Nza generated"]}]
}
_KUBELET_UNIT: Final = """\
[Service]
ExecStartPre=/bin/bash -c "mkdir --parents /etc/kubernetes/manifests && echo <ready> >/run/kubelet-note"
ExecStart=/usr/bin/kubelet --pod-manifest-path=/etc/kubernetes/manifests

[Install]
WantedBy=multi-user.target
"""
_UNITS: Final[tuple[dict[str, Any], ...]] = (
    {
        "contents": "[Service]\nExecStart=/usr/local/bin/approve-csr.sh\n",
        "enabled": True,
        "name": "approve-csr.service",
    },
    {"contents": BOOTKUBE_UNIT, "name": "bootkube.service"},
    {"contents": _KUBELET_UNIT, "enabled": True, "name": "kubelet.service"},
    {
        "dropins": [{"contents": "[Service]\nEnvironment=PROGRESS=yes\n", "name": "10-progress.conf"}],
        "enabled": True,
        "name": "progress.service",
    },
)
_AZURE_STORAGE: Final = {
    "disks": [{"device": "/dev/disk/by-id/coreos-boot-disk", "partitions": [{"label": "var", "startMiB": 102400}]}],
    "filesystems": [{"device": "/dev/disk/by-partlabel/var", "format": "xfs", "path": "/var"}],
}
_VAR_MOUNT: Final = {
    "contents": "[Mount]\nWhere=/var\nWhat=/dev/disk/by-partlabel/var\n",
    "enabled": True,
    "name": "var.mount",
}
