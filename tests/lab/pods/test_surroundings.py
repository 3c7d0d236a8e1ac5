"""Who a container runs as, with which rights, and which program of its image."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.manifests import MINIMAL, with_container
from tests.support.pod_nodes import Objects, make_node

from umbilical.lab.images import Image
from umbilical.lab.pods.container_plan import ContainerPlan
from umbilical.lab.pods.errors import PodError, Waiting
from umbilical.lab.pods.manifest import pod
from umbilical.lab.pods.spec import Container, Kind, Mount, Pod, Security
from umbilical.lab.pods.surroundings import DEFAULT_CAPABILITIES, Surroundings, capabilities, hostname, identity

ONE = Image("localhost/etcd:lab", {"etcd": Path("/x/etcd")})
TWO = Image("localhost/konnectivity:lab", {"a": Path("/x/a"), "b": Path("/x/b")}, user=(65532, 0))
OWN = Image("localhost/umbilical:lab", modules={"proxy-agent": "umbilical.cli.proxy_agent"})


def plan(folder: Path, objects: Objects | None = None, **container: Any) -> ContainerPlan:
    found = pod(with_container(MINIMAL, **{"image": ONE.reference, **container}))
    node = make_node(folder, images={image.reference: image for image in (ONE, TWO, OWN)})
    around = Surroundings(node, found, objects or Objects(), 1.0, {})
    return asyncio.run(around.plan(found.containers[0]))


@pytest.mark.parametrize(
    ("security", "expected"),
    [
        (Security(), (65532, 0)),
        (Security(user=5), (5, 0)),
        (Security(user=5, group=6), (5, 6)),
        (Security(group=6), (65532, 6)),
        (Security(user=0), (0, 0)),
        (Security(refuses_root=True), (65532, 0)),
    ],
)
def test_the_pods_user_counts_before_the_images(security: Security, expected: tuple[int, int]) -> None:
    assert identity(security, TWO) == expected


def test_root_is_refused_where_the_pod_refuses_it() -> None:
    for security, image in ((Security(refuses_root=True), ONE), (Security(user=0, refuses_root=True), TWO)):
        with pytest.raises(Waiting, match="runAsNonRoot"):
            identity(security, image)


def test_capabilities_are_added_and_dropped_under_either_name() -> None:
    assert capabilities(Security()) == DEFAULT_CAPABILITIES
    assert capabilities(Security(dropped=("ALL",))) == ()
    assert capabilities(Security(dropped=("ALL",), added=("CAP_NET_BIND_SERVICE",))) == ("NET_BIND_SERVICE",)
    assert "NET_RAW" not in capabilities(Security(dropped=("net_raw",)))
    assert "SYS_ADMIN" in capabilities(Security(is_privileged=True))


def test_a_name_is_as_long_as_the_kernel_takes_it() -> None:
    assert len(hostname(Pod("p" * 200, "ns", "u", ()))) == 63
    assert hostname(Pod("p", "ns", "u", (), hostname="h")) == "h"


def test_an_image_of_one_program_needs_no_command(tmp_path: Path) -> None:
    assert plan(tmp_path, args=["--a"]).command == ("etcd", "--a")


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("/usr/bin/proxy-agent", "/usr/local/bin/proxy-agent"),
        ("proxy-agent", "proxy-agent"),
        ("/usr/bin/env", "/usr/bin/env"),
        ("/opt/proxy-agent", "/opt/proxy-agent"),
    ],
)
def test_a_program_of_our_own_is_found_under_its_path_in_the_image(tmp_path: Path, named: str, found: str) -> None:
    assert plan(tmp_path, image=OWN.reference, command=[named], args=["--a"]).command == (found, "--a")


def test_an_image_of_several_programs_needs_one(tmp_path: Path) -> None:
    with pytest.raises(PodError, match="does not say which"):
        plan(tmp_path, image=TWO.reference)


def test_an_image_that_nobody_has_is_waited_for_as_a_kubelet_would(tmp_path: Path) -> None:
    with pytest.raises(Waiting) as waiting:
        plan(tmp_path, image="registry.example/etcd:1")
    assert waiting.value.reason == "ErrImageNeverPull"
    assert waiting.value.code == "UMB836"


def test_all_keys_of_an_object_can_be_variables(tmp_path: Path) -> None:
    objects = Objects()
    objects.known[Kind.CONFIG_MAP, "default", "c"] = {"A": b"1", "B": b"x\0y"}
    sources = [{"prefix": "P_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "none", "optional": True}}]
    environment = plan(tmp_path, objects, envFrom=sources).environment
    assert (environment["P_A"], environment["P_B"]) == ("1", "x")


def test_a_missing_optional_key_is_no_variable(tmp_path: Path) -> None:
    reference = {"name": "none", "key": "k", "optional": True}
    assert "A" not in plan(tmp_path, env=[{"name": "A", "valueFrom": {"secretKeyRef": reference}}]).environment


def test_secrets_are_in_no_argument_that_others_can_see(tmp_path: Path) -> None:
    objects = Objects()
    objects.known[Kind.SECRET, "default", "s"] = {"k": b"hidden"}
    variables = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    found = plan(tmp_path, objects, env=variables)
    assert found.environment["A"] == "hidden"
    assert "hidden" not in " ".join(found.command)


def test_a_path_in_a_volume_is_made_when_it_is_mounted(tmp_path: Path) -> None:
    found = pod(with_container(MINIMAL, image=ONE.reference))
    volume = tmp_path / "volume"
    volume.mkdir()
    node = make_node(tmp_path, images={ONE.reference: ONE})
    around = Surroundings(node, found, Objects(), 1.0, {"v": volume})
    asyncio.run(around.plan(Container("main", ONE.reference, mounts=(Mount("v", "/x", sub_path="a/b"),))))
    assert (volume / "a/b").is_dir()
