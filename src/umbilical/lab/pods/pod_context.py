"""What the containers of a pod share, and the plan for each: the pieces of its root (image, devices, kernel files,
volumes) and its variables, with `$(NAME)` expanded as in the kubelet. Nothing is mounted here.
"""

import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from umbilical.fault import PodError, PodWaiting
from umbilical.lab import node_root
from umbilical.lab.binaries import launcher
from umbilical.lab.images import PROGRAMS_DIRECTORY, Image
from umbilical.lab.pods.container_plan import ContainerPlan, Piece, PieceKind
from umbilical.lab.pods.node import RunnerNode, Sources
from umbilical.lab.pods.spec import AllOf, Container, FieldOf, KeyOf, LabPod, Security, SourceKind, VolumeMount

LAUNCHERS: Final = "/usr/local/bin"
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS: Final = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}
_EMPTY: Final = ("/etc", "/run", "/var", "/root", "/home", PROGRAMS_DIRECTORY)
TERMINATION_LOG: Final = "/dev/termination-log"


def pieces(
    image: Image, container: Container, volumes: Mapping[str, str], files: Mapping[str, str], termination_log: str
) -> tuple[Piece, ...]:
    """`volumes` are paths on the node by volume name, `files` are paths on the node by path in the container."""
    base = _python_image(image) if image.is_python else _static_image(image)
    own = [Piece(PieceKind.BIND, target, source) for target, source in files.items()]
    mounts = [
        _mount(mount, volumes[mount.volume])
        # A mount below another one must come after it.
        for mount in sorted(container.mounts, key=lambda mount: mount.path.count("/"))
    ]
    return (*base, *_kernel(termination_log), *own, *mounts)


def _mount(mount: VolumeMount, place: str) -> Piece:
    source = posixpath.join(place, mount.sub_path) if mount.sub_path else place
    return Piece(PieceKind.BIND, mount.path, source, is_read_only=mount.is_read_only)


def _static_image(image: Image) -> list[Piece]:
    programs = [
        Piece(PieceKind.BIND, f"{PROGRAMS_DIRECTORY}/{name}", str(path), is_read_only=True)
        for name, path in image.programs.items()
    ]
    return [*_empty_directories(), *programs]


def _python_image(image: Image) -> list[Piece]:
    """Like a distribution's image with our package: this node's system directories, without the node's own files."""
    system: list[Piece] = []
    for place in node_root.SYSTEM:
        if os.path.islink(place):
            system.append(Piece(PieceKind.LINK, place, os.readlink(place)))
        else:
            system.append(_shared(place))
    etc = [_shared(place) for place in (*node_root.ETC_DIRECTORIES, *node_root.ETC_FILES, node_root.HOST_CONF)]
    python = [_shared(place) for place in node_root.shared_directories(())]
    # If Python is in /usr/local/bin, bind it again over the tmpfs there.
    covered = [Piece(PieceKind.BIND, place, place, is_read_only=True) for place in node_root.covered_programs(())]
    launchers = [Piece(PieceKind.FILE, f"{LAUNCHERS}/{name}", launcher(main)) for name, main in image.modules.items()]
    return [*_empty_directories(), *system, *etc, *python, Piece(PieceKind.MEMORY, LAUNCHERS), *covered, *launchers]


def _shared(place: str) -> Piece:
    return Piece(PieceKind.BIND, place, place, is_read_only=True, is_optional=True)


def _empty_directories() -> Iterable[Piece]:
    yield from (Piece(PieceKind.DIRECTORY, place) for place in _EMPTY)
    yield Piece(PieceKind.DIRECTORY, "/tmp", mode=0o1777)
    yield Piece(PieceKind.DIRECTORY, "/var/tmp", mode=0o1777)


def _kernel(termination_log: str) -> Iterable[Piece]:
    yield Piece(PieceKind.BIND, "/proc", "/proc")
    yield Piece(PieceKind.BIND, "/sys", "/sys", is_read_only=True)
    yield Piece(PieceKind.MEMORY, "/dev")
    yield from (Piece(PieceKind.BIND, f"/dev/{name}", f"/dev/{name}", is_optional=True) for name in _DEVICES)
    yield from (Piece(PieceKind.LINK, place, target) for place, target in _DEVICE_LINKS.items())
    yield Piece(PieceKind.MEMORY, "/dev/shm", mode=0o1777)
    yield Piece(PieceKind.BIND, TERMINATION_LOG, termination_log)


