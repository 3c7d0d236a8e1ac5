"""Lessons on certificates: both bugs that the log reports, and one that it never noticed."""

from typing import Final

from umbilical.hardway.lessons.desk import Desk
from umbilical.hardway.lessons.lesson import Lesson
from umbilical.hardway.lint.rule import BOTH
from umbilical.pki.certificate import read_certificates
from umbilical.pki.profiles import Usage

_SERVICE: Final = "kube-apiserver-service-network-server"
_ALLOWED: Final = "requestheader-allowed-names=system:kube-apiserver-proxy"


def _serving_only(desk: Desk) -> None:
    desk.reissue("etcd-serving-bootstrap", usages=(Usage.SERVER,))


def _without_localhost(desk: Desk) -> None:
    desk.reissue("kube-apiserver-localhost-server", dns_names=())


def _without_bootstrap(desk: Desk) -> None:
    address = desk.cluster.bootstrap.address
    seen = read_certificates(desk.content(f"tls/{_SERVICE}.crt"))[0]
    desk.reissue(_SERVICE, ip_addresses=tuple(one for one in seen.ip_addresses if one != address))


def _proxy_client(desk: Desk) -> None:
    desk.edit_pod("bootstrap", "kube-apiserver-bootstrap.yaml", _ALLOWED, "requestheader-allowed-names=system:admin")


LESSONS: Final[tuple[Lesson, ...]] = (
    Lesson(
        "etcd-serving",
        "etcd on the bootstrap node answers /health with true, and `etcdctl endpoint health` calls it unhealthy. Its "
        "log has a line each second: rejected connection ... certificate specifies an incompatible key usage.",
        "etcd-serving-bootstrap has serverAuth and no clientAuth; etcd dials its own port with that very pair.",
        "Both usages for every certificate that etcd serves with: umbilical stage rotate etcd-serving-bootstrap.",
        ("PKI-01",),
        "etcd-serving-bootstrap.* lacks clientAuth",
        BOTH,
        _serving_only,
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
        _without_localhost,
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
