"""The image for arm64 under emulation: its programs run and carry bytes. Nothing can be said about their speed."""

import platform
import random
import shutil
import threading
from pathlib import Path
from typing import Final

import pytest
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.image_archives import image_pair, read_image, run_inside, share
from tests.support.in_process import echo, listening
from tests.support.tunnel_client import receive_exactly

import image
import wheels
from umbilical.bootstrap.patch.patch import undo
from umbilical.ignition.document import IgnitionDocument
from umbilical.manifests.objects import IMAGE_PROGRAMS

SECONDS: Final = 900
EMULATOR: Final = "qemu-aarch64-static"
EMULATED: Final = (f"/tmp/{EMULATOR}", "/usr/bin/python3", "-sP")
"""Without a kernel that starts it for programs of another machine, so its Python is named too."""
TRANSFERRED: Final = 16 << 20


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked image for arm64, with the emulator in it."""
    folder = tmp_path_factory.mktemp("arm64")
    wheels.build("pure", folder)
    read = read_image(image.make(folder, folder, "arm64"))
    assert read.config["architecture"] == "arm64"
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o755)
    read.unpack(folder / "root")
    emulator = shutil.which(EMULATOR)
    assert emulator is not None
    shutil.copy(emulator, folder / "root/tmp")
    return folder / "root"


pytestmark = [
    pytest.mark.soak,
    pytest.mark.root,
    pytest.mark.timeout(SECONDS),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="emulates arm64 on x86-64"),
    pytest.mark.skipif(shutil.which(EMULATOR) is None, reason=f"no {EMULATOR}: apt-get install qemu-user-static"),
]


def test_every_program_starts(arm64: Path) -> None:
    for path in IMAGE_PROGRAMS:
        assert "--" in run_inside(arm64, *EMULATED, path, "--help"), path
    assert ", pure, " in run_inside(arm64, *EMULATED, "/usr/bin/umbilical", "version")
    assert run_inside(arm64, *EMULATED, "-c", "import os; print(os.uname().machine)") == "aarch64\n"


def test_a_bootstrap_config_is_patched(arm64: Path, tmp_path: Path) -> None:
    config = tmp_path / "bootstrap.ign"
    config.write_bytes(bootstrap_config("4.18"))
    share(arm64, tmp_path)
    words = ("bootstrap", "patch", str(config), "--out", str(tmp_path / "patched.ign"))
    run_inside(arm64, *EMULATED, "/usr/bin/umbilical", *words, folder=tmp_path)
    patched = IgnitionDocument((tmp_path / "patched.ign").read_bytes())
    assert undo(patched).content == config.read_bytes()


def test_a_tunnel_carries_bytes_both_ways(arm64: Path, tmp_path: Path) -> None:
    pair = image_pair(arm64, tmp_path, EMULATED)
    content = random.Random(1).randbytes(TRANSFERRED)
    try:
        pair.start()
        with listening() as endpoint:
            tunnel = pair.frontend().open(endpoint.serve(echo).address)
            sender = threading.Thread(target=tunnel.send, args=(content,))
            sender.start()
            received = receive_exactly(tunnel, TRANSFERRED)
            sender.join(SECONDS)
            tunnel.close()
    finally:
        pair.stop()
    assert received == content
