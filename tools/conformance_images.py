"""Images for Kubernetes' own test suite, under the very names that the suite asks for; no registry is used.

Programs come from the cache of the peers, shells and network tools from Debian packages. An image that cannot be made
is left out, and the specs that need it are in `conformance_left_out.txt`.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

import debian
import peers
from umbilical.lab.images import PATH
from umbilical.lab.kubelet import archives, containerd
from umbilical.lab.kubelet.image_format import ImageConfig, LayerEntry, write_archive

REGISTRY: Final = "registry.k8s.io/"
"""Images of other registries are those that no cluster may pull, or that need a login."""
PACKAGES: Final = ("busybox-static", "bash-static", "curl", "bind9-dnsutils", "netcat-openbsd", "libc-bin")
"""libc-bin has getent."""
FETCH_SECONDS: Final = 600.0
BUSYBOX: Final = "bin/busybox"
BASH: Final = "bin/bash-static"
# Of the packages: only what runs.
_KEPT: Final = ("bin", "lib", "lib64", "usr/bin", "usr/lib")
_SPARED: Final = ("gconv", "perl-base")
_USERS: Final = (
    b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
    b"user-defined-in-image:x:1000:1000::/:/bin/sh\n"
)
_GROUPS: Final = b"root:x:0:\nnogroup:x:65534:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"
_PAGE: Final = b"<html><body><h1>served by busybox</h1></body></html>\n"
_PAGES: Final = "usr/share/nginx/html"


class Base(Enum):
    """What an image has beside its own files."""

    NOTHING = "nothing"
    BUSYBOX = "busybox"
    """BusyBox, with bash as shell."""
    TOOLS = "tools"
    """The same with curl, dig, netcat and getent."""


@dataclass(frozen=True)
class SuiteImage:
    base: Base = Base.NOTHING
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """Path in the image -> name in the cache of the peers, or content."""
    links: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = ""
    mode: int = 0o755
    """Of its own files."""


def _agnhost(command: str = "pause", **more: bytes) -> SuiteImage:
    files: dict[str, str | bytes] = {
        "agnhost": "agnhost",
        "localhost.crt": "localhost.crt",
        "localhost.key": "localhost.key",
        **{name.replace("_", "."): content for name, content in more.items()},
    }
    return SuiteImage(Base.TOOLS, files, {"agnhost-2": "agnhost"}, ("/agnhost",), (command,))


def _picture(name: str) -> SuiteImage:
    """agnhost with the two files that the update demo reads: the suite compares the name of the picture."""
    picture = {f"{name}_jpg": b"not a picture\n", "data_json": f'{{"image": "{name}.jpg"}}\n'.encode()}
    return _agnhost("test-webserver", **picture)


IMAGES: Final[Mapping[str, SuiteImage]] = {
    "agnhost": _agnhost(),
    "kitten": _picture("kitten"),
    "nautilus": _picture("nautilus"),
    "busybox": SuiteImage(Base.BUSYBOX, command=("sh",)),
    "nonroot": SuiteImage(Base.BUSYBOX, command=("sh",), user="1234"),
    # The program tells which user it runs as, and belongs to root with the set-user-ID bit.
    "nonewprivs": SuiteImage(files={"usr/local/bin/nnp": "nnp"}, command=("nnp",), mode=0o4755),
    "glibc-dns-testing": SuiteImage(Base.TOOLS, command=("sh",)),
    "nginx": SuiteImage(
        Base.BUSYBOX,
        {f"{_PAGES}/index.html": _PAGE},
        command=("/bin/busybox", "httpd", "-f", "-p", "80", "-h", f"/{_PAGES}"),
    ),
    "sample-apiserver": SuiteImage(files={"sample-apiserver": "sample-apiserver"}, entrypoint=("/sample-apiserver",)),
    "etcd": SuiteImage(files={"usr/local/bin/etcd": "etcd"}, command=("/usr/local/bin/etcd",)),
    "regression-issue-74839": SuiteImage(
        files={"regression-issue-74839": "regression-issue-74839"}, entrypoint=("/regression-issue-74839",)
    ),
    "pause": SuiteImage(files={"pause": containerd.pause_program()}, entrypoint=("/pause",)),
}
"""By the last part of the image's name, without registry and tag."""


def listed_images(suite: Path) -> list[str]:
    """Return the references of all images that the suite knows."""
    # The list is a part of the suite's own output.
    done = subprocess.run([suite, "--list-images"], capture_output=True, text=True, timeout=60, check=True)
    return [line.strip() for line in done.stdout.splitlines() if "/" in line and ":" in line]


