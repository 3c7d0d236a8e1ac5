"""etcd: the first member on the bootstrap node, and in the kubernetes profile one member on every master."""

from typing import Any, Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.static_pods.placement import (
    FlagRow,
    PodPlacement,
    ProgramFlags,
    bundle,
    by_profile,
    certificate,
    key,
    on_kubernetes,
    on_openshift,
)
from umbilical.hardway.config.cluster import ClusterNode, NodeRole
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.control_plane_pods import METRICS_PORT, QUOTA_BYTES
from umbilical.manifests.control_plane_spec import ETCD_CLIENT_PORT, ETCD_PEER_PORT, url
from umbilical.manifests.static_pod import HostFile, PodComponent, PodMetadata, probe, static_pod

PROGRAM: Final = "etcd"
BOOTSTRAP_MEMBER: Final = "etcd-bootstrap"
"""OpenShift's etcd operator searches for exactly this name when it removes the member."""
OPENSHIFT_METRICS_PORT: Final = 9978
CIPHER_SUITES: Final = (
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
)
_LOOPBACK: Final = "127.0.0.1"
_GRACE_SECONDS: Final = 30


def member_name(node: ClusterNode) -> str:
    return BOOTSTRAP_MEMBER if node.role is NodeRole.BOOTSTRAP else node.name


def peer_url(node: ClusterNode) -> str:
    return url(node.address, ETCD_PEER_PORT)


def client_url(node: ClusterNode) -> str:
    return url(node.address, ETCD_CLIENT_PORT)


def initial_cluster(placement: PodPlacement) -> str:
    """List the members at this member's start, and itself: masters join one after the other."""
    masters = list(placement.cluster.masters)
    joined = [] if placement.is_bootstrap else masters[: masters.index(placement.node) + 1]
    return ",".join(f"{member_name(node)}={peer_url(node)}" for node in [placement.cluster.bootstrap, *joined])


def _listen(port: int) -> Any:
    return lambda placement: url(placement.every_address, port)


def _metrics(placement: PodPlacement) -> str:
    if placement.is_openshift:
        return url(placement.every_address, OPENSHIFT_METRICS_PORT)
    return f"http://{_LOOPBACK}:{METRICS_PORT}"


_LEARNERS: Final = "number of learners, so that all masters can be added before the first one is promoted"
_TOO_MANY: Final = "etcd rejects the second master: too many learner members in cluster"
_CORRUPTION: Final = "a member compares its data with the other members before it serves"
_DIFFERS: Final = "a member with lost data on its disk serves wrong answers"

