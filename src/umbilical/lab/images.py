"""The lab's images and their programs, for both runners. The references belong to no registry."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from umbilical.fault import LabError
from umbilical.lab.isolation import find_program

UMBILICAL: Final = "localhost/umbilical:lab"
TUNNEL: Final = "localhost/apiserver-network-proxy:lab"
"""The name of upstream's image in a release."""
KONNECTIVITY: Final = "localhost/konnectivity:lab"
CONTROL_PLANE: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns")
"""Programs with an image of their own, named after the program."""
COMPANIONS: Final = {"etcd": ("etcdctl",)}
"""Additional programs of an image, for probes, if found."""
LINKED: Final = {"kube-proxy": ("nft",)}
"""The same for dynamic programs of this machine, with their libraries."""
SHELL: Final = "localhost/shell:lab"
SHELL_PROGRAMS: Final = (
    *("bash", "sh", "awk", "base64", "cat", "chmod", "cp", "curl", "cut", "date", "dd", "df", "du", "env", "find"),
    *("getent", "grep", "gzip", "head", "hostname", "id", "ip", "ls", "md5sum", "mkdir", "mktemp", "mount", "mv"),
    *("openssl", "ping", "printf", "ps", "readlink", "rm", "rmdir", "sed", "seq", "sha256sum", "sleep", "sort", "ss"),
    *("stat", "tail", "tar", "tee", "test", "timeout", "touch", "tr", "uname", "uniq", "wc", "xargs"),
)
"""Programs of this machine for a look around from a pod; those that it lacks are left out."""
PYTHON_PROGRAMS: Final = {
    "proxy-server": "umbilical.cli.drop_ins.proxy_server",
    "proxy-agent": "umbilical.cli.drop_ins.proxy_agent",
    "lab-service": "umbilical.lab.service_program",
    "lab-fetch": "umbilical.lab.fetch",
}
"""Name -> the module whose `main` it runs."""
# Not root, as the agents' manifest requires; in root's group, as on OpenShift. So root's files of mode 0440 are
# readable without an fsGroup, which on OpenShift an SCC sets.
UNPRIVILEGED: Final = (65532, 0)
ROOT: Final = (0, 0)
PROGRAMS_DIRECTORY: Final = "/usr/bin"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    reference: str
    programs: Mapping[str, Path] = field(default_factory=dict)
    """Static programs by name, with their path on this machine. In the image they are in /usr/bin."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """Our programs by name, with the module whose `main` they run."""
    linked: Mapping[str, Path] = field(default_factory=dict)
    """Programs of this machine that need its libraries, which the image includes."""
    user: tuple[int, int] = ROOT
    """Default user and group."""
    aliases: tuple[str, ...] = ()
    """Other references of the same image."""
    entrypoint: str = ""
    """Default command."""

    @property
    def is_python(self) -> bool:
        """Whether the image needs Python and the system's libraries."""
        return bool(self.modules)

    @property
    def environment(self) -> dict[str, str]:
        # The root is read-only, so no bytecode; and no buffering, so that logs are complete.
        python = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"} if self.is_python else {}
        return {"PATH": PATH, **python}


def lab_images(binaries: Mapping[str, Path]) -> dict[str, Image]:
    """Return the images: ours always, others if all their programs were found."""
    images = [
        Image(UMBILICAL, modules=PYTHON_PROGRAMS, user=UNPRIVILEGED, aliases=(TUNNEL,)),
        *_static(KONNECTIVITY, ("proxy-server", "proxy-agent"), binaries, UNPRIVILEGED),
    ]
    images += [_control_plane(program, binaries) for program in CONTROL_PLANE if program in binaries]
    return _by_reference(images)


def shell_image() -> Image:
    """Return an image with a shell, for containerd: the process runner has no libraries of this machine."""
    return Image(SHELL, linked=_on_this_machine(SHELL_PROGRAMS))


def distinct(images: Mapping[str, Image]) -> list[Image]:
    """List each image once."""
    return list({image.reference: image for image in images.values()}.values())


def to_json(images: Mapping[str, Image]) -> bytes:
    """Encode the table for the runner on a node, where every program has the same path."""
    content = [
        {
            "reference": image.reference,
            "programs": {name: str(path) for name, path in image.programs.items()},
            "modules": dict(image.modules),
            "linked": {name: str(path) for name, path in image.linked.items()},
            "user": list(image.user),
            "aliases": list(image.aliases),
            "entrypoint": image.entrypoint,
        }
        for image in distinct(images)
    ]
    return json.dumps(content, indent=1).encode()


def from_json(content: bytes) -> dict[str, Image]:
    """Decode the table. Raises LabError: it is not valid (UMB839)."""
    try:
        images = [_image(entry) for entry in json.loads(content)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise LabError(
            "UMB839", "the table of images was not read", why, "umbilical lab down, then umbilical lab up"
        ) from None
    return _by_reference(images)


def _by_reference(images: list[Image]) -> dict[str, Image]:
    return {reference: image for image in images for reference in (image.reference, *image.aliases)}


def _image(entry: dict[str, Any]) -> Image:
    user, group = entry["user"]
    programs = {str(name): Path(path) for name, path in entry["programs"].items()}
    modules = {str(name): str(module) for name, module in entry["modules"].items()}
    linked = {str(name): Path(path) for name, path in entry["linked"].items()}
    aliases, entrypoint = tuple(map(str, entry["aliases"])), str(entry["entrypoint"])
    return Image(str(entry["reference"]), programs, modules, linked, (int(user), int(group)), aliases, entrypoint)


def _control_plane(program: str, binaries: Mapping[str, Path]) -> Image:
    names = [program, *(name for name in COMPANIONS.get(program, ()) if name in binaries)]
    linked = _on_this_machine(LINKED.get(program, ()))
    programs = {name: binaries[name] for name in names}
    return Image(f"localhost/{program}:lab", programs, linked=linked, entrypoint=program)


def _on_this_machine(names: Iterable[str]) -> dict[str, Path]:
    found = {name: find_program(name) for name in names}
    return {name: Path(path) for name, path in found.items() if path is not None}


def _static(reference: str, names: tuple[str, ...], binaries: Mapping[str, Path], user: tuple[int, int]) -> list[Image]:
    if not all(name in binaries for name in names):
        return []
    return [Image(reference, {name: binaries[name] for name in names}, user=user)]