_REFERENCE: Final = re.compile(r"\$\$|\$\(([^()]*)\)")
_BY_KEY: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Expand references; unknown ones stay unchanged, and `$$` is a dollar sign."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return _REFERENCE.sub(value, text)


def expand_all(texts: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(expand(text, variables) for text in texts)


def pod_field(pod: LabPod, path: str, node: str, node_ip: str, addresses: Sequence[str]) -> str:
    """Return a field of the downward API. Raises PodError: UMB831, unknown field."""
    known = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "metadata.labels": _lines(pod.labels),
        "metadata.annotations": _lines(pod.annotations),
        "spec.nodeName": node,
        "spec.serviceAccountName": pod.service_account,
        "status.hostIP": node_ip,
        "status.hostIPs": node_ip,
        "status.podIP": addresses[0] if addresses else "",
        "status.podIPs": ",".join(addresses),
    }
    if path in known:
        return known[path]
    if found := _BY_KEY.fullmatch(path):
        return (pod.labels if found[1] == "labels" else pod.annotations).get(found[2], "")
    why = f"{path!r} is not a field of the downward API"
    remedy = "kubectl explain pod.spec.containers.env.valueFrom.fieldRef"
    raise PodError("UMB831", f"could not resolve a fieldRef of {pod.title}", why, remedy)


def _lines(table: Mapping[str, str]) -> str:
    return "\n".join(f'{key}="{value}"' for key, value in sorted(table.items()))


# containerd's default capabilities (oci/spec.go, defaultUnixCaps).
DEFAULT_CAPABILITIES: Final = (
    *("CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP"),
    *("NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE"),
)


@dataclass
class PodContext:
    node: RunnerNode
    pod: LabPod
    sources: Sources
    grace_seconds: float
    """Between SIGTERM and SIGKILL; a deletion may shorten it."""
    volumes: Mapping[str, Path]
    addresses: tuple[str, ...] = ()
    network: Path | None = None
    """None: the node's."""

    @property
    def files(self) -> Path:
        return self.node.folders.pod_files(self.pod)

    def termination_log(self, container: Container) -> Path:
        return self.files / "termination" / container.name

    def log(self, container: Container, run: int) -> Path:
        return self.node.folders.pod_logs(self.pod) / container.name / f"{run}.log"

    async def plan(self, container: Container) -> ContainerPlan:
        """Return how to start a container.

        Raises:
            PodWaiting: UMB834 or UMB836, something that it needs does not exist yet.
            PodError: UMB831.
        """
        self._make_sub_paths(container)
        image = _image(self.node, container)
        user, group = identity(container.security, image)
        variables = await self._variables(container, image)
        files = {f"/etc/{name}": str(self.files / "etc" / name) for name in ("hosts", "hostname", "resolv.conf")}
        places = {name: str(path) for name, path in self.volumes.items()}
        log = str(self.termination_log(container))
        return ContainerPlan(
            root=str(self.node.folders.container_root),
            owner=self.node.owner,
            pieces=pieces(image, container, places, files, log),
            command=_command(container, image, variables),
            working_directory=container.working_directory,
            environment=variables,
            network=None if self.network is None else str(self.network),
            hostname=None if self.pod.uses_node_network else hostname(self.pod),
            root_is_read_only=container.security.root_is_read_only,
            user=user,
            group=group,
            groups=self._groups(),
            capabilities=capabilities(container.security),
            may_gain_privileges=container.security.may_gain_privileges,
        )

    def _make_sub_paths(self, container: Container) -> None:
        for mount in container.mounts:
            place = self.volumes[mount.volume] / mount.sub_path
            if mount.sub_path and not place.exists():
                place.mkdir(parents=True)

    def _groups(self) -> tuple[int, ...]:
        own = () if self.pod.group_of_files is None else (self.pod.group_of_files,)
        return (*own, *self.pod.more_groups)

    async def _variables(self, container: Container, image: Image) -> dict[str, str]:
        own_name = self.node.name if self.pod.uses_node_network else hostname(self.pod)
        found = {**image.environment, "HOME": "/root", "HOSTNAME": own_name}
        for source in container.variables_from:
            found |= await self._all(source)
        for variable in container.variables:
            value = variable.value
            if isinstance(value, FieldOf):
                found[variable.name] = pod_field(
                    self.pod, value.path, self.node.name, self.node.address, self.addresses
                )
            elif isinstance(value, KeyOf):
                text = await self._key(value)
                found |= {} if text is None else {variable.name: text}
            else:
                found[variable.name] = expand(value, found)
        return found

    async def _all(self, source: AllOf) -> dict[str, str]:
        values = await self._values(source.kind, source.name, is_optional=source.is_optional)
        return {f"{source.prefix}{key}": _text(value) for key, value in values.items()}

    async def _key(self, wanted: KeyOf) -> str | None:
        values = await self._values(wanted.kind, wanted.name, is_optional=wanted.is_optional)
        if wanted.key in values:
            return _text(values[wanted.key])
        if wanted.is_optional:
            return None
        raise _no_configuration(f"couldn't find key {wanted.key} in {wanted.kind.value} {wanted.name}")

    async def _values(self, kind: SourceKind, name: str, *, is_optional: bool) -> Mapping[str, bytes]:
        values = await self.sources.values(kind, self.pod.namespace, name)
        if values is None and not is_optional:
            raise _no_configuration(f"{kind.value.lower()} {name!r} not found")
        return values or {}


