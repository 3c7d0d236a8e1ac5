"""etcd members: output and errors of etcdctl, also of the real one."""

import json
import subprocess
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from tests.support.hardway import cluster
from tests.support.labs import wait_until
from tests.support.real_etcd import RealEtcd
from tests.support.recording_machines import RecordingMachines

from umbilical.fault import HardwayError
from umbilical.hardway.artifacts.static_pods import etcd as subject
from umbilical.hardway.config.cluster import ClusterNode, ClusterProfile, NodeRole
from umbilical.hardway.etcd import Etcd, client_url, in_container, peer_url
from umbilical.hardway.machines.interface import Done

NODE = cluster(ClusterProfile.KUBERNETES).masters[0]
BOOTSTRAP = cluster(ClusterProfile.KUBERNETES).bootstrap
SIX = ClusterNode("master-6", NodeRole.MASTER, ip_address("2001:db8::6"), "master-6.example.com")
# Printed by etcdctl 3.6 for a bootstrap member, a member that votes and one that has not started.
MEMBERS = {
    "header": {"cluster_id": 14841639068965178418, "member_id": 10276657743932975437, "raft_term": 2},
    "members": [
        {
            "ID": 10276657743932975437,
            "name": "etcd-bootstrap",
            "peerURLs": ["https://192.168.126.100:2380"],
            "clientURLs": ["https://192.168.126.100:2379"],
        },
        {"ID": 17, "peerURLs": ["https://192.168.126.101:2380"], "isLearner": True},
    ],
}
STATUS = [
    {
        "Endpoint": "https://192.168.126.101:2379",
        "Status": {
            "header": {"cluster_id": 1, "member_id": 255, "revision": 1, "raft_term": 3},
            "version": "3.6.1",
            "leader": 255,
            "raftIndex": 42,
            "raftTerm": 3,
        },
    }
]


def answering(done: Done) -> tuple[Etcd, RecordingMachines]:
    machines = RecordingMachines()
    machines.responders.append(lambda node, words, stdin: done)
    return Etcd(machines, NODE), machines


def printed(value: object, exit_code: int = 0) -> Done:
    return Done(exit_code, json.dumps(value).encode(), b"")


def test_members_are_read_with_their_ids_as_etcdctl_takes_them() -> None:
    etcd, _ = answering(printed(MEMBERS))
    first, second = etcd.members()
    assert (first.id, first.name, first.is_learner) == ("8e9e05c52164694d", "etcd-bootstrap", False)
    assert (second.id, second.name, second.is_learner) == ("11", "", True)
    assert second.peer_urls == ("https://192.168.126.101:2380",)


def test_status_is_read() -> None:
    (status,) = answering(printed(STATUS))[0].status(["https://192.168.126.101:2379"])
    assert (status.member_id, status.leader_id, status.raft_term) == ("ff", "ff", 3)
    assert (status.is_learner, status.version) == (False, "3.6.1")


def test_who_cannot_commit_is_named_with_the_reason_though_etcdctl_fails() -> None:
    rows = [
        {"endpoint": "https://a:2379", "health": True, "took": "2ms"},
        {"endpoint": "https://b:2379", "health": False, "took": "5s", "error": "context deadline exceeded"},
    ]
    etcd, _ = answering(printed(rows, 1))
    assert etcd.unhealthy(["https://a:2379", "https://b:2379"]) == {"https://b:2379": "context deadline exceeded"}


@pytest.mark.parametrize("stdout", [b"", b"[]", b"no JSON"])
def test_a_health_that_nobody_told_is_an_error_and_never_good_health(stdout: bytes) -> None:
    etcd, _ = answering(Done(1, stdout, b"Error: open /etc/kubernetes/x.crt: no such file or directory\n"))
    with pytest.raises(HardwayError) as raised:
        etcd.unhealthy(["https://a:2379"])
    assert (raised.value.code, raised.value.why) == (
        "UMB743",
        "Error: open /etc/kubernetes/x.crt: no such file or directory",
    )


@pytest.mark.parametrize("done", [Done(0, b"no JSON", b""), Done(127, b"", b"etcdctl: not found")])
def test_what_cannot_be_read_is_told_with_the_line_to_try(done: Done) -> None:
    with pytest.raises(HardwayError) as raised:
        answering(done)[0].members()
    assert raised.value.what == "etcdctl member list failed on master-0"
    assert raised.value.remedy.startswith("on master-0: etcdctl --cacert=/etc/kubernetes/static-pod-resources/")


