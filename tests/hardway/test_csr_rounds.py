"""Approve requests on a real API: requests of the config's kubelets, keys on nodes, serving kubelets."""

import base64
import ssl
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.support.api_stock import Stock, node, stock
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.labs import wait_until
from tests.support.live_site import live_site, machines_of, naps_of, on_loopback, seen_by, told_by
from tests.support.signing_requests import PUBLIC, filed, pem
from tests.support.tls_listener import listener, says_nothing

from umbilical.cluster.csr import CLIENT_SIGNER, KIND, SERVING_SIGNER
from umbilical.fault import HostError, StageTimeout
from umbilical.hardway import csr_rounds
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.csr_rounds import (
    approve_once,
    approving_condition,
    check_holder,
    check_serving,
    registered_condition,
)
from umbilical.hardway.doctor import requests_signal
from umbilical.hardway.machines.interface import Done
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.hardway.site import Site
from umbilical.hardway.stages.live import started_key
from umbilical.hardway.state import RunState
from umbilical.host.waiting import NotYet
from umbilical.manifests.tree import Asset
from umbilical.pki.profiles import KeyType, server_profile

pytestmark = pytest.mark.real(*PROGRAMS)
BOOTSTRAPPERS = ("system:bootstrapper", "system:bootstrappers")


@pytest.fixture
def site(tmp_path: Path, plane: ControlPlane) -> Site:
    """Its masters have been started; its worker has not. Machines are on loopback, where a kubelet can listen."""
    made = live_site(tmp_path, plane, masters=2)
    made.cluster = on_loopback(made.cluster)
    for one in made.cluster.masters:
        made.notes[started_key(one)] = datetime.now(UTC).isoformat()
    return made


class Requests:
    """Requests as their senders make them: the API takes the user from the client certificate."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def file(self, name: str, content: bytes, signer: str, user: str, *groups: str) -> None:
        with_user = Stock(self._plane.make_kubeconfig(user, *groups))
        usages = ["digital signature", "client auth" if signer == CLIENT_SIGNER else "server auth"]
        body = filed(name, content, signer, usages)
        with_user.call(lambda client: client.request("POST", KIND.path(), body=body))

    def client(self, name: str, of: ClusterNode, key: Any = None) -> None:
        content = pem(f"system:node:{of.name}", **({"key": key} if key is not None else {}))
        self.file(name, content, CLIENT_SIGNER, *BOOTSTRAPPERS)

    def serving(self, name: str, of: ClusterNode, *addresses: str) -> None:
        content = pem(f"system:node:{of.name}", dns=[of.name], addresses=addresses or [str(of.address)])
        self.file(name, content, SERVING_SIGNER, f"system:node:{of.name}", "system:nodes")


@pytest.fixture
def requests(plane: ControlPlane) -> Iterator[Requests]:
    """Bootstrappers may file requests, as in the manifests of stage 10."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "test-bootstrappers"},
        "roleRef": role,
        "subjects": [subject],
    }
    with stock(plane.kubeconfig) as shelf:
        shelf.put(binding)
        plane.kubectl("delete", "csr", "--all")
        may = ("auth", "can-i", "create", "csr", "--as=x", "--as-group=system:bootstrappers")
        wait_until(lambda: _says_yes(plane, *may))
        yield Requests(plane)
        plane.kubectl("delete", "csr", "--all")


def _says_yes(plane: ControlPlane, *words: str) -> bool:
    try:
        return plane.kubectl(*words).strip() == "yes"
    except HostError:
        return False


def state(plane: ControlPlane, name: str) -> str:
    return plane.kubectl("get", "csr", name, "-o", "jsonpath={.status.conditions[*].type}")


def test_what_the_rules_allow_is_approved_and_nothing_else(
    site: Site, plane: ControlPlane, requests: Requests, shelf: Stock
) -> None:
    first, second = site.cluster.masters
    shelf.put(node(second.name, str(second.address)))
    requests.client("own", first)
    requests.client("worker-too-early", site.cluster.workers[0])
    requests.serving("serving", second)
    requests.serving("greedy", second, str(second.address), str(site.cluster.networks.gateway))
    found = approve_once(site)
    assert {one.csr for one in found.approved} == {"own", "serving"}
    assert {one.csr: one.reason for one in found.refused} == {
        "worker-too-early": "no node worker-0.ocp4.example.com is expected",
        "greedy": "it requests the names ['192.168.126.1'], which do not belong to the node",
    }
    assert [state(plane, name) for name in ("own", "serving", "greedy")] == ["Approved", "Approved", ""]
    assert any(line.startswith("saw approved own:") for line in told_by(site))
    assert approve_once(site).approved == ()


def held(site: Site, of: ClusterNode, key: bytes) -> None:
    """Have a node hold a certificate with this public key."""
    body = base64.b64encode(key).decode()
    text = f"-----BEGIN PUBLIC KEY-----\n{body[:64]}\n{body[64:]}\n-----END PUBLIC KEY-----\n"
    words = ["openssl", "x509", "-in", "/var/lib/kubelet/pki/kubelet-client-current.pem", "-noout", "-pubkey"]
    machines_of(site).answers[of.id, *words] = Done(0, text.encode(), b"")


def test_the_certificate_that_was_approved_must_lie_on_the_node(site: Site, requests: Requests) -> None:
    first, second = site.cluster.masters
    requests.client("own", first)
    requests.client("stolen", second, ec.generate_private_key(ec.SECP256R1()))
    assert len(approve_once(site).approved) == 2
    for one in (first, second):
        held(site, one, PUBLIC)
    check_holder(site, first)
    with pytest.raises(NotYet, match=f"approved for {second.name} is not the one on the node"):
        check_holder(site, second)


