"""The SBOM of an image: what the image itself says of Debian's and Python's packages, valid and always the same."""

import json
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.image_archives import built, built_archive, read_image

import image_root
import image_sbom
import lock
import release
from umbilical import __version__
from umbilical.lab.kubelet.image_format import ImageConfig, LayerEntry, write_archive
from umbilical.lab.kubelet.python_root import SITE

EPOCH: Final = 1_700_000_000
PACKAGES: Final = lock.read(lock.LOCK.read_text())
FILES: Final = {
    "usr/lib/os-release": 'NAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="12"\n',
    f"{image_sbom.RECORDS}/zlib1g": (
        "Package: zlib1g\nSource: zlib\nVersion: 1:1.2.13.dfsg-1\nArchitecture: amd64\n"
        "Depends: libc6 (>= 2.14)\nDescription: library\n more of it\n"
    ),
    f"{image_sbom.RECORDS}/libc6": (
        "Package: libc6\nSource: glibc (2.36-9)\nVersion: 2.36-9+b1\nArchitecture: amd64\nDepends: libgcc-s1\n"
    ),
    f"{image_sbom.RECORDS}/python3.11-minimal": (
        "Package: python3.11-minimal\nVersion: 3.11.2-6\nArchitecture: amd64\n"
        "Pre-Depends: libc6 (>= 2.35)\nDepends: awk | mawk, zlib1g:any (>= 1:1.2.0)\n"
    ),
    f"{SITE}/umbilical-1.0.dist-info/METADATA": "Name: umbilical\nVersion: 1.0\nLicense-Expression: Apache-2.0\n\nText",
    f"{SITE}/PyYAML-6.0.dist-info/METADATA": "Name: PyYAML\nVersion: 6.0\nLicense: MIT\n",
    f"{SITE}/umbilical-1.0.dist-info/RECORD": "not read",
}


def archive_of(folder: Path, files: dict[str, str]) -> Path:
    target = folder / "image.oci.tar"
    entries = [LayerEntry(path, text.encode(), 0o644) for path, text in files.items()]
    write_archive(target, ["localhost/umbilical:1.0"], entries, ImageConfig("amd64"), is_compressed=True)
    return target


def document(archive: Path) -> Any:
    return json.loads(image_sbom.render(archive, "1.0", PACKAGES, EPOCH))


def below(found: Any) -> dict[str, list[str]]:
    return {one["ref"]: one.get("dependsOn", []) for one in found["dependencies"]}


def test_every_package_has_the_name_by_which_scanners_know_it(tmp_path: Path) -> None:
    found = document(archive_of(tmp_path, FILES))
    assert {one["purl"] for one in found["components"] if "purl" in one} == {
        "pkg:deb/debian/libc6@2.36-9%2Bb1?arch=amd64&distro=debian-12&upstream=glibc%402.36-9",
        "pkg:deb/debian/python3.11-minimal@3.11.2-6?arch=amd64&distro=debian-12",
        "pkg:deb/debian/zlib1g@1:1.2.13.dfsg-1?arch=amd64&distro=debian-12&upstream=zlib",
        "pkg:pypi/pyyaml@6.0",
        "pkg:pypi/umbilical@1.0",
    }
    (system,) = [one for one in found["components"] if one["type"] == "operating-system"]
    assert (system["name"], system["version"]) == ("debian", "12")
    licences = {one["name"]: one["licenses"] for one in found["components"] if "licenses" in one}
    assert licences == {"umbilical": [{"expression": "Apache-2.0"}]}


def test_packages_are_below_what_needs_them_and_the_others_below_the_image(tmp_path: Path) -> None:
    found = below(document(archive_of(tmp_path, FILES)))
    assert found["image"] == ["debian-12", "debian/python3.11-minimal", "umbilical"]
    assert found["debian/python3.11-minimal"] == ["debian/libc6", "debian/zlib1g"]
    assert found["debian/libc6"] == []
    assert found["umbilical"] == ["pyyaml"]


def test_the_document_names_the_image_by_its_digest_and_changes_only_with_it(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, FILES)
    with tarfile.open(archive) as opened:
        index = opened.extractfile("index.json")
        assert index is not None
        digest = json.load(index)["manifests"][0]["digest"]
    text = image_sbom.render(archive, "1.0", PACKAGES, EPOCH)
    assert json.loads(text)["metadata"]["component"]["purl"] == f"pkg:oci/umbilical@{digest}?arch=amd64&tag=1.0"
    assert image_sbom.render(archive, "1.0", PACKAGES, EPOCH) == text
    changed = archive_of(tmp_path, {**FILES, "etc/motd": "another image"})
    assert document(changed)["serialNumber"] != json.loads(text)["serialNumber"]


@pytest.mark.filterwarnings("ignore:.*maximum length")
def test_a_document_that_cyclonedx_does_not_know_is_refused(tmp_path: Path) -> None:
    metadata = f"{SITE}/umbilical-1.0.dist-info/METADATA"
    wrong = FILES[metadata].replace("1.0", "1" * 2000)
    with pytest.raises(ValueError, match="the SBOM of localhost/umbilical is not valid"):
        document(archive_of(tmp_path, {**FILES, metadata: wrong}))


def test_an_image_without_a_record_of_its_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(release.ReleaseRefused, match=r"UMB935 .+ has no SBOM\n  why: a record .+: 'ID'\n  next: "):
        release.image_document(archive_of(tmp_path, {}), PACKAGES, EPOCH)


@built
@pytest.mark.image
def test_the_built_image_s_document_has_all_that_is_in_it() -> None:
    found = json.loads(image_sbom.render(built_archive(), __version__, PACKAGES, EPOCH))
    purls = [one.get("purl", "") for one in found["components"]]
    debian = {one["name"]: one["version"] for one in found["components"] if "pkg:deb/" in one.get("purl", "")}
    assert set(debian) == set(image_root.PACKAGES)
    wanted = {line.split(" ")[0] for line in image_root.locked(lock.LOCK.read_text(), image_root.PROJECT.read_text())}
    locked = {f"pkg:pypi/{line.replace('==', '@')}" for line in wanted}
    assert {one for one in purls if one.startswith("pkg:pypi/")} == locked | {f"pkg:pypi/umbilical@{__version__}"}
    record = read_image(built_archive()).layer.extractfile(f"{image_sbom.RECORDS}/libssl3")
    assert record is not None
    assert f"\nVersion: {debian['libssl3']}\n" in record.read().decode()
