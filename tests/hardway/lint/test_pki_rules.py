"""Rules about certificates and kubeconfigs: the faults that each notices."""

import base64
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address, ip_network
from typing import Any, Final

import pytest
from cryptography import x509
from tests.support import hardway_pki as pki
from tests.support.hardway import NOW
from tests.support.hardway_everything import everything
from tests.support.hardway_lint import Sample, Subject, changed, complaint
from tests.support.hardway_pki import DAY, Forgery, forge, pods, put, reissue, rename_subject

from umbilical.bootstrap.names import BOOTKUBE
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.lint.pki_rules import RULES
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.pki.pem import join_bundle
from umbilical.pki.profiles import Usage

SERVICE: Final = "kube-apiserver-service-network-server"
LOCALHOST: Final = "kube-apiserver-localhost-server"
ADMIN: Final = layout.kubeconfig("admin")


def without_address(row_id: str, *addresses: str) -> Sample:
    def change(subject: Subject) -> None:
        gone = set(map(ip_address, addresses))
        kept = tuple(one for one in pki.certificate(subject, row_id).ip_addresses if one not in gone)
        reissue(subject, row_id, ip_addresses=kept)

    return change


def reissued(row_id: str, **changes: Any) -> Sample:
    return lambda subject: reissue(subject, row_id, **changes)


def forged(row_id: str, **odd: Any) -> Sample:
    return lambda subject: forge(subject, row_id, **odd)


def in_pods(program: str, old: str, new: str) -> Sample:
    def change(subject: Subject) -> None:
        for path in pods(subject, program):
            subject.replace(path, old, new)

    return change


def with_mode(path: str, mode: int) -> Sample:
    return lambda subject: subject.write(path, subject.assets[path].content, mode)


def another_service_network(subject: Subject) -> None:
    """As if the first address of the usual range stood in the code."""
    networks = replace(subject.cluster.networks, services=ip_network("10.96.0.0/16"))
    subject.cluster = replace(subject.cluster, networks=networks)


def intermediate_as_anchor(subject: Subject) -> None:
    root = Forgery("root-ca", is_authority=True).signed_by(None)
    between = Forgery("kube-apiserver-lb-signer", is_authority=True).signed_by(root)
    put(subject, "kube-apiserver-lb-signer", between)
    for row_id in ("kube-apiserver-lb-server", "kube-apiserver-internal-lb-server"):
        reissue(subject, row_id)
    signers = [layout.certificate(f"kube-apiserver-{name}-signer") for name in ("localhost", "service-network", "lb")]
    bundle = join_bundle(*(subject.assets[path].content for path in signers))
    subject.write(layout.bundle(Bundle.SERVER_CA.value), bundle)


def signer_not_in_its_bundle(subject: Subject) -> None:
    content = pki.pair(subject, "admin-kubeconfig-signer").certificate
    subject.write(layout.bundle(Bundle.CLIENT_CA.value), content)


def authority_below_a_short_path(subject: Subject) -> None:
    above = Forgery("kubelet-signer", is_authority=True, path_length=0).signed_by(None)
    put(subject, "kubelet-signer", above)
    put(subject, "aggregator-signer", Forgery("aggregator-signer", is_authority=True).signed_by(above))


def other_key(subject: Subject) -> None:
    subject.write(layout.key("etcd-client"), pki.pair(subject, "kubelet-client").key)


def repeated_serial(subject: Subject) -> None:
    for row_id in ("etcd-peer-bootstrap", "etcd-serving-bootstrap"):
        forge(subject, row_id, serial=7)


def later(hours: int) -> Sample:
    def change(subject: Subject) -> None:
        subject.now = NOW + timedelta(hours=hours)

    return change


def other_public_key(subject: Subject) -> None:
    other = subject.assets[f"{layout.TLS}/bound-service-account-signing-key.pub"].content
    subject.write(f"{layout.TLS}/service-account.pub", other)


