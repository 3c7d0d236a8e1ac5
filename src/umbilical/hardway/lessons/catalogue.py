"""All lessons in the order of the stages: certificates and manifests here, nodes in `node_lessons`."""

from collections.abc import Iterable
from typing import Any, Final

from umbilical.hardway.artifacts.infrastructure.places import HAPROXY_BOOTSTRAP, HAPROXY_FINAL
from umbilical.hardway.explain.entry import Explanation, ExplanationKind
from umbilical.hardway.lessons import node_lessons
from umbilical.hardway.lessons.lesson import (
    ArtifactCopy,
    Lesson,
    MissingArtifact,
    moved_away,
    plain_checks,
    without_tls,
)
from umbilical.hardway.lint.facts import BOTH, OPENSHIFT
from umbilical.pki.certificate import read_certificates
from umbilical.pki.profiles import Usage

_SERVICE: Final = "kube-apiserver-service-network-server"
_ALLOWED: Final = "requestheader-allowed-names=system:kube-apiserver-proxy"


def _without_bootstrap(scratch: ArtifactCopy) -> None:
    address = scratch.cluster.bootstrap.address
    seen = read_certificates(scratch.content(f"tls/{_SERVICE}.crt"))[0]
    scratch.reissue(_SERVICE, ip_addresses=tuple(one for one in seen.ip_addresses if one != address))


def _proxy_client(scratch: ArtifactCopy) -> None:
    scratch.edit_pod("bootstrap", "kube-apiserver-bootstrap.yaml", _ALLOWED, "requestheader-allowed-names=system:admin")


CERTIFICATE_LESSONS: Final[tuple[Lesson, ...]] = (
    Lesson(
        "etcd-serving",
        "etcd on the bootstrap node answers /health with true, but `etcdctl endpoint health` reports it as unhealthy. "
        "Its log repeats every second: rejected connection ... certificate specifies an incompatible key usage.",
        "etcd-serving-bootstrap has serverAuth without clientAuth; etcd also dials its own port with it.",
        "A serving certificate of etcd needs both usages: umbilical stage rotate etcd-serving-bootstrap.",
        ("PKI-01",),
        "etcd-serving-bootstrap.* lacks clientAuth",
        BOTH,
        lambda scratch: scratch.reissue("etcd-serving-bootstrap", usages=(Usage.SERVER,)),
    ),
    Lesson(
        "apiserver-localhost",
        "kube-apiserver runs, but on its node https://localhost:6443 fails: x509: certificate is valid for 127.0.0.1, "
        "not localhost. Controller-manager and scheduler never get a lease.",
        "The certificate kube-apiserver-localhost-server lacks the name localhost.",
        "A serving certificate needs all names that clients dial: umbilical stage rotate "
        "kube-apiserver-localhost-server.",
        ("PKI-02",),
        "kube-apiserver-localhost-server",
        BOTH,
        lambda scratch: scratch.reissue("kube-apiserver-localhost-server", dns_names=()),
    ),
    Lesson(
        "apiserver-bootstrap-address",
        "The API answers at its VIP; at the bootstrap node's own address it fails: x509: certificate is valid for ..., "
        "not that address. A load balancer that verifies certificates shows L6RSP.",
        "The certificate kube-apiserver-service-network-server, which is used for addresses, lacks the bootstrap "
        "node's.",
        f"umbilical stage rotate {_SERVICE}.",
        ("PKI-02",),
        _SERVICE,
        BOTH,
        _without_bootstrap,
    ),
    Lesson(
        "proxy-client",
        "The API works. Aggregated APIs answer Unauthorized, and `kubectl get apiservices` shows Available: False.",
        "--requestheader-allowed-names does not contain the name of the proxy client's certificate.",
        "--requestheader-allowed-names must contain the common name of aggregator-client: umbilical stage retry 7.",
        ("PKI-05",),
        "proxy client",
        BOTH,
        _proxy_client,
    ),
)


_API: Final = "kube-apiserver-bootstrap.yaml"
_CVO: Final = "cvo-bootstrap.yaml"


def _plain_checks(scratch: ArtifactCopy) -> None:
    for path in (HAPROXY_BOOTSTRAP, HAPROXY_FINAL):
        scratch.write(path, without_tls(scratch.content(path)))


def _without_status(path: str) -> Any:
    return lambda scratch: scratch.edit(path, lambda one: one.pop("status"))


def _endpoints(scratch: ArtifactCopy) -> None:
    def change(one: dict[str, Any]) -> None:
        one["metadata"].pop("annotations", None)
        one["data"] = {"bootstrapIP": str(scratch.cluster.bootstrap.address)}

    scratch.edit("manifests/06-etcd-endpoints.yaml", change)


def _another_port(scratch: ArtifactCopy) -> None:
    path = "manifests/08-tunnel.yaml"
    lines = scratch.content(path).decode().splitlines(keepends=True)
    marked = [line for line in lines if "--proxy-server-port=" in line]
    if not marked:
        raise MissingArtifact(f"--proxy-server-port in {path}")
    port = marked[0].partition("--proxy-server-port=")[2].strip()
    scratch.replace(path, f"--proxy-server-port={port}", "--proxy-server-port=8132")


