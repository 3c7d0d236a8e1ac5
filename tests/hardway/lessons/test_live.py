"""Faults in machines that run: what is asked of them, and that mending is its inverse."""

from pathlib import Path

import pytest
from tests.support.hardway_sites import make_site
from tests.support.live_site import machines_of

from umbilical.assets.hardway.infrastructure.places import HAPROXY_BOOTSTRAP, HAPROXY_FINAL
from umbilical.hardway.errors import HardwayError
from umbilical.hardway.lessons import live
from umbilical.hardway.lessons.live import ASIDE
from umbilical.hardway.machines import BackendServer, Done
from umbilical.hardway.site import Site

WATCHED = "/etc/kubernetes/manifests/kube-proxy.yaml"
MOVED = live.moved_away("kube-proxy.yaml", lambda cluster: [cluster.members[-1].id], "gone")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path)


def test_checks_lose_their_tls_and_nothing_else(site: Site) -> None:
    right = site.content(HAPROXY_BOOTSTRAP)
    wrong = live.without_tls(right)
    assert b"check-ssl" in right.replace(b"# An HTTP check without check-ssl", b"")
    assert b" check check-ssl" not in wrong
    assert b"option httpchk GET /readyz" in wrong
    assert len(wrong.splitlines()) == len(right.splitlines())


def test_the_configuration_is_the_one_that_the_balancer_has(site: Site) -> None:
    machines = machines_of(site)
    machines.servers = [BackendServer("api", site.cluster.bootstrap.name, True, "L7OK")]
    live.plain_checks().spoil(site)
    assert machines.balancer_config == live.without_tls(site.content(HAPROXY_BOOTSTRAP))
    machines.servers = [BackendServer("api", site.cluster.masters[0].name, True, "L7OK")]
    live.plain_checks().mend(site)
    assert machines.balancer_config == site.content(HAPROXY_FINAL)


def test_a_static_pod_is_moved_away_and_back(site: Site) -> None:
    machines, node = machines_of(site), site.cluster.members[-1].id
    machines.files[node, WATCHED] = b"pod"
    commands = [("mkdir", "-p", ASIDE), ("mv", WATCHED, f"{ASIDE}/kube-proxy.yaml")]
    for command in (*commands, ("mv", f"{ASIDE}/kube-proxy.yaml", WATCHED)):
        machines.answers[(node, *command)] = Done(0, b"", b"")
    MOVED.spoil(site)
    assert machines.calls == [f"run {node} {' '.join(command)}" for command in commands]
    machines.calls.clear()
    machines.files = {(node, f"{ASIDE}/kube-proxy.yaml"): b"pod"}
    MOVED.mend(site)
    assert machines.calls == [f"run {node} mv {ASIDE}/kube-proxy.yaml {WATCHED}"]


def test_doing_it_twice_moves_nothing(site: Site) -> None:
    machines, node = machines_of(site), site.cluster.members[-1].id
    machines.answers[node, "mkdir", "-p", ASIDE] = Done(0, b"", b"")
    MOVED.spoil(site)
    MOVED.mend(site)
    assert machines.calls == [f"run {node} mkdir -p {ASIDE}"]


def test_a_node_that_refuses_is_told_of(site: Site) -> None:
    with pytest.raises(HardwayError) as caught:
        MOVED.spoil(site)
    assert caught.value.code == "UMB734"
    assert "no such program" in caught.value.why
