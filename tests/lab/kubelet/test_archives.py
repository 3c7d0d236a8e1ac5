"""Archives of the lab's images: their names tell their content, and our own programs run from theirs."""

import json
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from umbilical.lab.images import PYTHON_PROGRAMS, UNPRIVILEGED, Image, lab_images
from umbilical.lab.kubelet import archives
from umbilical.lab.kubelet.archives import cache_directory, image_archive, pause_archive


def members(archive: Path) -> list[str]:
    with tarfile.open(archive) as outer:
        layer = outer.extractfile("layer.tar")
        assert layer is not None
        with tarfile.open(fileobj=layer) as inner:
            return inner.getnames()


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_directory() == Path("/somewhere/umbilical/images")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache/umbilical/images"


def test_the_pause_image_is_one_program(tmp_path: Path) -> None:
    archive = pause_archive()
    archive.write(tmp_path / archive.name)
    assert archive.name.startswith("pause-1-")
    assert "usr/bin/pause" in members(tmp_path / archive.name)


def test_the_name_of_an_archive_changes_with_its_programs(tmp_path: Path) -> None:
    program = tmp_path / "etcd"
    names = []
    for content in (b"one", b"two", b"one"):
        program.write_bytes(content)
        names.append(image_archive(lab_images_of(program), tmp_path / "cache").name)
    assert names[0] == names[2] != names[1]
    assert names[0].startswith("etcd-lab-")


def test_an_image_has_all_its_names_and_the_program_that_runs_unasked(tmp_path: Path) -> None:
    program = tmp_path / "coredns"
    program.write_bytes(b"program")
    image = Image("localhost/a:lab", {"coredns": program}, aliases=("localhost/b:lab",), entrypoint="coredns")
    archive = image_archive(image, tmp_path / "cache")
    assert archive.name != image_archive(replace(image, aliases=()), tmp_path / "cache").name
    archive.write(tmp_path / archive.name)
    with tarfile.open(tmp_path / archive.name) as outer:
        manifest, config = outer.extractfile("manifest.json"), outer.extractfile(outer.getnames()[0])
        assert manifest is not None
        assert config is not None
        assert json.load(manifest)[0]["RepoTags"] == ["localhost/a:lab", "localhost/b:lab"]
        assert json.load(config)["config"]["Entrypoint"] == ["/usr/bin/coredns"]


@pytest.mark.real("nft", "ldd")
def test_a_program_that_is_not_static_comes_with_its_libraries(tmp_path: Path) -> None:
    image = Image("localhost/kube-proxy:lab", linked={"nft": Path("/usr/sbin/nft")})
    archive = image_archive(image, tmp_path / "cache")
    archive.write(tmp_path / archive.name)
    names = members(tmp_path / archive.name)
    assert "usr/bin/nft" in names
    assert any(name.endswith("libc.so.6") for name in names)


def lab_images_of(program: Path) -> Image:
    return lab_images({"etcd": program})["localhost/etcd:lab"]


@pytest.mark.root
@pytest.mark.real("dpkg-query", "apt-cache", "chroot")
def test_our_programs_run_from_their_image_as_nobody_in_particular(tmp_path: Path) -> None:
    archive = image_archive(Image("localhost/umbilical:lab", modules=PYTHON_PROGRAMS, user=UNPRIVILEGED), tmp_path)
    archive.write(tmp_path / archive.name)
    root = tmp_path / "root"
    with tarfile.open(tmp_path / archive.name) as outer:
        layer = outer.extractfile("layer.tar")
        assert layer is not None
        with tarfile.open(fileobj=layer) as inner:
            inner.extractall(root, filter="tar")
    tmp_path.chmod(0o755)
    for program in PYTHON_PROGRAMS:
        command = ["chroot", "--userspec=65532:0", str(root), f"/usr/bin/{program}", "--help"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert "--" in done.stdout
    assert list(root.glob("usr/lib/python3/dist-packages/umbilical/tunnel/__pycache__/*.pyc"))


def test_only_sources_are_taken_over() -> None:
    entries = list(archives._own_entries({"x": "umbilical.x"}, "/usr/bin/python3.11"))
    paths = {entry.path for entry in entries}
    assert "usr/lib/python3/dist-packages/umbilical/cli/proxy_agent.py" in paths
    assert "usr/lib/python3/dist-packages/hpack/__init__.py" in paths
    assert not any(path.endswith((".so", ".pyc")) for path in paths)
    (script,) = [entry for entry in entries if entry.path == "usr/bin/x"]
    assert script.source == b"#!/usr/bin/python3.11 -I\nimport sys\nfrom umbilical.x import main\nsys.exit(main())\n"