FLAGS: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "name",
        lambda placement: member_name(placement.node),
        "the member's name; OpenShift's etcd operator searches for etcd-bootstrap and removes it at the end",
        "with another name the operator never finds the bootstrap member, and it is never removed",
    ),
    FlagRow(
        "data-dir",
        layout.ETCD_DATA,
        "directory of log and snapshots; on the host, so that they outlive the container",
        "a restarted container begins with an empty database",
    ),
    FlagRow(
        "listen-client-urls",
        _listen(ETCD_CLIENT_PORT),
        "kube-apiserver connects to localhost, operators and etcdctl to the node's address",
        "with loopback only, clients on other nodes get connection refused",
    ),
    FlagRow(
        "advertise-client-urls",
        lambda placement: client_url(placement.node),
        "the URL of this member that other members give to clients",
        "with a wildcard address `etcdctl --cluster` connects to 0.0.0.0, which is the local machine",
    ),
    FlagRow(
        "listen-peer-urls",
        _listen(ETCD_PEER_PORT),
        "the address on which other members connect",
        "masters log: dial tcp ...:2380: connection refused",
    ),
    FlagRow(
        "initial-advertise-peer-urls",
        lambda placement: peer_url(placement.node),
        "the URL of this member for other members; --initial-cluster must contain exactly the same URL",
        "etcd exits: --initial-cluster has ... but missing from --initial-advertise-peer-urls",
    ),
    FlagRow(
        "initial-cluster",
        initial_cluster,
        "the members when this one starts: itself, and on a master those that joined before",
        "etcd exits: member count is unequal",
    ),
    FlagRow(
        "initial-cluster-state",
        lambda placement: "new" if placement.is_bootstrap else "existing",
        "the bootstrap member creates the cluster, every other one joins it",
        "with `new` a master creates a second, empty cluster",
    ),
    FlagRow(
        "initial-cluster-token",
        by_profile(openshift="openshift-etcd", kubernetes="hardway-etcd"),
        "part of the cluster id, so that members of two clusters never mix",
        "two clusters with the same configuration have the same id",
    ),
    FlagRow(
        "cert-file",
        lambda placement: certificate(f"etcd-serving-{placement.node.id}"),
        "serving certificate for clients. etcd dials its own port with it, so it needs both usages",
        "with serverAuth alone etcd logs repeatedly: certificate specifies an incompatible key usage",
    ),
    FlagRow(
        "key-file",
        lambda placement: key(f"etcd-serving-{placement.node.id}"),
        "key of --cert-file",
        "etcd exits: tls: private key does not match public key, or no such file",
    ),
    FlagRow(
        "client-cert-auth",
        "true",
        "clients need a certificate: etcd contains every Secret",
        "anyone who reaches port 2379 controls the cluster",
    ),
    FlagRow(
        "trusted-ca-file",
        bundle(Bundle.ETCD_CA),
        "CA of the client certificates: only etcd's own signer",
        "kube-apiserver's requests fail: tls: bad certificate",
    ),
    FlagRow(
        "peer-cert-file",
        lambda placement: certificate(f"etcd-peer-{placement.node.id}"),
        "certificate for other members, as server and as client; it must contain the node's address",
        "etcd logs: rejected connection on peer endpoint",
    ),
    FlagRow(
        "peer-key-file",
        lambda placement: key(f"etcd-peer-{placement.node.id}"),
        "key of --peer-cert-file",
        "etcd exits: tls: private key does not match public key, or no such file",
    ),
    FlagRow(
        "peer-client-cert-auth",
        "true",
        "other members need a certificate",
        "anyone who reaches port 2380 can join the raft group",
    ),
    FlagRow(
        "peer-trusted-ca-file",
        bundle(Bundle.ETCD_CA),
        "CA of the members' certificates; the etcd operator must use the same signer for new members",
        "masters never join: x509: certificate signed by unknown authority",
    ),
    FlagRow(
        "quota-backend-bytes",
        str(QUOTA_BYTES),
        "maximum size of the database, the largest that etcd recommends; a busy cluster exceeds the default of 2 GiB",
        "mvcc: database space exceeded, and the API is read-only",
    ),
    FlagRow(
        "listen-metrics-urls",
        _metrics,
        "separate port for health and metrics; on loopback without TLS, because a kubelet's probe has no client "
        "certificate (OpenShift's port uses TLS, there the probe runs etcdctl)",
        "the kubelet cannot probe etcd",
    ),
    FlagRow("max-learners", lambda placement: str(len(placement.cluster.masters)), _LEARNERS, _TOO_MANY, on_kubernetes),
    FlagRow("feature-gates", "InitialCorruptCheck=true", _CORRUPTION, _DIFFERS, on_kubernetes),
    FlagRow(
        "logger",
        "zap",
        "log format: one JSON object per line",
        "nothing breaks: etcd 3.5 and later have no other logger; the operator sets it too",
        on_openshift,
    ),
)