def agents_dial_elsewhere(subject: Subject) -> None:
    address = str(subject.cluster.bootstrap.address)
    flag = "--proxy-server-host="
    pki.edit_objects(subject, "DaemonSet", lambda one: _replace_words(one, f"{flag}{address}", f"{flag}192.168.126.99"))


def _replace_words(value: Any, old: str, new: str) -> None:
    for key, one in value.items() if isinstance(value, dict) else enumerate(value):
        if one == old:
            value[key] = new
        elif isinstance(one, dict | list):
            _replace_words(one, old, new)


def tunnel_certificate_for_another(subject: Subject) -> None:
    address = str(subject.cluster.bootstrap.address).encode()
    subject.edit_ignition("bootstrap", BOOTKUBE, lambda text: text.replace(address, b"192.168.126.99"))


def _break(subject: Subject) -> None:
    for path in list(subject.assets):
        if path.endswith((".crt", ".pub")):
            subject.write(path, b"nothing")


def edited(name: str, change: Callable[[dict[str, Any]], object]) -> Sample:
    return lambda subject: subject.edit(layout.kubeconfig(name), change)


def server(name: str, url: str) -> Sample:
    return edited(name, lambda one: one["clusters"][0]["cluster"].update(server=url))


def renamed_user(one: dict[str, Any]) -> None:
    one["users"][0]["name"] = one["contexts"][0]["name"] = one["current-context"] = "somebody"
    one["contexts"][0]["context"]["user"] = "somebody"


def one_signer_too_few(subject: Subject) -> None:
    """As an intermediate CA in the place of three signers: here the one for localhost alone."""
    data = base64.b64encode(pki.pair(subject, "kube-apiserver-localhost-signer").certificate).decode()
    edited("admin", lambda one: one["clusters"][0]["cluster"].update({"certificate-authority-data": data}))(subject)


def embedded(name: str, row_id: str, **changes: Any) -> Sample:
    """Put another certificate of a row into a kubeconfig."""

    def change(subject: Subject) -> None:
        made = reissue(subject, row_id, **changes)
        data = {"client-certificate-data": made.certificate, "client-key-data": made.key}
        texts = {key: base64.b64encode(one).decode() for key, one in data.items()}
        subject.edit(layout.kubeconfig(name), lambda one: one["users"][0]["user"].update(texts))

    return change


def key_of_another(subject: Subject) -> None:
    data = base64.b64encode(pki.pair(subject, "kubelet-client").key).decode()
    subject.edit(ADMIN, lambda one: one["users"][0]["user"].update({"client-key-data": data}))


def swapped(subject: Subject) -> None:
    """The scheduler with the kubeconfig of kubelets, which goes through the load balancer."""
    for path in pods(subject, "kube-scheduler"):
        subject.replace(path, "kube-scheduler.kubeconfig", "kubelet-bootstrap.kubeconfig")


