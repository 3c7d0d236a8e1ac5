"""Clusters of the hard way for tests: resolved configs of both profiles, and what renderers are given with them."""

import ipaddress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from tests.support import release_names
from tests.support.release_directory import release_payload

from umbilical.hardway.artifacts.certificates import names
from umbilical.hardway.artifacts.inputs import ClusterIdentity, Inputs, ReleasePayload
from umbilical.hardway.config.cluster import (
    AddressRange,
    CertificateTerms,
    Cluster,
    ClusterAccess,
    ClusterNetworks,
    ClusterNode,
    ClusterProfile,
    Libvirt,
    MachineSize,
    MachinesKind,
    NodeRole,
    ReleaseSource,
)
from umbilical.hardway.config.resolving import UPSTREAM_VERSION
from umbilical.hardway.pki.certificate_set import HardwaySet
from umbilical.hardway.pki.renewal import renew
from umbilical.hardway.pki.table import TABLE
from umbilical.manifests.objects import IpNetwork
from umbilical.pki.authority import Authority
from umbilical.pki.control_plane_set import PkiKind, bare_key
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType

NOW: Final = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)
VERSION: Final = release_names.VERSION
DIGEST: Final = release_names.DIGEST
RELEASE_IMAGE: Final = release_names.RELEASE_IMAGE
TAGS: Final = release_names.TAGS
PROGRAMS: Final = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns"),
    *("apiserver-network-proxy",),
)
SSH_KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHardwayTestKeyHardwayTestKeyHardwayTestKey core@example"
PULL_SECRET: Final = b'{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"},"registry.redhat.io":{"auth":"dXNlcjpwYXNz"}}}'


def cluster(
    profile: ClusterProfile = ClusterProfile.OPENSHIFT, masters: int = 3, workers: int = 2, **changes: Any
) -> Cluster:
    """The resolved cluster with the defaults of cluster.yaml."""
    machine = ipaddress.ip_network("192.168.126.0/24")
    pods = ipaddress.ip_network("10.128.0.0/14")
    is_openshift = profile is ClusterProfile.OPENSHIFT
    pieces: list[IpNetwork] = list(pods.subnets(new_prefix=23))
    numbers = [
        ("bootstrap", NodeRole.BOOTSTRAP, 100),
        *((f"master-{index}", NodeRole.MASTER, 101 + index) for index in range(masters)),
        *((f"worker-{index}", NodeRole.WORKER, 110 + index) for index in range(workers)),
    ]
    nodes = tuple(
        ClusterNode(
            id=name,
            role=role,
            address=machine[number],
            name=f"{name}.ocp4.example.com",
            pod_network=None if is_openshift or role is NodeRole.BOOTSTRAP else pieces.pop(0),
        )
        for name, role, number in numbers
    )
    size = MachineSize(4, 16384, 100)
    values: dict[str, Any] = {
        "profile": profile,
        "name": "ocp4",
        "base_domain": "example.com",
        "networks": ClusterNetworks(
            machine=machine,
            pods=pods,
            services=ipaddress.ip_network("172.30.0.0/16"),
            host_prefix=23,
            gateway=machine[1],
            dns=machine[1],
            api_vip=machine[10],
            ingress_vip=machine[11],
            dhcp=AddressRange(machine[200], machine[254]),
        ),
        "nodes": nodes,
        "release": ReleaseSource(image=RELEASE_IMAGE, version=VERSION)
        if is_openshift
        else ReleaseSource(repository="localhost", tag="lab", version=UPSTREAM_VERSION),
        "machines": MachinesKind.LIBVIRT if is_openshift else MachinesKind.LAB,
        "access": ClusterAccess((SSH_KEY,), "pull-secret.json"),
        "libvirt": Libvirt("ocp4", "ocp4", "/var/lib/libvirt/images/ocp4", "virbr-ocp4", "eth0", "rhcos-live.iso"),
        "sizes": {NodeRole.BOOTSTRAP: size, NodeRole.MASTER: size, NodeRole.WORKER: MachineSize(4, 8192, 100)},
        "terms": CertificateTerms(KeyType.ECDSA_P256),
    }
    return Cluster(**{**values, **changes})


def payload(profile: ClusterProfile = ClusterProfile.OPENSHIFT) -> ReleasePayload:
    """Images of both profiles; OpenShift's has the manifests of the made-up release directory too."""
    if profile is ClusterProfile.KUBERNETES:
        return ReleasePayload(UPSTREAM_VERSION, "", {program: f"localhost/{program}:lab" for program in PROGRAMS})
    return release_payload()


def identity() -> ClusterIdentity:
    return ClusterIdentity(
        "6b3f4f9c-53a1-4d2e-9a5b-0c7de9a1f001",
        "ocp4-x7k2m",
        "AbCdE-FgHiJ-KmNoP-QrStU",
        "$2b$10$abcdefghijklmnopqrstuuJ4TnU8p7mXvA5s5qWcWm0gqF7hS0e2K",
    )


def hardway_set(profile: ClusterProfile = ClusterProfile.OPENSHIFT, masters: int = 3) -> HardwaySet:
    """The certificates of the cluster, made once: drawing the keys of tokens takes its time."""
    return _hardway_set(profile, masters)


@cache
def _hardway_set(profile: ClusterProfile, masters: int) -> HardwaySet:
    """Without defaults, which the cache would take for other arguments."""
    return certificates(cluster(profile, masters))


def certificates(of: Cluster, now: datetime = NOW) -> HardwaySet:
    """Certificates of any cluster. Keys of tokens, which are RSA, are those of another set."""
    return renew(names(of), _token_keys(), of.terms, now).set


@cache
def _token_keys() -> dict[str, KeyPair]:
    made = {}
    for row in TABLE:
        if row.kind is PkiKind.KEY:
            made[row.id] = bare_key(Authority.create(row.id, NOW, timedelta(days=1)))
    return made


def inputs(
    profile: ClusterProfile = ClusterProfile.OPENSHIFT, masters: int = 3, workers: int = 2, **changes: Any
) -> Inputs:
    """All that renderers are given; `changes` are fields of the cluster."""
    of = cluster(profile, masters, workers, **changes)
    made = certificates(of) if changes else hardway_set(profile, masters)
    return Inputs(of, made, payload(profile), identity(), PULL_SECRET)
