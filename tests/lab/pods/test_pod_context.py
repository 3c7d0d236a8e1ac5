"""Who a container runs as, with which rights, variables and program of its image."""

import asyncio
import ipaddress
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manifests import MINIMAL, with_container
from tests.support.pod_nodes import Objects, make_node

from umbilical.fault import PodError, PodWaiting
from umbilical.lab.images import Image
from umbilical.lab.pods.container_plan import ContainerPlan, is_mapped, may_set_groups
from umbilical.lab.pods.manifest import pod
from umbilical.lab.pods.node import RunnerNode
from umbilical.lab.pods.pod_context import (
    DEFAULT_CAPABILITIES,
    PodContext,
    capabilities,
    expand,
    expand_all,
    hostname,
    identity,
    pod_field,
)
from umbilical.lab.pods.pod_networks import AddressPool, PodNetworks, link_name
from umbilical.lab.pods.spec import Container, LabPod, Security, SourceKind, VolumeMount

POD = LabPod("p", "ns", "uid", (Container("c", "i"),), labels={"app": "x", "b": "y"}, annotations={"a.b/c": "d"})


def test_references_are_replaced_where_they_are_known() -> None:
    texts = ("--host=$(HOST)", "$(HOST)$(HOST)", "$(UNKNOWN)", "$$(HOST)", "$$$(HOST)", "5$", "$HOST", "$(HOST", "$()")
    assert [expand(text, {"HOST": "10.0.0.1"}) for text in texts] == [
        *("--host=10.0.0.1", "10.0.0.110.0.0.1", "$(UNKNOWN)", "$(HOST)", "$10.0.0.1", "5$", "$HOST", "$(HOST", "$()")
    ]


@given(st.text(alphabet="$()AB x", max_size=30))
def test_text_without_dollars_is_never_touched(text: str) -> None:
    plain = text.replace("$", "")
    assert expand_all([plain], {"A": "z"}) == (plain,)


def test_a_pod_can_be_told_of_itself() -> None:
    expected = {
        "metadata.name": "p",
        "metadata.namespace": "ns",
        "metadata.uid": "uid",
        "metadata.labels['app']": "x",
        "metadata.labels['none']": "",
        "metadata.annotations['a.b/c']": "d",
        "metadata.labels": 'app="x"\nb="y"',
        "spec.nodeName": "node",
        "spec.serviceAccountName": "default",
        "status.hostIP": "10.91.0.10",
        "status.podIP": "10.92.0.2",
        "status.podIPs": "10.92.0.2,fd92::2",
    }
    found = {path: pod_field(POD, path, "node", "10.91.0.10", ("10.92.0.2", "fd92::2")) for path in expected}
    assert found == expected
    with pytest.raises(PodError, match="UMB831"):
        pod_field(POD, "spec.secret", "node", "10.91.0.10", ())


def test_a_user_exists_where_the_map_has_it_and_groups_can_be_set_where_the_kernel_says_so(tmp_path: Path) -> None:
    whole, one, two = "0 0 4294967295\n", "         0       1000          1\n", "0 1000 1\n1 100000 65536\n"
    cases = ((whole, 65532, True), (one, 0, True), (one, 65532, False), (two, 65532, True), (two, 65537, False))
    for text, number, expected in (*cases, ("", 0, False)):
        (tmp_path / "uid_map").write_text(text)
        assert is_mapped("uid", number, tmp_path) is expected
    for text, expected in (("allow\n", True), ("deny\n", False)):
        (tmp_path / "setgroups").write_text(text)
        assert may_set_groups(tmp_path) is expected
    assert is_mapped("uid", os.getuid())
    assert not is_mapped("gid", 2**32)


ONE = Image("localhost/etcd:lab", {"etcd": Path("/x/etcd")})
TWO = Image("localhost/konnectivity:lab", {"a": Path("/x/a"), "b": Path("/x/b")}, user=(65532, 0))
OWN = Image("localhost/umbilical:lab", modules={"proxy-agent": "umbilical.cli.drop_ins.proxy_agent"})


def plan(folder: Path, objects: Objects | None = None, **container: Any) -> ContainerPlan:
    found = pod(with_container(MINIMAL, **{"image": ONE.reference, **container}))
    node = make_node(folder, images={image.reference: image for image in (ONE, TWO, OWN)})
    around = PodContext(node, found, objects or Objects(), 1.0, {})
    return asyncio.run(around.plan(found.containers[0]))


def test_the_pods_user_counts_before_the_images_and_root_may_be_refused() -> None:
    for wanted, expected in (
        (Security(), (65532, 0)),
        (Security(user=5), (5, 0)),
        (Security(user=5, group=6), (5, 6)),
        (Security(group=6), (65532, 6)),
        (Security(user=0), (0, 0)),
        (Security(refuses_root=True), (65532, 0)),
    ):
        assert identity(wanted, TWO) == expected
    for security, image in ((Security(refuses_root=True), ONE), (Security(user=0, refuses_root=True), TWO)):
        with pytest.raises(PodWaiting, match="runAsNonRoot"):
            identity(security, image)


