"""Rules about load balancer, virtual machines and their host: they hold, and each notices its faults."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.support.hardway_everything import everything, usual
from tests.support.hardway_lint import Sample, Subject, changed, complaint, replaced, verdict

from umbilical.checks.check import Outcome
from umbilical.hardway.artifacts.infrastructure.places import (
    COREFILE,
    HAPROXY_BOOTSTRAP,
    HAPROXY_FINAL,
    HOST_PLAN,
    NETWORK,
    SERVER_CA,
    ZONE,
)
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.lint.infrastructure_rules import RULES

MACHINE: Final = "infrastructure/domains/master-0.xml"


def line_dropped(path: str, part: str) -> Sample:
    def change(subject: Subject) -> None:
        lines = subject.assets[path].content.decode().splitlines(keepends=True)
        kept = [line for line in lines if part not in line]
        assert len(kept) < len(lines), f"{part!r} is not in {path}"
        subject.write(path, "".join(kept).encode())

    return change


def planned(change: Callable[[dict[str, Any]], object]) -> Sample:
    return lambda subject: subject.edit_json(HOST_PLAN, change)


def without_action(*ids: str) -> Sample:
    def change(plan: dict[str, Any]) -> None:
        kept = [action for action in plan["actions"] if action["id"] not in ids]
        assert len(kept) == len(plan["actions"]) - len(ids)
        plan["actions"] = kept

    return planned(change)


def redone(old: str, new: str) -> Sample:
    """Change what the plan does."""

    def change(plan: dict[str, Any]) -> None:
        assert any(old in action["do"] for action in plan["actions"])
        for action in plan["actions"]:
            action["do"] = action["do"].replace(old, new)

    return planned(change)


def repooled(what: str, path: str) -> Sample:
    return planned(lambda plan: plan["pool"]["machines"]["master-0"].update({what: path}))


SAMPLES: Final[dict[str, Sample]] = {
    "HA-01": replaced(HAPROXY_FINAL, " check-ssl verify required", ""),
    "HA-01 before the pivot": replaced(HAPROXY_BOOTSTRAP, " check-ssl", ""),
    "HA-01 an expectation without a check": line_dropped(HAPROXY_FINAL, "option httpchk GET /readyz"),
    "HA-01 no check": replaced(HAPROXY_FINAL, " check check-ssl verify required ca-file", " ca-file"),
    "HA-01 no word on belief": replaced(HAPROXY_FINAL, " verify required", ""),
    "HA-01 an unknown signer": lambda subject: subject.remove(SERVER_CA),
    "HA-02": line_dropped(HAPROXY_BOOTSTRAP, "server bootstrap.ocp4.example.com 192.168.126.100:6443"),
    "HA-02 still there after the pivot": replaced(HAPROXY_FINAL, "192.168.126.101:6443", "192.168.126.100:6443"),
    "HA-02 by name": replaced(HAPROXY_FINAL, "server master-0.ocp4", "server bootstrap.ocp4"),
    "HA-02 a master is missing": line_dropped(HAPROXY_FINAL, "server master-2.ocp4.example.com"),
    "HA-03": replaced(HAPROXY_BOOTSTRAP, "bind 192.168.126.10:6443", "bind *:6443"),
    "HA-03 another address": replaced(HAPROXY_FINAL, "bind 192.168.126.10:6443", "bind 192.168.126.1:6443"),
    "HA-03 not assigned": without_action("vip-api"),
    "HA-03 on another bridge": redone("dev virbr-ocp4", "dev virbr0"),
    "HA-03 nobody listens": line_dropped(HAPROXY_FINAL, "bind 192.168.126.10:6443"),
    "HA-04": without_action("firewall-6443"),
    "HA-04 until the next restart": redone(" --permanent", ""),
    "HA-04 not reloaded": redone(" && firewall-cmd --reload", ""),
    "HA-04 another zone": redone("--zone=libvirt", "--zone=public"),
    "HA-05": replaced(HAPROXY_FINAL, "timeout client 1h", "timeout client 1m"),
    "HA-05 server": replaced(HAPROXY_BOOTSTRAP, "timeout server 1h", "timeout server 60000"),
    "HA-05 none": line_dropped(HAPROXY_FINAL, "timeout server"),
    "LV-01": without_action("masquerade"),
    "LV-01 no forwarding": without_action("forward-in"),
    "LV-01 of another network": redone("-s 192.168.126.0/24", "-s 192.168.122.0/24"),
    "LV-01 again and again": redone(" -C ", " -L "),
    "LV-02": line_dropped(NETWORK, "<range "),
    "LV-02 over the nodes": replaced(NETWORK, 'start="192.168.126.200"', 'start="192.168.126.105"'),
    "LV-02 over a VIP": replaced(NETWORK, 'start="192.168.126.200"', 'start="192.168.126.2"'),
    "LV-02 no address": replaced(NETWORK, 'start="192.168.126.200"', 'start="somewhere"'),
    "LV-03": replaced(MACHINE, "/var/lib/libvirt/images/ocp4/ocp4-master-0.iso", "/home/me/rhcos.iso"),
    "LV-03 by a detour": replaced(MACHINE, "/images/ocp4/ocp4-master-0.iso", "/images/ocp4/../../../x.iso"),
    "LV-03 Ignition": repooled("ignition", "/home/me/master-0.ign"),
    "LV-03 the live system": planned(lambda plan: plan["pool"].update(iso="/tmp/rhcos.iso")),
    "LV-04": replaced(MACHINE, '<boot dev="hd" />', '<boot dev="network" />'),
    "LV-04 no order": line_dropped(MACHINE, "<boot "),
    "LV-05": line_dropped(ZONE, "*.apps."),
    "LV-05 at another address": replaced(ZONE, "*.apps.ocp4.example.com. IN A 192.168.126.11", "*.x. IN A 1.1.1.1"),
    "LV-05 a zone that nobody serves": replaced(COREFILE, "file cluster.zone", "# cluster.zone"),
    "LV-05 libvirt": line_dropped(NETWORK, "dnsmasq:option value"),
    "LV-06": replaced(MACHINE, 'listen="127.0.0.1"', 'listen="0.0.0.0"'),
}


def test_a_lab_has_no_host_to_judge() -> None:
    seen = usual(ClusterProfile.KUBERNETES)
    skipped = [rule.id for rule in RULES if verdict(rule.id, seen).outcome is Outcome.SKIPPED]
    assert skipped == ["HA-04", "LV-01", "LV-02", "LV-03", "LV-04", "LV-06"]


@pytest.mark.parametrize(
    ("identifier", "path"),
    [("HA-01", HAPROXY_FINAL), ("HA-03", HOST_PLAN), ("LV-02", NETWORK), ("LV-04", MACHINE), ("LV-05", ZONE)],
)
def test_what_cannot_be_read_is_a_fault(identifier: str, path: str) -> None:
    original = everything(ClusterProfile.OPENSHIFT)
    assert path in (complaint(identifier, changed(original, lambda tree: tree.remove(path))) or "")
    assert complaint(identifier, changed(original, lambda tree: tree.write(path, b"\xff<{"))) is not None
