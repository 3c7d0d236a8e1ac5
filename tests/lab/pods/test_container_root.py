"""What lies in a container's root, and in which order."""

from pathlib import Path

from umbilical.lab.images import PYTHON_PROGRAMS, UMBILICAL, Image, lab_images
from umbilical.lab.pods.container_plan import Part, Piece
from umbilical.lab.pods.container_root import LAUNCHERS, pieces
from umbilical.lab.pods.spec import Container, Mount

STATIC = Image("localhost/etcd:lab", {"etcd": Path("/cache/etcd")})


def laid(image: Image, *mounts: Mount) -> dict[str, Piece]:
    container = Container("c", image.reference, mounts=mounts)
    volumes = {mount.volume: f"/volumes/{mount.volume}" for mount in mounts}
    found = pieces(image, container, volumes, {"/etc/hosts": "/files/hosts"}, "/files/words")
    assert len({piece.target for piece in found}) == len(found)
    return {piece.target: piece for piece in found}


def test_a_static_image_holds_its_program_and_nothing_of_the_machine() -> None:
    found = laid(STATIC)
    assert found["/usr/bin/etcd"] == Piece(Part.BIND, "/usr/bin/etcd", "/cache/etcd", is_read_only=True)
    assert "/usr" not in found
    assert "/bin" not in found


def test_a_python_image_holds_the_system_read_only_and_launchers_of_its_own_programs_alone() -> None:
    found = laid(lab_images({})[UMBILICAL])
    assert found["/usr"].is_read_only
    assert found["/etc/host.conf"].is_read_only
    launchers = {target for target, piece in found.items() if piece.part is Part.FILE}
    assert launchers == {f"{LAUNCHERS}/{name}" for name in PYTHON_PROGRAMS}
    assert "umbilical.cli.proxy_server" in found[f"{LAUNCHERS}/proxy-server"].source
    order = list(found)
    assert order.index("/usr") < order.index(LAUNCHERS) < order.index(f"{LAUNCHERS}/proxy-server")


def test_a_mount_comes_after_the_one_that_it_lies_in() -> None:
    order = list(laid(STATIC, Mount("b", "/data/inner/deep"), Mount("a", "/data"), Mount("c", "/data/inner")))
    assert [place for place in order if place.startswith("/data")] == ["/data", "/data/inner", "/data/inner/deep"]


def test_a_volume_is_mounted_as_it_is_or_by_a_path_in_it() -> None:
    found = laid(STATIC, Mount("file", "/a.conf", is_read_only=True), Mount("folder", "/b", sub_path="x/y"))
    assert found["/a.conf"] == Piece(Part.BIND, "/a.conf", "/volumes/file", is_read_only=True)
    assert found["/b"].source == "/volumes/folder/x/y"


def test_devices_are_the_harmless_ones() -> None:
    devices = {place for place in laid(STATIC) if place.startswith("/dev/")}
    assert {"/dev/null", "/dev/urandom", "/dev/shm", "/dev/termination-log"} <= devices
    assert not {"/dev/mem", "/dev/vda", "/dev/kmsg"} & devices
