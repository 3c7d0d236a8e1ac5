"""The images of the lab: references of no registry, and the programs in them. Both runners read this one table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from umbilical.lab.errors import LabError

UMBILICAL: Final = "localhost/umbilical:lab"
KONNECTIVITY: Final = "localhost/konnectivity:lab"
CONTROL_PLANE: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
"""One image each, named after its program."""
PYTHON_PROGRAMS: Final = {
    "proxy-server": "umbilical.cli.proxy_server",
    "proxy-agent": "umbilical.cli.proxy_agent",
    "lab-service": "umbilical.lab.service_program",
}
"""Name -> the module whose `main` it runs."""
# Not root, as the agents' manifest asks; in root's group, as OpenShift runs everybody: then files of mode 0440 that
# belong to root can be read without an fsGroup, which an SCC would set there and nobody sets in a lab.
UNPRIVILEGED: Final = (65532, 0)
ROOT: Final = (0, 0)
PROGRAMS_DIRECTORY: Final = "/usr/bin"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    reference: str
    programs: Mapping[str, Path] = field(default_factory=dict)
    """Static programs by name, with their place on this machine. In the image they lie in /usr/bin."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """Programs of our own by name, with the module whose `main` they run."""
    user: tuple[int, int] = ROOT
    """User and group unless the pod says otherwise."""

    @property
    def is_python(self) -> bool:
        """Whether the image needs Python and the system's libraries around its programs."""
        return bool(self.modules)

    @property
    def environment(self) -> dict[str, str]:
        # A root that is read-only has no place for bytecode, and a log that is buffered is empty when it is needed.
        python = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"} if self.is_python else {}
        return {"PATH": PATH, **python}


def control_plane_reference(program: str) -> str:
    return f"localhost/{program}:lab"


def lab_images(binaries: Mapping[str, Path]) -> dict[str, Image]:
    """Make the table of what there is: our own image always, the others where all their programs were found."""
    images = [
        Image(UMBILICAL, modules=PYTHON_PROGRAMS, user=UNPRIVILEGED),
        *_static(KONNECTIVITY, ("proxy-server", "proxy-agent"), binaries, UNPRIVILEGED),
    ]
    for program in CONTROL_PLANE:
        images += _static(control_plane_reference(program), (program,), binaries, ROOT)
    return {image.reference: image for image in images}


def to_json(images: Mapping[str, Image]) -> bytes:
    """Write the table for the runner on a node, where every program has the same path as here."""
    content = [
        {
            "reference": image.reference,
            "programs": {name: str(path) for name, path in image.programs.items()},
            "modules": dict(image.modules),
            "user": list(image.user),
        }
        for image in images.values()
    ]
    return json.dumps(content, indent=1).encode()


def from_json(content: bytes) -> dict[str, Image]:
    """Read the table back.

    Raises:
        LabError: UMB839.
    """
    try:
        images = [_image(entry) for entry in json.loads(content)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise LabError(
            "UMB839", "the table of images cannot be read", why, "make the lab anew: lab down, lab up"
        ) from None
    return {image.reference: image for image in images}


def _image(entry: dict[str, Any]) -> Image:
    user, group = entry["user"]
    programs = {str(name): Path(path) for name, path in entry["programs"].items()}
    modules = {str(name): str(module) for name, module in entry["modules"].items()}
    return Image(str(entry["reference"]), programs, modules, (int(user), int(group)))


def _static(reference: str, names: tuple[str, ...], binaries: Mapping[str, Path], user: tuple[int, int]) -> list[Image]:
    if not all(name in binaries for name in names):
        return []
    return [Image(reference, {name: binaries[name] for name in names}, user=user)]
