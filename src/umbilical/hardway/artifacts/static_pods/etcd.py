"""etcd: the bootstrap node's first member, and in the kubernetes profile one on every master that joins it."""

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
from umbilical.manifests.static_pod import Component, HostFile, Place, probe, static_pod

PROGRAM: Final = "etcd"
BOOTSTRAP_MEMBER: Final = "etcd-bootstrap"
"""OpenShift's etcd operator looks for this very name when it removes the member."""
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
    """Name those that are members when this one starts, and itself: masters join one after the other."""
    masters = list(placement.cluster.masters)
    joined = [] if placement.is_bootstrap else masters[: masters.index(placement.node) + 1]
    return ",".join(f"{member_name(node)}={peer_url(node)}" for node in [placement.cluster.bootstrap, *joined])


def _listen(port: int) -> Any:
    return lambda placement: url(placement.every_address, port)


def _metrics(placement: PodPlacement) -> str:
    if placement.is_openshift:
        return url(placement.every_address, OPENSHIFT_METRICS_PORT)
    return f"http://{_LOOPBACK}:{METRICS_PORT}"


_LEARNERS: Final = "all masters may be added before the first of them is promoted"
_TOO_MANY: Final = "the second master is refused: too many learner members in cluster"
_CORRUPTION: Final = "a member compares its data with the others' before it serves"
_DIFFERS: Final = "a member whose disk lost something answers from what is left"

FLAGS: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "name",
        lambda placement: member_name(placement.node),
        "the member's name; etcd-bootstrap is the one that OpenShift's etcd operator searches and removes at the end",
        "under another name the operator never finds the bootstrap member, and it stays for ever",
    ),
    FlagRow(
        "data-dir",
        layout.ETCD_DATA,
        "where log and snapshots lie; on the host, so that they outlive the container",
        "a restarted container begins with an empty cluster",
    ),
    FlagRow(
        "listen-client-urls",
        _listen(ETCD_CLIENT_PORT),
        "kube-apiserver asks by localhost, operators and etcdctl by the node's address",
        "on loopback alone, nobody on another node can ask for the list of members",
    ),
    FlagRow(
        "advertise-client-urls",
        lambda placement: client_url(placement.node),
        "what other members tell clients about this one",
        "with a wildcard here `etcdctl --cluster` asks 0.0.0.0, which is whoever asks",
    ),
    FlagRow(
        "listen-peer-urls",
        _listen(ETCD_PEER_PORT),
        "masters join over it",
        "dial tcp ...:2380: connection refused on every master",
    ),
    FlagRow(
        "initial-advertise-peer-urls",
        lambda placement: peer_url(placement.node),
        "by which the others know this member; it must stand in --initial-cluster in the same words",
        "etcd exits: --initial-cluster has ... but missing from --initial-advertise-peer-urls",
    ),
    FlagRow(
        "initial-cluster",
        initial_cluster,
        "who is a member when this one starts: itself, and on a master those that joined before",
        "etcd exits: member count is unequal",
    ),
    FlagRow(
        "initial-cluster-state",
        lambda placement: "new" if placement.is_bootstrap else "existing",
        "the bootstrap member founds the cluster, every other one joins it",
        "with `new` a master founds a second cluster, with an empty key space",
    ),
    FlagRow(
        "initial-cluster-token",
        by_profile(openshift="openshift-etcd", kubernetes="hardway-etcd"),
        "part of the cluster's id, so that members of two clusters never mix",
        "two clusters that are built from one config share an id",
    ),
    FlagRow(
        "cert-file",
        lambda placement: certificate(f"etcd-serving-{placement.node.id}"),
        "shown to clients. It is used as a client too: etcd dials its own port, so it needs both usages",
        "with serverAuth alone the log repeats: certificate specifies an incompatible key usage",
    ),
    FlagRow(
        "key-file",
        lambda placement: key(f"etcd-serving-{placement.node.id}"),
        "the key of --cert-file",
        "etcd exits: tls: private key does not match public key, or no such file",
    ),
    FlagRow(
        "client-cert-auth",
        "true",
        "no client without a certificate: whoever reads etcd reads every Secret",
        "anybody who reaches port 2379 owns the cluster",
    ),
    FlagRow(
        "trusted-ca-file",
        bundle(Bundle.ETCD_CA),
        "who signs for clients: etcd's own signer and no other",
        "kube-apiserver's calls end with: tls: bad certificate",
    ),
    FlagRow(
        "peer-cert-file",
        lambda placement: certificate(f"etcd-peer-{placement.node.id}"),
        "shown to other members, as server and as client; it must have the node's address",
        "rejected connection on peer endpoint",
    ),
    FlagRow(
        "peer-key-file",
        lambda placement: key(f"etcd-peer-{placement.node.id}"),
        "the key of --peer-cert-file",
        "etcd exits: tls: private key does not match public key, or no such file",
    ),
    FlagRow(
        "peer-client-cert-auth",
        "true",
        "no member without a certificate",
        "whoever reaches port 2380 can join the raft group",
    ),
    FlagRow(
        "peer-trusted-ca-file",
        bundle(Bundle.ETCD_CA),
        "who signs for members; the etcd operator goes on with this very signer, or new members are strangers",
        "masters never join: x509: certificate signed by unknown authority",
    ),
    FlagRow(
        "quota-backend-bytes",
        str(QUOTA_BYTES),
        "the largest size that etcd calls normal; its default of 2 GiB is reached by a busy cluster",
        "mvcc: database space exceeded, and the API is read-only",
    ),
    FlagRow(
        "listen-metrics-urls",
        _metrics,
        "health and metrics on a port of their own; without TLS on loopback, because a kubelet's probe has no client "
        "certificate to show (OpenShift's port is TLS: there the probe is etcdctl)",
        "the kubelet cannot see whether etcd lives",
    ),
    FlagRow("max-learners", lambda placement: str(len(placement.cluster.masters)), _LEARNERS, _TOO_MANY, on_kubernetes),
    FlagRow("feature-gates", "InitialCorruptCheck=true", _CORRUPTION, _DIFFERS, on_kubernetes),
    FlagRow(
        "logger",
        "zap",
        "one JSON object a line, which log collectors read",
        "nothing: etcd 3.5 and later know no other, and the operator says it all the same",
        on_openshift,
    ),
)