SAMPLES: Final[dict[str, Sample]] = {
    "PKI-01": reissued("etcd-serving-bootstrap", usages=(Usage.SERVER,)),
    "PKI-01 of a master": reissued("etcd-serving-master-1", usages=(Usage.SERVER,)),
    "PKI-01 of a peer": reissued("etcd-peer-bootstrap", usages=(Usage.CLIENT,)),
    "PKI-02": reissued(LOCALHOST, dns_names=()),
    "PKI-02 without the bootstrap node": without_address(SERVICE, "192.168.126.100"),
    "PKI-02 without the other loopback": without_address(SERVICE, "::1"),
    "PKI-02 without a master": without_address(SERVICE, "192.168.126.102"),
    "PKI-02 without the virtual address": without_address(SERVICE, "192.168.126.10"),
    "PKI-02 without the names of the service": reissued(SERVICE, dns_names=("kubernetes",)),
    "PKI-02 without the outer name": reissued("kube-apiserver-lb-server", dns_names=()),
    "PKI-02 without the inner name": reissued("kube-apiserver-internal-lb-server", dns_names=("api.ocp4.example.com",)),
    "PKI-02 with the usual service network written into it": another_service_network,
    "PKI-02 with localhost mapped to nothing": in_pods("kube-apiserver", ":localhost,", ":elsewhere,"),
    "PKI-03": intermediate_as_anchor,
    "PKI-03 with a bundle that lacks signers": signer_not_in_its_bundle,
    "PKI-03 with another signer of the same name": forged("etcd-signer"),
    "PKI-03 with another signer of kubelets": forged("kubelet-signer"),
    "PKI-03 with an etcd client that only serves": reissued("etcd-client", usages=(Usage.SERVER,)),
    "PKI-03 with another trust in etcd": in_pods(
        "etcd",
        "trusted-ca-file=/etc/kubernetes/secrets/etcd-ca-bundle.crt",
        "trusted-ca-file=/etc/kubernetes/secrets/aggregator-ca-bundle.crt",
    ),
    "PKI-04": authority_below_a_short_path,
    "PKI-05": in_pods(
        "kube-apiserver",
        "requestheader-allowed-names=system:kube-apiserver-proxy",
        "requestheader-allowed-names=system:admin",
    ),
    "PKI-05 with the name of another log": reissued("aggregator-client", common_name="front-proxy-client"),
    "PKI-06": rename_subject("system:kube-apiserver", "somebody"),
    "PKI-07": reissued("admin-kubeconfig-client", organizations=("system:authenticated",)),
    "PKI-07 with another administrator": reissued("admin-kubeconfig-client", common_name="admin"),
    "PKI-07 with another controller-manager": reissued(
        "kube-control-plane-kube-controller-manager-client", common_name="kube-controller-manager"
    ),
    "PKI-07 with another scheduler": reissued("kube-control-plane-kube-scheduler-client", common_name="scheduler"),
    "PKI-07 with nobody bound": lambda subject: [
        rename_subject(name, "somebody")(subject) for name in ("system:bootstrapper", "node-bootstrapper")
    ],
    "PKI-08": with_mode("tls/etcd-signer.key", 0o644),
    "PKI-08 with a certificate that nobody may read": with_mode("tls/etcd-signer.crt", 0o600),
    "PKI-08 with another key": other_key,
    "PKI-08 with a serial twice": repeated_serial,
    "PKI-08 without its own identifier": forged("etcd-client", without=(x509.SubjectKeyIdentifier,)),
    "PKI-08 without its signer's identifier": forged("etcd-client", without=(x509.AuthorityKeyIdentifier,)),
    "PKI-08 without a usage": forged("etcd-client", without=(x509.KeyUsage,)),
    "PKI-08 with soft constraints": forged("etcd-signer", softened=(x509.BasicConstraints,)),
    "PKI-08 with a leaf that signs": lambda subject: put(
        subject, "etcd-client", Forgery("etcd-client", is_authority=True).signed_by(pki.pair(subject, "etcd-signer"))
    ),
    "PKI-08 without a key": lambda subject: subject.remove("tls/kubelet-signer.key"),
    "PKI-09": later(45),
    "PKI-09 when all has ended": later(49),
    "PKI-09 before its time": later(-2),
    "PKI-09 with a leaf that outlives its signer": reissued("aggregator-client", life=5 * DAY),
    "PKI-11": other_public_key,
    "PKI-11 with a key that is not given": in_pods(
        "kube-apiserver", "bound-service-account-signing-key.pub", "service-account.pub"
    ),
    "PKI-11 with one key for both": in_pods(
        "kube-apiserver", "secrets/bound-service-account-signing-key.key", "secrets/service-account.key"
    ),
    "PKI-12": without_address("etcd-peer-master-2", "192.168.126.103"),
    "PKI-12 with agents that dial elsewhere": agents_dial_elsewhere,
    "PKI-12 with a tunnel for another address": tunnel_certificate_for_another,
    "KC-01": lambda subject: subject.remove(layout.kubeconfig("lb-int")),
    "KC-01 with one too many": lambda subject: subject.write("auth/more.kubeconfig", subject.assets[ADMIN].content),
    "KC-01 with a server that is in no certificate": server("admin", "https://api.example.com:6443"),
    "KC-01 with another port": server("admin", "https://api.ocp4.example.com:8443"),
    "KC-01 without TLS": server("admin", "http://api.ocp4.example.com:6443"),
    "KC-01 with one signer too few": one_signer_too_few,
    "KC-01 with another user": edited("admin", renamed_user),
    "KC-01 with a context that is not there": edited("admin", lambda one: one.update({"current-context": "x"})),
    "KC-01 with a cluster that is not there": edited(
        "admin", lambda one: one["contexts"][0]["context"].update(cluster="x")
    ),
    "KC-01 with another key": key_of_another,
    "KC-01 with a certificate for servers": embedded(
        "kube-scheduler", "kube-control-plane-kube-scheduler-client", usages=(Usage.SERVER,)
    ),
    "KC-01 with another identity": embedded("admin", "admin-kubeconfig-client", common_name="system:nobody"),
    "KC-01 that others may read": lambda subject: subject.write(ADMIN, subject.assets[ADMIN].content, 0o644),
    "KC-02": server("kube-controller-manager", "https://api-int.ocp4.example.com:6443"),
    "KC-02 of the scheduler": swapped,
}


