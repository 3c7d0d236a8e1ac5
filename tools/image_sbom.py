"""Makes the software bill of materials of an image from the image itself: Debian's packages, and Python's.

Its layer has a record of each: in `var/lib/dpkg/status.d`, and in `*.dist-info`.
"""

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from cyclonedx.model.component import Component, ComponentType
from packageurl import PackageURL

import lock
import sbom
from umbilical.lab.kubelet.python_root import SITE

RECORDS: Final = "var/lib/dpkg/status.d"
RELEASE: Final = "usr/lib/os-release"
_METADATA: Final = re.compile(rf"{re.escape(SITE)}/[^/]+\.dist-info/METADATA")
_SOURCE: Final = re.compile(r"(\S+)(?: \((\S+)\))?")


def file_name(version: str, architecture: str) -> str:
    return f"{lock.OURSELVES}-{version}-{architecture}.cdx.json"


@dataclass
class ImageContent:
    """What an archive's layer says."""

    digest: str
    """Of the manifest: it names the image in a registry."""
    architecture: str
    debian: list[Message] = field(default_factory=list)
    """The records of Debian's packages, sorted by name."""
    python: list[Message] = field(default_factory=list)
    release: dict[str, str] = field(default_factory=dict)

    @property
    def distribution(self) -> str:
        return f"{self.release['ID']}-{self.release['VERSION_ID']}"


def read(archive: Path) -> ImageContent:
    """Read an image's archive. Raises KeyError or ValueError: it is none of ours."""
    with tarfile.open(archive) as outer:
        (listed,) = _json(outer, "manifest.json")
        (manifest,) = _json(outer, "index.json")["manifests"]
        (layer,) = listed["Layers"]
        found = ImageContent(manifest["digest"], _json(outer, listed["Config"])["architecture"])
        with tarfile.open(fileobj=_opened(outer, layer)) as files:
            for member in files:
                _add(found, member, files)
    for packages in (found.debian, found.python):
        packages.sort(key=lambda one: str(one["Package"] or one["Name"]))
    return found


def _json(archive: tarfile.TarFile, name: str) -> Any:
    return json.load(_opened(archive, name))


def _opened(archive: tarfile.TarFile, member: str | tarfile.TarInfo) -> IO[bytes]:
    found = archive.extractfile(member)
    if found is None:
        raise ValueError(f"{member} is not a file")
    return found


def _add(found: ImageContent, member: tarfile.TarInfo, files: tarfile.TarFile) -> None:
    is_record = PurePosixPath(member.name).parent == PurePosixPath(RECORDS) and member.isfile()
    if not is_record and member.name != RELEASE and not _METADATA.fullmatch(member.name):
        return
    text = _opened(files, member).read().decode()
    if is_record:
        found.debian.append(HeaderParser().parsestr(text))
    elif member.name == RELEASE:
        pairs = (line.partition("=") for line in text.splitlines())
        found.release = {name: value.strip('"') for name, _, value in pairs}
    else:
        found.python.append(HeaderParser().parsestr(text))


def render(archive: Path, version: str, packages: list[lock.Package], epoch: int) -> str:
    """Return the document of an image; the lock says which Python package asked for which.

    Raises ValueError: the document does not follow CycloneDX's schema.
    """
    content = read(archive)
    release = content.release
    system = Component(
        name=release["ID"],
        version=release["VERSION_ID"],
        type=ComponentType.OPERATING_SYSTEM,
        bom_ref=content.distribution,
    )
    debian = {_reference(one): _debian_component(one, content.distribution) for one in content.debian}
    python = {_normal(one["Name"]): _python_component(one) for one in content.python}
    below = {**_debian_dependencies(content.debian), **_python_dependencies(python, packages)}
    wanted = {name for names in below.values() for name in names}
    components = {content.distribution: system, **debian, **python}
    root = Component(
        name="localhost/umbilical",
        version=version,
        type=ComponentType.CONTAINER,
        bom_ref="image",
        purl=PackageURL("oci", None, "umbilical", content.digest, {"arch": content.architecture, "tag": version}),
    )
    below["image"] = [name for name in components if name not in wanted]
    return sbom.document(root, components, below, content.digest, epoch)


def _reference(record: Message) -> str:
    return f"debian/{record['Package']}"


def _debian_component(record: Message, distribution: str) -> Component:
    qualifiers = {"arch": str(record["Architecture"]), "distro": distribution}
    if found := _SOURCE.fullmatch(record["Source"] or ""):
        # Debian's advisories name source packages; scanners read this qualifier.
        qualifiers["upstream"] = f"{found[1]}@{found[2]}" if found[2] else found[1]
    name, version = str(record["Package"]), str(record["Version"])
    purl = PackageURL("deb", "debian", name, version, qualifiers)
    return Component(name=name, version=version, type=ComponentType.LIBRARY, bom_ref=_reference(record), purl=purl)


def _debian_dependencies(records: list[Message]) -> dict[str, list[str]]:
    """Return what packages of the image need of each other; the image has not all that they depend on."""
    there = {_reference(one) for one in records}
    return {_reference(one): sorted(there & set(_needed(one))) for one in records}


def _needed(record: Message) -> Iterator[str]:
    for text in (record["Pre-Depends"], record["Depends"]):
        for word in re.split(r"[,|]", text or ""):
            if name := re.match(r"\s*([a-z0-9][a-z0-9.+-]*)", word):
                yield f"debian/{name[1]}"


def _python_component(metadata: Message) -> Component:
    name = _normal(metadata["Name"])
    kind = ComponentType.APPLICATION if name == lock.OURSELVES else ComponentType.LIBRARY
    return sbom.python_component(name, str(metadata["Version"]), str(metadata["License-Expression"] or ""), kind)


def _python_dependencies(there: dict[str, Component], packages: list[lock.Package]) -> dict[str, list[str]]:
    return {owner: [one.name for one in packages if owner in one.wanted_by and one.name in there] for owner in there}


def _normal(name: str) -> str:
    """The name as the lock and purls have it."""
    return re.sub(r"[-_.]+", "-", name).lower()