def test_a_node_that_was_approved_and_has_no_certificate_is_told(site: Site, requests: Requests) -> None:
    first = site.cluster.masters[0]
    requests.client("own", first)
    check_holder(site, first)
    approve_once(site)
    machines_of(site).responders.append(lambda *asked: Done(1, b"", b"Could not open file"))
    with pytest.raises(NotYet, match="master-0 has no certificate: Could not open file"):
        check_holder(site, first)


def test_a_key_is_looked_for_once_because_renewals_have_others(site: Site, requests: Requests) -> None:
    first = site.cluster.masters[0]
    requests.client("own", first)
    approve_once(site)
    held(site, first, PUBLIC)
    check_holder(site, first)
    held(site, first, b"renewed")
    check_holder(site, first)


def test_a_first_certificate_is_the_first_also_when_its_request_was_cleaned_away(
    site: Site, plane: ControlPlane, requests: Requests
) -> None:
    first = site.cluster.masters[0]
    requests.client("own", first)
    assert len(approve_once(site).approved) == 1
    plane.kubectl("delete", "csr", "own")
    requests.client("again", first, ec.generate_private_key(ec.SECP256R1()))
    found = approve_once(site)
    assert [one.reason for one in found.refused] == [f"{first.name} has its first certificate already"]
    site.notes[started_key(first)] = datetime.now(UTC).isoformat()
    assert len(approve_once(site).approved) == 1


@pytest.fixture
def kubelet(plane: ControlPlane, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A kubelet's port on master-0, with a certificate that its cluster's signer gave it."""
    address = str(site.cluster.masters[0].address)
    pair = plane.issue(server_profile("system:node", (address,), KeyType.ECDSA_P256))
    for name, content in (("crt", pair.certificate), ("key", pair.key)):
        (tmp_path / f"kubelet.{name}").write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "kubelet.crt", tmp_path / "kubelet.key")
    with listener(says_nothing(context), address) as port:
        monkeypatch.setattr(csr_rounds, "KUBELET_PORT", port)
        yield port


def test_a_kubelet_serves_with_a_certificate_that_the_api_server_would_take(site: Site, kubelet: int) -> None:
    first, second = site.cluster.masters
    check_serving(site, first)
    with pytest.raises(NotYet, match=f"{second.name}:{kubelet}: .*refused"):
        check_serving(site, second)


def test_a_kubelet_with_a_certificate_of_its_own_is_not_taken(site: Site, kubelet: int) -> None:
    path = layout.bundle(Bundle.KUBELET_CA.value)
    foreign = site.content(layout.certificate("etcd-signer"))
    site.assets = {**site.assets, path: Asset(path, foreign, 0o644)}
    with pytest.raises(NotYet, match="certificate verify failed"):
        check_serving(site, site.cluster.masters[0])


def test_a_wait_approves_both_requests_of_a_node_and_ends_when_it_serves(
    site: Site, plane: ControlPlane, requests: Requests, shelf: Stock, kubelet: int
) -> None:
    first = site.cluster.masters[0]
    requests.client("first", first)
    naps_of(site).plans += [
        lambda: shelf.put(node(first.name, str(first.address))),
        lambda: requests.serving("second", first),
    ]
    condition = approving_condition([first])
    assert registered_condition([first]).check.judge(site).evidence == f"{first.name} is not registered"
    assert condition.wait(site, 60) == first.name
    assert condition.id == "registered-masters"
    assert seen_by(site)[0] == f"{first.name} is not registered"
    assert state(plane, "first") == "Approved"
    assert registered_condition([first]).check.judge(site).evidence == first.name


def test_a_timeout_names_the_rule_that_refuses(site: Site, requests: Requests) -> None:
    requests.client("worker-too-early", site.cluster.workers[0])
    with pytest.raises(StageTimeout) as raised:
        approving_condition(site.cluster.masters).wait(site, 0)
    assert "worker-too-early was refused: no node worker-0.ocp4.example.com is expected" in raised.value.why
    assert "/etc/hostname" in raised.value.remedy


def test_a_node_that_asks_again_is_told_how_it_is_let_in(site: Site, requests: Requests, shelf: Stock) -> None:
    first = site.cluster.masters[0]
    shelf.put(node(first.name, "192.0.2.9"))
    requests.client("again", first)
    with pytest.raises(StageTimeout) as raised:
        approving_condition([first]).wait(site, 0)
    assert "exists already" in raised.value.why
    assert "--allow-reissue" in raised.value.remedy


def test_a_node_that_may_ask_again_may_do_so_once(site: Site, requests: Requests, shelf: Stock) -> None:
    first = site.cluster.masters[0]
    shelf.put(node(first.name, str(first.address)))
    site.reissue = frozenset({first.name})
    requests.client("again", first)
    assert [one.csr for one in approve_once(site).approved] == ["again"]
    requests.client("and-again", first, ec.generate_private_key(ec.SECP256R1()))
    assert approve_once(site).approved == ()


def test_the_doctor_tells_of_a_request_that_no_rule_approves_and_leaves_it_alone(
    site: Site, plane: ControlPlane, requests: Requests
) -> None:
    assert list(requests_signal(site, RunState())) == []
    requests.client("strange", replace(site.cluster.workers[0], name="stranger.example.com"))
    (found,) = requests_signal(site, RunState())
    assert found.what == "strange is pending, and the policy does not allow it"
    assert "stranger.example.com" in found.why
    assert state(plane, "strange") == ""