@pytest.mark.parametrize(
    ("sample", "words"),
    {
        "PKI-01": "tls/etcd-serving-bootstrap.crt lacks clientAuth",
        "PKI-02": "clients that dial localhost get tls/kube-apiserver-localhost-server.crt",
        "PKI-02 with the usual service network written into it": "dial 10.96.0.1 get tls/kube-apiserver-service",
        "PKI-03": "unable to get issuer certificate: root-ca",
        "PKI-04": "aggregator-signer.crt is a CA below kubelet-signer",
        "PKI-05 with the name of another log": "its own proxy client is front-proxy-client",
        "PKI-06": "get and create nodes/proxy",
        "PKI-08": "mode 0644, not 0600",
        "PKI-09": "kubelet-signer.crt expires at 2026-11-18 08:00 UTC",
        "PKI-09 with a leaf that outlives its signer": "expires after its signer aggregator-signer",
        "PKI-11 with one key for both": "sign tokens with the same key: tls/service-account.key",
        "KC-01": "auth/lb-int.kubeconfig is missing",
        "KC-01 with a server that is in no certificate": (
            "api.example.com is not in tls/kube-apiserver-service-network-server.crt"
        ),
        "KC-01 with one signer too few": "its CA does not verify tls/kube-apiserver-lb-server.crt",
        "KC-01 with another identity": "its user is admin, but its certificate has system:nobody",
        "KC-01 with another key": "does not belong",
        "KC-02": "with the server api-int.ocp4.example.com",
    }.items(),
)
def test_what_a_rule_says_leads_to_the_place(sample: str, words: str) -> None:
    assert words in (complaint(sample, changed(everything(ClusterProfile.KUBERNETES), SAMPLES[sample])) or "")


def test_ipv6_clusters_are_judged_too() -> None:
    def change(subject: Subject) -> None:
        networks = replace(subject.cluster.networks, services=ip_network("fd02::/112"))
        subject.cluster = replace(subject.cluster, networks=networks)
        old = pki.certificate(subject, SERVICE)
        reissue(subject, SERVICE, ip_addresses=(*old.ip_addresses, ip_address("fd02::1")))

    assert complaint("PKI-02", changed(everything(ClusterProfile.KUBERNETES), change)) is None


def test_what_cannot_be_read_is_a_fault_and_no_crash() -> None:
    broken = changed(everything(ClusterProfile.KUBERNETES), _break)
    assert [rule.id for rule in RULES if not complaint(rule.id, broken)] == []


def test_a_rule_notices_what_only_openshift_has() -> None:
    sample = server("localhost", "https://api-int.ocp4.example.com:6443")
    assert complaint("KC-02", changed(everything(ClusterProfile.OPENSHIFT), sample))
    # Nobody but the version operator is asked for with it there.
    assert complaint("KC-02", changed(everything(ClusterProfile.KUBERNETES), sample)) is None
