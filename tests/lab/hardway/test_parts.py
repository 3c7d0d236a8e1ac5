"""Parts of a hand-built cluster in a lab: its trial, what its programs say, and a disk as new."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hardway_lab import small_cluster

from umbilical.fault import HostError, LabError
from umbilical.host.commands import parse_stats
from umbilical.host.machine_records import BackendServer
from umbilical.lab.hardway.balancer import parse_worker
from umbilical.lab.hardway.machines import LabMachines
from umbilical.lab.hardway.names import NameCheck, forward_checks, reverse_checks
from umbilical.lab.hardway.node import name_servers, restore
from umbilical.lab.hardway.smoke_test import LabSmokeTest
from umbilical.lab.images import PYTHON_PROGRAMS, UMBILICAL


def by_kind(objects: Any) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in objects}


def test_the_programs_of_machines_are_those_of_the_config_s_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    kubelet = tmp_path / "umbilical/peers/kubernetes-1.36-v1.36.3/kubelet-v1.36.3"
    kubelet.parent.mkdir(parents=True)
    kubelet.write_text("#!/bin/sh\n")
    kubelet.chmod(0o755)
    cluster = small_cluster()
    second = replace(cluster, release=replace(cluster.release, version="v1.36.3"))
    machines = LabMachines(tmp_path / "lab", "lab")
    assert machines.survey(cluster).programs["kubelet"] == ""
    survey = machines.survey(second)
    assert (survey.programs["kubelet"], survey.programs["kubectl"]) == (str(kubelet), "")
    (note,) = (one for one in survey.notes if "Kubernetes v1.36.3" in one)
    assert "`make peers GROUP=kubernetes-1.36`" in note
    with pytest.raises(LabError, match=r"UMB824 a needed program of Kubernetes v1\.36\.3 is missing"):
        machines.build(second, {})


def test_the_webhooks_configuration_comes_last_and_its_pod_is_bound_to_the_node() -> None:
    smoke_test = LabSmokeTest()
    objects = list(smoke_test.webhook_objects("master-0.example.com"))
    assert objects[0]["kind"] == "Namespace"
    assert objects[-1]["kind"] == "ValidatingWebhookConfiguration"
    assert objects[-1]["metadata"]["name"] == smoke_test.webhook_name
    pod = by_kind(objects)["Pod"]
    assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == (smoke_test.pod, smoke_test.namespace)
    assert pod["spec"]["nodeName"] == "master-0.example.com"
    first, second = (by_kind(LabSmokeTest().webhook_objects("node"))["Secret"]["data"] for _ in range(2))
    assert first["tls.key"] != second["tls.key"]


def test_the_webhook_has_something_to_allow_and_something_to_deny() -> None:
    allowed, denied = (LabSmokeTest().review_object(verdict) for verdict in ("allow", "deny"))
    assert allowed["kind"] == denied["kind"]
    assert allowed["metadata"]["labels"] != denied["metadata"]["labels"]


def test_the_workload_is_spread_and_its_service_leads_to_it() -> None:
    smoke_test = LabSmokeTest()
    objects = by_kind(smoke_test.workload(3))
    deployment, service = objects["Deployment"], objects["Service"]
    template = deployment["spec"]["template"]
    assert deployment["metadata"]["name"] == service["metadata"]["name"] == smoke_test.workload_name
    assert deployment["spec"]["replicas"] == 3
    assert (
        template["metadata"]["labels"] == deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    )
    assert [port["port"] for port in service["spec"]["ports"]] == [smoke_test.workload_port]
    (container,) = template["spec"]["containers"]
    assert container["image"] == UMBILICAL
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (spread,) = template["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"


def test_what_it_runs_is_in_its_image() -> None:
    program, url = LabSmokeTest().fetch_command("http://trial/healthz")
    assert (program in PYTHON_PROGRAMS, url) == (True, "http://trial/healthz")


def test_the_resolvers_of_a_keyfile_are_read() -> None:
    text = "[connection]\nid=x\n\n[ipv4]\ndns=192.0.2.1;192.0.2.2;\n\n[ipv6]\ndns=2001:db8::1\n"
    assert name_servers(text) == ["192.0.2.1", "192.0.2.2", "2001:db8::1"]
    assert name_servers("[ipv4]\nmethod=auto\n") == []


@given(st.text())
def test_any_keyfile_can_be_read(text: str) -> None:
    assert isinstance(name_servers(text), list)


def test_a_disk_as_new_has_what_a_fresh_one_has_and_keeps_its_mounts(tmp_path: Path) -> None:
    fresh, root = tmp_path / "fresh", tmp_path / "root"
    for place in (fresh, root):
        (place / "etc").mkdir(parents=True)
        (place / "var/lib").mkdir(parents=True)
        (place / "etc/passwd").write_text("as new")
        (place / "etc/mtab").symlink_to("../proc/self/mounts")
    (root / "etc/passwd").write_text("changed")
    (root / "etc/alien").write_text("")
    (root / "var/lib/etcd/member").mkdir(parents=True)
    (root / "var/lib/link").symlink_to("/etc")
    (root / "shared/python").mkdir(parents=True)
    (root / "shared/other").mkdir(parents=True)
    restore(root, fresh, ["/", "/shared/python"])
    assert (root / "etc/passwd").read_text() == "as new"
    assert sorted(path.relative_to(root).as_posix() for path in root.rglob("*")) == [
        *("etc", "etc/mtab", "etc/passwd", "shared", "shared/other", "shared/python", "var", "var/lib")
    ]


def test_what_is_asked_are_the_api_a_route_and_every_node_both_ways() -> None:
    cluster = small_cluster()
    forward = {one.name: one.expected for one in forward_checks(cluster)}
    assert forward["api.ocp4.example.com"] == forward["api-int.ocp4.example.com"] == "192.168.126.10"
    assert forward["console.apps.ocp4.example.com"] == "192.168.126.11"
    assert forward["master-0.ocp4.example.com"] == "192.168.126.101"
    assert NameCheck("192.168.126.100", "bootstrap.ocp4.example.com") in reverse_checks(cluster)


STATS: Final = """\
# pxname,svname,qcur,status,check_status,
api,FRONTEND,,OPEN,,
api,bootstrap.ocp4.example.com,0,UP,L7OK,
api,master-0.ocp4.example.com,0,DOWN,* L4TOUT,
api,master-1.ocp4.example.com,0,UP 1/2,INI,
api,BACKEND,0,UP,,
"""
PROCESSES: Final = """\
#<PID>          <type>          <reloads>       <uptime>        <version>
38              master          1               0d00h00m04s     2.6.12
# workers
61              worker          0               0d00h00m01s     2.6.12
# old workers
42              worker          1               0d00h00m04s     2.6.12
# programs
"""


def test_what_haproxy_says_of_its_servers_and_workers_is_read_right() -> None:
    assert parse_stats(STATS) == [
        BackendServer("api", "bootstrap.ocp4.example.com", True, "L7OK"),
        BackendServer("api", "master-0.ocp4.example.com", False, "L4TOUT"),
        # Taken for up by HAProxy, and yet never checked.
        BackendServer("api", "master-1.ocp4.example.com", False, "INI"),
    ]
    assert parse_worker(PROCESSES) == "61"
    assert parse_worker(PROCESSES.replace("61              worker", "")) is None


@given(st.text())
def test_any_answer_is_read_or_refused(text: str) -> None:
    parse_worker(text)
    with contextlib.suppress(HostError):
        parse_stats(text)
