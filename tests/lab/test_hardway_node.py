"""One machine of a lab: its first boot, a boot that is killed half-way, another config, a disk as new."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hardway_lab import PROGRAMS, UNIT, built, ignition, small_cluster
from tests.support.labs import wait_until

from umbilical.host.machine_records import Power
from umbilical.lab.errors import LabError
from umbilical.lab.hardway_node import BOOTED, DROP_IN, FIRST_BOOT, JOURNAL, RESULT, LabNode, name_servers, restore
from umbilical.lab.images import UMBILICAL
from umbilical.lab.kubelet import containerd
from umbilical.lab.kubelet.node_images import COMPLETE
from umbilical.lab.lab import Lab

NAME = "master-0.ocp4.example.com"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    place = tmp_path_factory.mktemp("node") / "lab"
    with built(place, small_cluster()):
        yield Lab.open(place)


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real(*PROGRAMS)
class TestMachine:
    def test_units_that_ignition_enables_run_and_their_words_are_on_the_node(self, lab: Lab) -> None:
        node = LabNode(lab, "master-0")
        node.install(ignition(NAME))
        # containerd is the machine's own: the config enables it and does not bring it.
        assert node.enabled_units() == [UNIT]
        wait_until(lambda: b"tick" in lab.read("master-0", f"{JOURNAL}/{UNIT}.log"))
        assert b"cgroupRoot: /umbilical-test-" in lab.read("master-0", DROP_IN)
        assert [one.exit_code for one in lab.processes() if one.name in (UNIT, "containerd")] == [None, None]

    def test_another_config_is_refused_and_the_machine_left_as_it_is(self, lab: Lab) -> None:
        node = LabNode(lab, "master-0")
        node.install(ignition(NAME))
        with pytest.raises(LabError, match="UMB737"):
            node.install(ignition("other.ocp4.example.com"))
        assert node.has(ignition(NAME))
        assert node.power is Power.ON

    def test_a_machine_that_was_half_set_up_is_set_up_anew(self, lab: Lab) -> None:
        node = LabNode(lab, "bootstrap")
        node.install(ignition("bootstrap.ocp4.example.com"))
        # As a run leaves it that is killed while it lays files.
        lab.remove("bootstrap", RESULT)
        assert LabNode(lab, "bootstrap").power is Power.ABSENT
        lab.write("bootstrap", "/etc/left-over", b"")
        node.install(ignition("bootstrap.ocp4.example.com"))
        assert node.power is Power.ON
        assert not lab.exists("bootstrap", "/etc/left-over")

    def test_a_first_boot_that_was_killed_is_no_installation_and_is_done_again(self, lab: Lab) -> None:
        node = LabNode(lab, "bootstrap")
        node.install(ignition("bootstrap.ocp4.example.com"))
        for path in (BOOTED, FIRST_BOOT, f"{containerd.STATE_DIRECTORY}/{COMPLETE}"):
            lab.remove("bootstrap", path)
        # Something runs, so it is not off; and yet it is not what was asked for.
        assert node.power is Power.ON
        assert not node.has(ignition("bootstrap.ocp4.example.com"))
        lab.write("bootstrap", "/var/lib/kept", b"")
        before = {one.pid for one in lab.processes()}
        node.install(ignition("bootstrap.ocp4.example.com"))
        assert node.has(ignition("bootstrap.ocp4.example.com"))
        assert lab.exists("bootstrap", "/var/lib/kept")
        assert {one.pid for one in lab.processes() if one.node == "bootstrap" and one.exit_code is None}.isdisjoint(
            before
        )
        images = containerd.ctr(lab, "bootstrap", "images", "ls", "-q").check().text
        assert UMBILICAL in images.split()

    def test_a_machine_without_power_runs_nothing_and_hears_nothing(self, lab: Lab) -> None:
        node = LabNode(lab, "master-0")
        node.install(ignition(NAME))
        node.shut_down()
        assert node.power is Power.OFF
        assert [one for one in lab.processes() if one.node == "master-0" and one.exit_code is None] == []
        assert not lab.describe_network()["nodes"]["master-0"]["is_linked"]
        node.boot()
        assert lab.describe_network()["nodes"]["master-0"]["is_linked"]

    def test_a_config_that_cannot_be_applied_installs_nothing(self, lab: Lab) -> None:
        node = LabNode(lab, "master-0")
        node.clear()
        with pytest.raises(LabError, match="UMB816"):
            node.install(b'{"ignition": {"version": "9.9.9"}}')
        assert node.power is Power.ABSENT


def test_the_resolvers_of_a_keyfile_are_read() -> None:
    text = "[connection]\nid=x\n\n[ipv4]\ndns=192.0.2.1;192.0.2.2;\n\n[ipv6]\ndns=2001:db8::1\n"
    assert name_servers(text) == ["192.0.2.1", "192.0.2.2", "2001:db8::1"]


def test_a_keyfile_without_resolvers_has_none() -> None:
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
