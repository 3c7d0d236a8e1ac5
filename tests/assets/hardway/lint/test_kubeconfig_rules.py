"""Rules about kubeconfigs: they hold for rendered clusters, and each notices the faults that it is there for."""

import base64
from collections.abc import Callable
from typing import Any, Final

from tests.support import hardway_pki as pki
from tests.support.hardway_everything import everything
from tests.support.hardway_lint import Sample, Subject, changed, complaint
from tests.support.hardway_pki import pods, reissue

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Profile
from umbilical.pki.profiles import Usage

ADMIN: Final = layout.kubeconfig("admin")


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


def other_key(subject: Subject) -> None:
    data = base64.b64encode(pki.pair(subject, "kubelet-client").key).decode()
    subject.edit(ADMIN, lambda one: one["users"][0]["user"].update({"client-key-data": data}))


def swapped(subject: Subject) -> None:
    """The scheduler with the kubeconfig of kubelets, which goes through the load balancer."""
    for path in pods(subject, "kube-scheduler"):
        subject.replace(path, "kube-scheduler.kubeconfig", "kubelet-bootstrap.kubeconfig")


SAMPLES: Final[dict[str, Sample]] = {
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
    "KC-01 with another key": other_key,
    "KC-01 with a certificate for servers": embedded(
        "kube-scheduler", "kube-control-plane-kube-scheduler-client", usages=(Usage.SERVER,)
    ),
    "KC-01 with another identity": embedded("admin", "admin-kubeconfig-client", common_name="system:nobody"),
    "KC-01 that others may read": lambda subject: subject.write(ADMIN, subject.assets[ADMIN].content, 0o644),
    "KC-02": server("kube-controller-manager", "https://api-int.ocp4.example.com:6443"),
    "KC-02 of the scheduler": swapped,
}


def test_a_rule_notices_what_only_openshift_has() -> None:
    sample = server("localhost", "https://api-int.ocp4.example.com:6443")
    assert complaint("KC-02", changed(everything(Profile.OPENSHIFT), sample))
    # Nobody but the version operator is asked for with it there.
    assert complaint("KC-02", changed(everything(Profile.KUBERNETES), sample)) is None


def says(sample: str) -> str:
    return complaint(sample, changed(everything(Profile.KUBERNETES), SAMPLES[sample])) or ""


def test_what_a_rule_says_leads_to_the_place() -> None:
    assert says("KC-01") == "auth/lb-int.kubeconfig is missing"
    assert "api.example.com is not in tls/kube-apiserver-service-network-server.crt" in says(
        "KC-01 with a server that is in no certificate"
    )
    assert "its authority does not verify tls/kube-apiserver-lb-server.crt" in says("KC-01 with one signer too few")
    assert "its user is admin, and its certificate says system:nobody" in says("KC-01 with another identity")
    assert "does not belong" in says("KC-01 with another key")
    assert "which asks api-int.ocp4.example.com" in says("KC-02")
