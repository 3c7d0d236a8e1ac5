"""All lessons, in the order in which their faults are met: certificates and manifests here, nodes in `node_lessons`."""

from collections.abc import Iterable
from typing import Any, Final

from umbilical.hardway.artifacts.infrastructure.places import HAPROXY_BOOTSTRAP, HAPROXY_FINAL
from umbilical.hardway.explain.entry import Explanation, ExplanationKind
from umbilical.hardway.lessons import node_lessons
from umbilical.hardway.lessons.lesson import ArtifactCopy, Lesson, NotThere, moved_away, plain_checks, without_tls
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
        "etcd on the bootstrap node answers /health with true, and `etcdctl endpoint health` calls it unhealthy. Its "
        "log has a line each second: rejected connection ... certificate specifies an incompatible key usage.",
        "etcd-serving-bootstrap has serverAuth and no clientAuth; etcd dials its own port with that very pair.",
        "Both usages for every certificate that etcd serves with: umbilical stage rotate etcd-serving-bootstrap.",
        ("PKI-01",),
        "etcd-serving-bootstrap.* lacks clientAuth",
        BOTH,
        lambda scratch: scratch.reissue("etcd-serving-bootstrap", usages=(Usage.SERVER,)),
    ),
    Lesson(
        "apiserver-localhost",
        "kube-apiserver runs, and whoever asks https://localhost:6443 on its own node is told: x509: certificate is "
        "valid for 127.0.0.1, not localhost. Controller-manager and scheduler never lead.",
        "kube-apiserver-localhost-server has no name localhost.",
        "All names that anybody dials belong into a serving certificate: umbilical stage rotate "
        "kube-apiserver-localhost-server.",
        ("PKI-02",),
        "kube-apiserver-localhost-server",
        BOTH,
        lambda scratch: scratch.reissue("kube-apiserver-localhost-server", dns_names=()),
    ),
    Lesson(
        "apiserver-bootstrap-address",
        "The API answers at its virtual address, and at the bootstrap node's own address: x509: certificate is valid "
        "for ..., not that one. The load balancer says L6RSP where it verifies.",
        "kube-apiserver-service-network-server, which is shown to whoever dials an address, lacks the bootstrap's.",
        f"umbilical stage rotate {_SERVICE}.",
        ("PKI-02",),
        _SERVICE,
        BOTH,
        _without_bootstrap,
    ),
    Lesson(
        "proxy-client",
        "The API works. Aggregated APIs answer Unauthorized, and `kubectl get apiservices` says Available: False.",
        "--requestheader-allowed-names has another name than the one in the proxy client's certificate.",
        "The common name of aggregator-client belongs into --requestheader-allowed-names: umbilical stage retry 7.",
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
        raise NotThere(f"--proxy-server-port in {path}")
    port = marked[0].partition("--proxy-server-port=")[2].strip()
    scratch.replace(path, f"--proxy-server-port={port}", "--proxy-server-port=8132")


MANIFEST_LESSONS: Final[tuple[Lesson, ...]] = (
    Lesson(
        "httpchk",
        "kube-apiserver answers on the node, and nobody gets through the load balancer: connection refused, or reset. "
        "Its statistics hold every server DOWN, with L7STS or L7RSP.",
        "The load balancer asks GET /readyz in plain HTTP of servers that speak TLS.",
        "`check-ssl` on every server line below `option httpchk`: umbilical stage retry 2.",
        ("HA-01",),
        "plain HTTP",
        BOTH,
        _plain_checks,
        plain_checks(),
    ),
    Lesson(
        "feature-gate",
        "The cluster-version operator starts, says that feature gates changed, requests its own shutdown, and begins "
        "anew; machine configs are not rendered: missing desired version in featuregates.",
        "The FeatureGate `cluster` has no status.",
        "It is created once, with status.featureGates for the release's version, before the operator: umbilical stage "
        "retry 7.",
        ("FG-02",),
        "status.featureGates",
        OPENSHIFT,
        _without_status("manifests/04-feature-gate.yaml"),
    ),
    Lesson(
        "infrastructure-status",
        "All manifests are applied without an error. The etcd operator says: ControlPlaneTopology was not set, and "
        "adds no member.",
        "Infrastructure `cluster` has no status; a plain apply would have dropped it as well.",
        "The status is written by a second request, to the status subresource: umbilical stage retry 7.",
        ("INF-01",),
        "controlPlaneTopology",
        OPENSHIFT,
        _without_status("manifests/05-infrastructure.yaml"),
    ),
    Lesson(
        "etcd-endpoints",
        "The bootstrap etcd runs. Its operator looks for members on masters, where none is, and adds none.",
        "etcd-endpoints names the bootstrap's address as data; data is for members, by their ids.",
        "An annotation, alpha.installer.openshift.io/etcd-bootstrap, and no data: umbilical stage retry 7.",
        ("EE-01",),
        "etcd-bootstrap is None|has data",
        OPENSHIFT,
        _endpoints,
    ),
    Lesson(
        "etcd-name",
        "Four members are healthy, the pivot is announced, and the bootstrap member is never removed.",
        "The bootstrap member has another name than etcd-bootstrap, for which its operator looks.",
        "--name=etcd-bootstrap, to the letter: umbilical stage retry 7.",
        ("ETC-01",),
        "--name=.* is not etcd-bootstrap",
        OPENSHIFT,
        lambda scratch: scratch.edit_pod(
            "bootstrap", "etcd-bootstrap.yaml", "--name=etcd-bootstrap", "--name=bootstrap"
        ),
    ),
    Lesson(
        "etcd-prefix",
        "The first master's kube-apiserver comes up ready, and its cluster is empty: no namespaces but its own, no "
        "nodes. The bootstrap's still has all of them.",
        "The bootstrap's kube-apiserver stores below /registry, the masters' below kubernetes.io.",
        "--etcd-prefix=kubernetes.io on the bootstrap node: umbilical stage retry 7. P4 would refuse the pivot.",
        ("ETC-02",),
        "etcd-prefix",
        OPENSHIFT,
        lambda scratch: scratch.edit_pod("bootstrap", _API, "--etcd-prefix=kubernetes.io", "--etcd-prefix=/registry"),
    ),
    Lesson(
        "cluster-profile",
        "The cluster-version operator runs and applies nothing, since nothing of the release is for its profile.",
        "Its environment has no CLUSTER_PROFILE that the release knows.",
        "CLUSTER_PROFILE=self-managed-high-availability: umbilical stage retry 7.",
        ("CVO-03",),
        "CLUSTER_PROFILE",
        OPENSHIFT,
        lambda scratch: scratch.edit_pod("bootstrap", _CVO, "self-managed-high-availability", "self-managed"),
    ),
    Lesson(
        "dns-domain",
        "Nearly all operators are there. Ingress, console and authentication never become Available.",
        "The DNS object has the base domain, not the cluster's own.",
        "spec.baseDomain is NAME.BASE: umbilical stage retry 7.",
        ("DNS-01",),
        "baseDomain",
        OPENSHIFT,
        lambda scratch: scratch.edit(
            "manifests/05-dns.yaml", lambda one: one["spec"].update(baseDomain=scratch.cluster.base_domain)
        ),
    ),
    Lesson(
        "agent-port",
        "Webhooks in pods time out on the bootstrap node: context deadline exceeded. The tunnel's agents say: "
        "connection refused, and try again.",
        "Agents dial another port than the one that the tunnel's server listens on.",
        "--proxy-server-port of agents is --agent-port of the server: umbilical stage retry 7.",
        ("KN-03",),
        "agents dial",
        BOTH,
        _another_port,
        moved_away(
            "konnectivity-server-pod.yaml",
            lambda cluster: [cluster.bootstrap.id],
            "The tunnel's server is taken out of the directory that the bootstrap kubelet watches.",
        ),
    ),
)


LESSONS: Final[tuple[Lesson, ...]] = (
    *CERTIFICATE_LESSONS,
    *MANIFEST_LESSONS,
    *node_lessons.LESSONS,
)


def entries() -> Iterable[Explanation]:
    """Explain every lesson; this tells the answer."""
    return map(_entry, LESSONS)


def _entry(lesson: Lesson) -> Explanation:
    profiles = " and ".join(sorted(profile.value for profile in lesson.profiles))
    live = f" With --live: {lesson.live.fault}" if lesson.live is not None else ""
    return Explanation(
        ExplanationKind.LESSON,
        lesson.id,
        lesson.story,
        scope=f"for {profiles}",
        readers=f"Whoever runs umbilical stage break {lesson.id}; rule {' or '.join(lesson.rules)} recognises it.",
        without=f"The fault: {lesson.fault}{live}",
        fix=lesson.mending,
        by_hand=f"umbilical stage break {lesson.id} --dir DIR; umbilical stage doctor --dir DIR",
    )