# As variables and not as flags: etcd ends at a flag that its version does not know, and only warns at a variable.
ENVIRONMENT: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "ETCD_CIPHER_SUITES",
        ",".join(CIPHER_SUITES),
        "forward secrecy and authenticated encryption only, for TLS 1.2 (1.3 has no other)",
        "weaker suites are offered, which scanners complain about",
    ),
    FlagRow(
        "ETCD_HEARTBEAT_INTERVAL",
        "100",
        "milliseconds between a leader's signs of life; the operator's members have the same",
        "members that differ in this elect leaders against each other",
        on_openshift,
    ),
    FlagRow(
        "ETCD_ELECTION_TIMEOUT",
        "1000",
        "milliseconds without one until a new leader is elected; ten heartbeats",
        "too short on a slow disk: `lost leader` again and again, and the API hangs each time",
        on_openshift,
    ),
    FlagRow(
        "ETCD_ENABLE_PPROF",
        "true",
        "profiles for whoever has to find out why it is slow",
        "/debug/pprof answers 404 on the day when somebody needs it",
        on_openshift,
    ),
    FlagRow(
        "ETCD_SOCKET_REUSE_ADDRESS",
        "true",
        "a restarted member binds at once, although old connections linger",
        "bind: address already in use for a minute",
        on_openshift,
    ),
    FlagRow(
        "ETCD_MAX_LEARNERS", lambda placement: str(len(placement.cluster.masters)), _LEARNERS, _TOO_MANY, on_openshift
    ),
    FlagRow(
        "ETCD_EXPERIMENTAL_MAX_LEARNERS",
        lambda placement: str(len(placement.cluster.masters)),
        f"{_LEARNERS}; etcd 3.5 knows it by this name",
        _TOO_MANY,
        on_openshift,
    ),
    FlagRow("ETCD_EXPERIMENTAL_INITIAL_CORRUPT_CHECK", "true", _CORRUPTION, _DIFFERS, on_openshift),
)

ETCD: Final = ProgramFlags(
    PROGRAM,
    FLAGS,
    "the etcd operator's render command writes the bootstrap member's pod; on masters its installer pods write one "
    "for each revision",
    ENVIRONMENT,
)


def etcd_pod(placement: PodPlacement) -> dict[str, Any]:
    component = Component(
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
    namespace = "openshift-etcd" if placement.is_openshift else Place.namespace
    return static_pod(component, place=Place(BOOTSTRAP_MEMBER if placement.is_bootstrap else PROGRAM, namespace))


def _etcdctl_probe(placement: PodPlacement) -> dict[str, dict[str, Any]]:
    """Ask with the serving pair, as etcd asks itself: a pair without clientAuth is found out at once."""
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
    def ask(path: str, failures: int) -> dict[str, Any]:
        return probe("HTTP", _LOOPBACK, METRICS_PORT, path, period=5, failures=failures, timeout=10)

    # A learner is alive and not ready: /readyz asks for a read that only voters may serve. With it at the start a
    # member would be killed that waits for its promotion.
    return {
        "startupProbe": ask("/livez", 60),
        "livenessProbe": ask("/livez", 8),
        "readinessProbe": ask("/readyz", 3),
    }