def hostname(pod: LabPod) -> str:
    # The kubelet truncates at 63 characters.
    return (pod.hostname or pod.name)[:63]


def identity(security: Security, image: Image) -> tuple[int, int]:
    """Return user and group. Raises PodWaiting: it would be root despite runAsNonRoot."""
    user = image.user[0] if security.user is None else security.user
    if user == 0 and security.refuses_root:
        raise _no_configuration("container has runAsNonRoot and image will run as root")
    # The image's group applies to the image's user only; another user defaults to group 0.
    group = image.user[1] if security.user is None else 0
    return user, group if security.group is None else security.group


def capabilities(security: Security) -> tuple[str, ...]:
    if security.is_privileged:
        from umbilical.host.namespaces import CAPABILITIES

        return CAPABILITIES
    added, dropped = (
        {name.upper().removeprefix("CAP_") for name in names} for names in (security.added, security.dropped)
    )
    base = () if "ALL" in dropped else DEFAULT_CAPABILITIES
    return tuple(name for name in dict.fromkeys((*base, *sorted(added))) if name in added or name not in dropped)


def _image(node: RunnerNode, container: Container) -> Image:
    image = node.images.get(container.image)
    if image is None:
        raise PodWaiting(
            "UMB836",
            f"Container image {container.image!r} is not present with pull policy of Never",
            f"this lab has {', '.join(sorted(node.images)) or 'none'}",
            "use one of these images in the manifest",
            "ErrImageNeverPull",
        )
    return image


def _command(container: Container, image: Image, variables: Mapping[str, str]) -> tuple[str, ...]:
    command = container.command
    if not command:
        programs = [image.entrypoint] if image.entrypoint else [*image.programs, *image.modules]
        if len(programs) != 1:
            why = f"{container.image} holds {', '.join(programs)}, and the manifest names none of them"
            raise PodError("UMB832", f"container {container.name} has no command", why, "set command in the manifest")
        command = (programs[0],)
    program, *rest = expand_all(command, variables)
    return (_place(program, image), *rest, *expand_all(container.arguments, variables))


def _place(program: str, image: Image) -> str:
    """Map the image path of one of our programs to its launcher: that directory is the machine's here."""
    folder, name = posixpath.split(program)
    is_ours = folder == PROGRAMS_DIRECTORY and name in image.modules
    return f"{LAUNCHERS}/{name}" if is_ours else program


def _text(value: bytes) -> str:
    # A variable ends at the first NUL.
    return value.decode(errors="replace").partition("\0")[0]


def _no_configuration(why: str) -> PodWaiting:
    remedy = "create or correct it; the container then starts"
    return PodWaiting("UMB834", "could not configure a container", why, remedy, "CreateContainerConfigError")