def test_words_are_those_of_the_manual_with_the_certificates_of_the_node() -> None:
    etcd, machines = answering(Done(0, b"", b""))
    etcd.add_learner("master-1", "https://192.168.126.102:2380")
    etcd.promote("11")
    etcd.move_leader("https://192.168.126.100:2379", "11")
    etcd.remove("8e")
    etcd.save_snapshot("/var/lib/x.db")
    files = "/etc/kubernetes/static-pod-resources"
    trust = f"--cacert={files}/etcd-ca-bundle.crt --cert={files}/etcd-client.crt --key={files}/etcd-client.key"
    here = "--endpoints=https://192.168.126.101:2379"
    assert machines.calls == [
        f"run master-0 etcdctl {trust} {here} member add master-1 --learner --peer-urls=https://192.168.126.102:2380",
        f"run master-0 etcdctl {trust} {here} member promote 11",
        f"run master-0 etcdctl {trust} move-leader 11 --endpoints=https://192.168.126.100:2379",
        f"run master-0 etcdctl {trust} {here} member remove 8e",
        f"run master-0 etcdctl {trust} {here} snapshot save /var/lib/x.db",
    ]


def test_where_the_system_has_no_etcdctl_the_one_of_etcds_container_is_asked(tmp_path: Path) -> None:
    """Run for real, with a crictl that writes down its words."""
    crictl = tmp_path / "crictl"
    crictl.write_text('#!/bin/sh\nif [ "$1" = ps ]; then echo 3f2a; else echo "$@"; fi\n')
    crictl.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    words = in_container(BOOTSTRAP, "member", "list")
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, env=environment).stdout.split()
    assert said[:3] == ["exec", "3f2a", "etcdctl"]
    assert "--cert=/etc/kubernetes/secrets/etcd-client.crt" in said
    assert said[-3:] == ["--endpoints=https://192.168.126.100:2379", "member", "list"]
    machines = RecordingMachines()
    machines.responders.append(lambda node, command, stdin: printed(MEMBERS) if command[0] == "sh" else None)
    assert len(Etcd(machines, BOOTSTRAP, in_container=True).members()) == 2


def test_addresses_of_version_six_stand_in_brackets() -> None:
    assert client_url(SIX) == "https://[2001:db8::6]:2379"
    assert peer_url(SIX) == "https://[2001:db8::6]:2380"


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealEtcd]:
    with RealEtcd(tmp_path) as running:
        monkeypatch.setattr(subject, "ETCD_CLIENT_PORT", running.client_port)
        monkeypatch.setattr(subject, "ETCD_PEER_PORT", running.peer_port)
        yield running


@pytest.mark.real("etcd", "etcdctl")
def test_a_real_member_joins_as_a_learner_votes_leads_and_the_first_one_leaves(real: RealEtcd) -> None:
    first, second = real.nodes
    etcd = Etcd(real.machines, first)
    real.start(first, "new", [first])
    wait_until(lambda: _is_healthy(etcd, first), 60)
    (alone,) = etcd.members()
    assert (alone.name, alone.is_learner, alone.peer_urls) == (first.name, False, (peer_url(first),))

    etcd.add_learner(second.name, peer_url(second))
    unstarted = next(one for one in etcd.members() if one.id != alone.id)
    assert (unstarted.name, unstarted.is_learner) == ("", True)
    with pytest.raises(HardwayError) as raised:
        etcd.promote(unstarted.id)
    # Stage 12 matches these words: the wait can succeed.
    assert "in sync with leader" in raised.value.why
    assert list(etcd.unhealthy([client_url(first), client_url(second)])) == [client_url(second)]

    real.start(second, "existing", [first, second])
    wait_until(lambda: _succeeds(lambda: etcd.promote(unstarted.id)), 60)
    assert {one.name: one.is_learner for one in etcd.members()} == {first.name: False, second.name: False}
    rows = etcd.status([client_url(first), client_url(second)])
    assert {one.leader_id for one in rows} == {alone.id}
    assert {one.raft_term for one in rows} == {rows[0].raft_term}

    path = real.folder / "snapshot.db"
    etcd.save_snapshot(str(path))
    assert path.stat().st_size > 10_000
    etcd.move_leader(client_url(first), unstarted.id)
    other = Etcd(real.machines, second)
    wait_until(lambda: other.status([client_url(second)])[0].leader_id == unstarted.id, 60)
    # A member whose peers have not been heard for five seconds refuses: "unhealthy cluster".
    wait_until(lambda: _succeeds(lambda: other.remove(alone.id)), 60)
    assert [one.id for one in other.members()] == [unstarted.id]
    wait_until(lambda: _is_healthy(other, second), 60)


def _is_healthy(etcd: Etcd, node: ClusterNode) -> bool:
    try:
        return etcd.unhealthy([client_url(node)]) == {}
    except HardwayError:
        return False


def _succeeds(act: Callable[[], None]) -> bool:
    try:
        act()
    except HardwayError:
        return False
    return True
