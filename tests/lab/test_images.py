"""The table of images: ours always, others where their programs are."""

from pathlib import Path

import pytest

from umbilical.lab.errors import LabError
from umbilical.lab.images import KONNECTIVITY, TUNNEL, UMBILICAL, distinct, from_json, lab_images, to_json


def test_our_own_image_is_there_without_any_binary() -> None:
    images = lab_images({})
    assert list(images) == [UMBILICAL, TUNNEL]
    assert images[TUNNEL] is images[UMBILICAL]
    assert distinct(images) == [images[UMBILICAL]]
    assert images[UMBILICAL].is_python
    assert {"proxy-server", "proxy-agent", "lab-service", "lab-fetch"} == set(images[UMBILICAL].modules)


def test_an_image_is_there_once_all_its_programs_are() -> None:
    assert KONNECTIVITY not in lab_images({"proxy-server": Path("/x/proxy-server")})
    images = lab_images({name: Path("/x") / name for name in ("proxy-server", "proxy-agent", "etcd")})
    assert set(images) == {UMBILICAL, TUNNEL, KONNECTIVITY, "localhost/etcd:lab"}
    assert not images["localhost/etcd:lab"].is_python


def test_programs_of_the_tunnel_do_not_run_as_root_unless_asked_to() -> None:
    images = lab_images({name: Path("/x") / name for name in ("proxy-server", "proxy-agent", "etcd")})
    assert images[UMBILICAL].user[0] != 0
    assert images[KONNECTIVITY].user[0] != 0
    assert images["localhost/etcd:lab"].user == (0, 0)


def test_etcds_image_has_the_client_that_probes_run_where_it_was_found() -> None:
    found = {name: Path("/x") / name for name in ("etcd", "etcdctl")}
    assert set(lab_images(found)["localhost/etcd:lab"].programs) == {"etcd", "etcdctl"}
    assert set(lab_images({"etcd": Path("/x/etcd")})["localhost/etcd:lab"].programs) == {"etcd"}


@pytest.mark.real("nft")
def test_kube_proxys_image_has_the_packet_filters_program() -> None:
    image = lab_images({"kube-proxy": Path("/x/kube-proxy")})["localhost/kube-proxy:lab"]
    assert set(image.linked) == {"nft"}
    assert from_json(to_json({image.reference: image})) == {image.reference: image}


def test_the_table_survives_its_journey_to_a_node() -> None:
    images = lab_images({"etcd": Path("/x/etcd")})
    assert from_json(to_json(images)) == images


@pytest.mark.parametrize("content", [b"", b"{}x", b"7", b"[7]", b'[{"reference": "a"}]', b'{"a": 1}'])
def test_a_table_that_cannot_be_read_is_told_of(content: bytes) -> None:
    with pytest.raises(LabError, match="UMB839"):
        from_json(content)
