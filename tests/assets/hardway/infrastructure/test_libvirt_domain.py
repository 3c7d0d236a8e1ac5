"""A virtual machine: its disk boots first, its console is for the host alone, its files lie in the pool."""

from xml.etree import ElementTree

from tests.support.hardway import cluster

from umbilical.assets.hardway.infrastructure.libvirt_domain import domain_xml


def _root(node_id: str) -> ElementTree.Element:
    of = cluster()
    assert of.libvirt is not None
    return ElementTree.fromstring(domain_xml(of, of.libvirt, of.node(node_id)))


def test_the_disk_boots_before_the_live_system() -> None:
    assert [boot.attrib["dev"] for boot in _root("master-0").findall("os/boot")] == ["hd", "cdrom"]


def test_a_machine_is_as_large_as_its_role_asks() -> None:
    assert [_root(node).findtext("memory") for node in ("master-0", "worker-0")] == ["16384", "8192"]
    assert _root("worker-0").findtext("vcpu") == "4"


def test_disk_and_live_system_lie_in_the_pool() -> None:
    sources = [source.attrib["file"] for source in _root("worker-1").findall("devices/disk/source")]
    folder = "/var/lib/libvirt/images/ocp4"
    assert sources == [f"{folder}/ocp4-worker-1.qcow2", f"{folder}/ocp4-worker-1.iso"]


def test_the_live_system_cannot_be_written() -> None:
    assert _root("bootstrap").find("devices/disk[@device='cdrom']/readonly") is not None


def test_the_console_listens_on_loopback() -> None:
    graphics = _root("bootstrap").find("devices/graphics")
    assert graphics is not None
    assert graphics.attrib["listen"] == "127.0.0.1"


def test_the_card_is_on_the_clusters_network() -> None:
    source = _root("bootstrap").find("devices/interface/source")
    assert source is not None
    assert source.attrib == {"network": "ocp4"}