def test_capabilities_and_names_are_what_the_kernel_takes() -> None:
    assert capabilities(Security()) == DEFAULT_CAPABILITIES
    assert capabilities(Security(dropped=("ALL",))) == ()
    assert capabilities(Security(dropped=("ALL",), added=("CAP_NET_BIND_SERVICE",))) == ("NET_BIND_SERVICE",)
    assert "NET_RAW" not in capabilities(Security(dropped=("net_raw",)))
    assert "SYS_ADMIN" in capabilities(Security(is_privileged=True))
    assert len(hostname(LabPod("p" * 200, "ns", "u", ()))) == 63
    assert hostname(LabPod("p", "ns", "u", (), hostname="h")) == "h"
    names = {link_name(f"uid-{number}") for number in range(100)}
    assert len(names) == 100
    assert max(map(len, names)) <= 15


def test_a_program_is_found_under_its_path_in_the_image_and_one_alone_needs_no_command(tmp_path: Path) -> None:
    names = {"/usr/bin/proxy-agent": "/usr/local/bin/proxy-agent"}
    for number, named in enumerate((*names, "proxy-agent", "/usr/bin/env", "/opt/proxy-agent")):
        made = plan(tmp_path / str(number), image=OWN.reference, command=[named], args=["--a"])
        assert made.command == (names.get(named, named), "--a")
    assert plan(tmp_path / "one", args=["--a"]).command == ("etcd", "--a")
    with pytest.raises(PodError, match="names none of them"):
        plan(tmp_path / "two", image=TWO.reference)


def test_an_image_that_nobody_has_is_waited_for_as_a_kubelet_would(tmp_path: Path) -> None:
    with pytest.raises(PodWaiting, match="UMB836") as waiting:
        plan(tmp_path, image="registry.example/etcd:1")
    assert waiting.value.reason == "ErrImageNeverPull"


def test_variables_come_from_objects_and_secrets_are_in_no_argument(tmp_path: Path) -> None:
    objects = Objects()
    objects.known[SourceKind.CONFIG_MAP, "default", "c"] = {"A": b"1", "B": b"x\0y"}
    sources = [{"prefix": "P_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "none", "optional": True}}]
    environment = plan(tmp_path, objects, envFrom=sources).environment
    assert (environment["P_A"], environment["P_B"]) == ("1", "x")
    reference = {"name": "none", "key": "k", "optional": True}
    assert "A" not in plan(tmp_path / "2", env=[{"name": "A", "valueFrom": {"secretKeyRef": reference}}]).environment
    objects.known[SourceKind.SECRET, "default", "s"] = {"k": b"hidden"}
    variables = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    found = plan(tmp_path / "3", objects, env=variables)
    assert found.environment["A"] == "hidden"
    assert "hidden" not in " ".join(found.command)


def test_a_path_in_a_volume_is_made_when_it_is_mounted(tmp_path: Path) -> None:
    found = pod(with_container(MINIMAL, image=ONE.reference))
    volume = tmp_path / "volume"
    volume.mkdir()
    node = make_node(tmp_path, images={ONE.reference: ONE})
    around = PodContext(node, found, Objects(), 1.0, {"v": volume})
    asyncio.run(around.plan(Container("main", ONE.reference, mounts=(VolumeMount("v", "/x", sub_path="a/b"),))))
    assert (volume / "a/b").is_dir()


IPV4 = ipaddress.ip_network("10.92.1.0/24")
IPV6 = ipaddress.ip_network("fd92:0:0:1::/64")


def test_addresses_are_low_unique_and_given_back() -> None:
    pool = AddressPool((IPV4, IPV6))
    assert [str(interface) for interface in pool.take("a")] == ["10.92.1.2/24", "fd92:0:0:1::2/64"]
    assert [str(gateway) for gateway in pool.gateways] == ["10.92.1.1", "fd92:0:0:1::1"]
    pool = AddressPool((IPV4,))
    first, second = pool.take("a"), pool.take("b")
    pool.give_back("a")
    assert pool.take("c") == first
    assert pool.take("d") != second


def test_a_pod_without_a_network_or_an_address_is_told_why() -> None:
    pool = AddressPool((ipaddress.ip_network("10.92.1.0/30"),))
    pool.take("a")
    with pytest.raises(PodWaiting, match="UMB835"):
        pool.take("b")
    with pytest.raises(PodWaiting, match="no pod network"):
        AddressPool(()).take("a")
    networks = PodNetworks(RunnerNode("bootstrap", ("10.91.0.10",), {}))
    with pytest.raises(PodWaiting, match="UMB835"):
        asyncio.run(networks.attach(LabPod("p", "ns", "u", (Container("a", "i"),))))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60))
def test_no_address_is_taken_twice(moves: list[tuple[bool, int]]) -> None:
    pool = AddressPool((IPV4,))
    held: dict[str, object] = {}
    for takes, number in moves:
        uid = str(number)
        if takes and uid not in held:
            held[uid] = pool.take(uid)[0]
        elif not takes:
            pool.give_back(uid)
            held.pop(uid, None)
        assert len(set(held.values())) == len(held)