# Variables instead of flags: etcd exits on a flag that its version does not know, but only warns about a variable.
ENVIRONMENT: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "ETCD_CIPHER_SUITES",
        ",".join(CIPHER_SUITES),
        "only cipher suites with forward secrecy and authenticated encryption, for TLS 1.2 (1.3 has no others)",
        "weaker suites are offered, which security scanners report",
    ),
    FlagRow(
        "ETCD_HEARTBEAT_INTERVAL",
        "100",
        "milliseconds between heartbeats of the leader; the operator's members have the same value",
        "members with different values cause needless elections",
        on_openshift,
    ),
    FlagRow(
        "ETCD_ELECTION_TIMEOUT",
        "1000",
        "milliseconds without a heartbeat until a new leader is elected; ten heartbeat intervals",
        "if it is too short for a slow disk: `lost leader` repeatedly, and the API hangs each time",
        on_openshift,
    ),
    FlagRow(
        "ETCD_ENABLE_PPROF",
        "true",
        "serve profiles at /debug/pprof, for performance problems",
        "/debug/pprof returns 404",
        on_openshift,
    ),
    FlagRow(
        "ETCD_SOCKET_REUSE_ADDRESS",
        "true",
        "a restarted member can bind its port at once, although old connections linger",
        "bind: address already in use, for a minute",
        on_openshift,
    ),
    FlagRow(
        "ETCD_MAX_LEARNERS", lambda placement: str(len(placement.cluster.masters)), _LEARNERS, _TOO_MANY, on_openshift
    ),
    FlagRow(
        "ETCD_EXPERIMENTAL_MAX_LEARNERS",
        lambda placement: str(len(placement.cluster.masters)),
        f"{_LEARNERS}; the name of ETCD_MAX_LEARNERS in etcd 3.5",
        _TOO_MANY,
        on_openshift,
    ),
    FlagRow("ETCD_EXPERIMENTAL_INITIAL_CORRUPT_CHECK", "true", _CORRUPTION, _DIFFERS, on_openshift),
)

ETCD: Final = ProgramFlags(
    PROGRAM,
    FLAGS,
    "the etcd operator's render command writes the bootstrap member's pod; on masters its installer pods write one pod "
    "per revision",
    ENVIRONMENT,
)


def etcd_pod(placement: PodPlacement) -> dict[str, Any]:
    component = PodComponent(
        name=PROGRAM,
        image=placement.image(PROGRAM),
        flags=ETCD.command_line(placement),
        files=(HostFile("etcd-data", layout.ETCD_DATA, "DirectoryOrCreate", is_writable=True), placement.secrets),
        probes=_etcdctl_probe(placement) if placement.is_openshift else _http_probes(),
        cpu="300m" if placement.is_openshift else "100m",
        memory="600Mi" if placement.is_openshift else "100Mi",
        grace_seconds=_GRACE_SECONDS,
        environment=ETCD.variables(placement),
    )
    namespace = "openshift-etcd" if placement.is_openshift else PodMetadata.namespace
    return static_pod(component, place=PodMetadata(BOOTSTRAP_MEMBER if placement.is_bootstrap else PROGRAM, namespace))


def _etcdctl_probe(placement: PodPlacement) -> dict[str, dict[str, Any]]:
    """Connect with the serving pair, as etcd itself does: a pair without clientAuth fails at once."""
    serving = f"etcd-serving-{placement.node.id}"
    command = [
        "etcdctl",
        f"--endpoints=https://localhost:{ETCD_CLIENT_PORT}",
        f"--cacert={bundle(Bundle.ETCD_CA)}",
        f"--cert={certificate(serving)}",
        f"--key={key(serving)}",
        *("endpoint", "health"),
    ]
    return {
        "livenessProbe": {
            "exec": {"command": command},
            "initialDelaySeconds": 45,
            "periodSeconds": 30,
            "timeoutSeconds": 30,
        }
    }


def _http_probes() -> dict[str, dict[str, Any]]:
    def http_probe(path: str, failures: int) -> dict[str, Any]:
        return probe("HTTP", _LOOPBACK, METRICS_PORT, path, period=5, failures=failures, timeout=10)

    # A learner is alive but not ready: /readyz needs a read that only voters serve. As a startup probe it would kill a
    # member that waits for its promotion.
    return {
        "startupProbe": http_probe("/livez", 60),
        "livenessProbe": http_probe("/livez", 8),
        "readinessProbe": http_probe("/readyz", 3),
    }