MANIFEST_LESSONS: Final[tuple[Lesson, ...]] = (
    Lesson(
        "httpchk",
        "kube-apiserver answers on the node, but not through the load balancer: connection refused, or reset. Its "
        "statistics show every server DOWN, with L7STS or L7RSP.",
        "The load balancer's health check sends GET /readyz in plain HTTP to a TLS port.",
        "Every server line below `option httpchk` needs `check-ssl`: umbilical stage retry 2.",
        ("HA-01",),
        "plain HTTP",
        BOTH,
        _plain_checks,
        plain_checks(),
    ),
    Lesson(
        "feature-gate",
        "The cluster-version operator logs that feature gates changed, shuts down, and restarts in a loop. Machine "
        "configs are not rendered: missing desired version in featuregates.",
        "The FeatureGate `cluster` has no status.",
        "It must be created before the operator starts, with status.featureGates for the release's version: umbilical "
        "stage retry 7.",
        ("FG-02",),
        "status.featureGates",
        OPENSHIFT,
        _without_status("manifests/04-feature-gate.yaml"),
    ),
    Lesson(
        "infrastructure-status",
        "All manifests are applied without an error. The etcd operator logs: ControlPlaneTopology was not set, and "
        "adds no member.",
        "Infrastructure `cluster` has no status; kubectl apply would drop it too.",
        "The status needs a second request, to the status subresource: umbilical stage retry 7.",
        ("INF-01",),
        "controlPlaneTopology",
        OPENSHIFT,
        _without_status("manifests/05-infrastructure.yaml"),
    ),
    Lesson(
        "etcd-endpoints",
        "The bootstrap etcd runs. The etcd operator finds no members on masters, and adds none.",
        "etcd-endpoints has the bootstrap node's address as data, which is for members by their ids.",
        "It needs the annotation alpha.installer.openshift.io/etcd-bootstrap and no data: umbilical stage retry 7.",
        ("EE-01",),
        "etcd-bootstrap is None|has data",
        OPENSHIFT,
        _endpoints,
    ),
    Lesson(
        "etcd-name",
        "Four members are healthy and the bootstrap is marked complete, but the bootstrap member is never removed.",
        "The bootstrap member is not named etcd-bootstrap, which the etcd operator requires.",
        "Set exactly --name=etcd-bootstrap: umbilical stage retry 7.",
        ("ETC-01",),
        "--name=.* is not etcd-bootstrap",
        OPENSHIFT,
        lambda scratch: scratch.edit_pod(
            "bootstrap", "etcd-bootstrap.yaml", "--name=etcd-bootstrap", "--name=bootstrap"
        ),
    ),
    Lesson(
        "etcd-prefix",
        "The first master's kube-apiserver is ready, but serves an empty cluster: only its own namespaces, no nodes. "
        "The bootstrap node's kube-apiserver still serves all objects.",
        "The bootstrap node's kube-apiserver stores data below /registry, those of masters below kubernetes.io.",
        "Set --etcd-prefix=kubernetes.io on the bootstrap node: umbilical stage retry 7. Pivot condition P4 (all API "
        "servers read the same data) prevents a pivot in this state.",
        ("ETC-02",),
        "etcd-prefix",
        OPENSHIFT,
        lambda scratch: scratch.edit_pod("bootstrap", _API, "--etcd-prefix=kubernetes.io", "--etcd-prefix=/registry"),
    ),
    Lesson(
        "cluster-profile",
        "The cluster-version operator runs and applies nothing: no manifest of the release is for its profile.",
        "Its environment variable CLUSTER_PROFILE has a value that the release does not know.",
        "Set CLUSTER_PROFILE=self-managed-high-availability: umbilical stage retry 7.",
        ("CVO-03",),
        "CLUSTER_PROFILE",
        OPENSHIFT,
        lambda scratch: scratch.edit_pod("bootstrap", _CVO, "self-managed-high-availability", "self-managed"),
    ),
    Lesson(
        "dns-domain",
        "Most operators are Available, but not ingress, console and authentication.",
        "The DNS object has the base domain instead of the cluster's domain.",
        "spec.baseDomain must be NAME.BASEDOMAIN: umbilical stage retry 7.",
        ("DNS-01",),
        "baseDomain",
        OPENSHIFT,
        lambda scratch: scratch.edit(
            "manifests/05-dns.yaml", lambda one: one["spec"].update(baseDomain=scratch.cluster.base_domain)
        ),
    ),
    Lesson(
        "agent-port",
        "Webhooks in pods time out on the bootstrap node: context deadline exceeded. The tunnel's agents log "
        "connection refused and retry.",
        "Agents dial another port than the tunnel's server listens on.",
        "--proxy-server-port of agents must equal --agent-port of the server: umbilical stage retry 7.",
        ("KN-03",),
        "agents dial",
        BOTH,
        _another_port,
        moved_away(
            "konnectivity-server-pod.yaml",
            lambda cluster: [cluster.bootstrap.id],
            "The tunnel server's file is moved out of the static pod directory of the bootstrap node.",
        ),
    ),
)


LESSONS: Final[tuple[Lesson, ...]] = (*CERTIFICATE_LESSONS, *MANIFEST_LESSONS, *node_lessons.LESSONS)


def entries() -> Iterable[Explanation]:
    """Explain every lesson, with the solution."""
    return map(_entry, LESSONS)


def _entry(lesson: Lesson) -> Explanation:
    profiles = " and ".join(sorted(profile.value for profile in lesson.profiles))
    live = f" With --live: {lesson.live.cause}" if lesson.live is not None else ""
    return Explanation(
        ExplanationKind.LESSON,
        lesson.id,
        lesson.symptoms,
        scope=f"for {profiles}",
        readers=f"umbilical stage break {lesson.id} creates it; lint rule {' or '.join(lesson.rules)} detects it.",
        without=f"The cause: {lesson.cause}{live}",
        fix=lesson.permanent_fix,
        by_hand=f"umbilical stage break {lesson.id} --dir DIR; umbilical stage doctor --dir DIR",
    )