def references(listed: Iterable[str], name: str) -> list[str]:
    """Return the references of one image: a suite may use two versions of it."""
    return [one for one in listed if one.startswith(REGISTRY) and one.rpartition("/")[2].partition(":")[0] == name]


def write_images(
    folder: Path, listed: Sequence[str], report: Callable[[str], None], names: Iterable[str] = tuple(IMAGES)
) -> list[Path]:
    """Write an archive for each of these images that the suite lists."""
    tools = tools_root(report)
    written = []
    for name in names:
        known_as = references(listed, name)
        if known_as:
            written.append(folder / f"{name}.tar")
            image = IMAGES[name]
            write_archive(written[-1], known_as, entries(image, tools), _config(image))
    return written


def entries(image: SuiteImage, tools: Path) -> list[LayerEntry]:
    """Return the content of an image, directories first."""
    files = {path: LayerEntry(path, _source(source), image.mode) for path, source in image.files.items()}
    files |= {path: LayerEntry(path, link=target) for path, target in image.links.items()}
    if image.base is not Base.NOTHING:
        files |= {"etc/passwd": LayerEntry("etc/passwd", _USERS, 0o644)}
        files |= {"etc/group": LayerEntry("etc/group", _GROUPS, 0o644)}
        files |= {entry.path: entry for entry in _shell(tools, image.base)}
    folders = {str(parent) for path in files for parent in Path(path).parents} - {"."} | {"uploads"}
    return [
        LayerEntry("tmp", mode=archives.SCRATCH_MODE),
        *(LayerEntry(folder) for folder in sorted(folders)),
        *(files[path] for path in sorted(files)),
    ]


def tools_root(report: Callable[[str], None]) -> Path:
    """Return a directory with Debian's shells and network tools; fetched once, then in the user's cache."""
    target = archives.cache_directory() / f"conformance-tools-{'-'.join(PACKAGES)}"
    if not target.is_dir():
        report(f"conformance: fetching Debian's {', '.join(PACKAGES)}")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tools-", dir=target.parent) as scratch:
            _fetch(Path(scratch, "root"))
            Path(scratch, "root").rename(target)
    return target


def _fetch(root: Path) -> None:
    options = ("--variant=extract", f"--include={','.join(PACKAGES)}")
    what = "Debian's tools for the suite's images were not fetched"
    debian.mmdebstrap(options, str(root), [debian.archive()], FETCH_SECONDS, "UMB907", what)


def _shell(tools: Path, base: Base) -> Iterator[LayerEntry]:
    done = subprocess.run([tools / BUSYBOX, "--list"], capture_output=True, text=True, timeout=30, check=True)
    for applet in done.stdout.split():
        yield LayerEntry(f"bin/{applet}", link="busybox")
    # After the links: a real program replaces the applet of its name.
    yield LayerEntry(BUSYBOX, tools / BUSYBOX, 0o755)
    # Debian's BusyBox as shell runs its own applets instead of programs, and drops variables like `data-1`.
    yield LayerEntry(BASH, tools / BASH, 0o755)
    yield from (LayerEntry(f"bin/{name}", link="bash-static") for name in ("sh", "bash"))
    if base is Base.TOOLS:
        yield LayerEntry("bin/nc", link="nc.openbsd")
        yield from _programs(tools)


def _programs(tools: Path) -> Iterator[LayerEntry]:
    for folder in _KEPT:
        for path, folders, names in os.walk(tools / folder):
            place = Path(path).relative_to(tools)
            folders[:] = [one for one in folders if one not in _SPARED]
            for name in names:
                yield from _entry(tools, place / name)


def _entry(root: Path, path: Path) -> Iterator[LayerEntry]:
    found = root / path
    if found.is_symlink():
        yield LayerEntry(path.as_posix(), link=found.readlink().as_posix())
    elif found.is_file():
        yield LayerEntry(path.as_posix(), found, found.stat().st_mode & 0o755)


def _source(source: str | bytes) -> Path | bytes:
    if isinstance(source, bytes):
        return source
    found = peers.binary(source) or peers.document(source)
    if found is None:
        raise peers.PeerError(
            "UMB903", f"{source} is not in the cache", "an image contains it", "make peers GROUP=conformance"
        )
    return found


def _config(image: SuiteImage) -> ImageConfig:
    return ImageConfig(
        archives.ARCHITECTURES.get(os.uname().machine, os.uname().machine),
        image.user,
        image.entrypoint,
        image.command,
        (f"PATH={PATH}",),
    )
