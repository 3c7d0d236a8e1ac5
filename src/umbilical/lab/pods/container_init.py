"""The program that becomes a container: sets up namespaces, root and identity, then execs the container's command.

Standard input is the plan. The first argument is the descriptor of a socket: it gets the new mount namespace, then the
error if there is no exec; a successful exec closes it. Standard output and error are the container's log.
"""

import os
import signal
import socket
import stat
import sys
from pathlib import Path
from typing import Final

from umbilical.host import namespaces
from umbilical.lab.pods.container_plan import ContainerPlan, Piece, PieceKind, from_json, is_mapped, may_set_groups

MAX_LINKS: Final = 40
MAX_COMPLAINT: Final = 2000
NOT_STARTED: Final = 125
"""Docker's exit code for a container that did not start. The reason is sent over the socket."""


def main() -> None:
    parent = os.getppid()
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    try:
        become(from_json(sys.stdin.buffer.read()), parent, channel)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _complain(channel, str(error) or type(error).__name__)
        os._exit(NOT_STARTED)


def become(plan: ContainerPlan, parent: int, channel: socket.socket) -> None:
    """Exec the container's command; raises what fails before."""
    namespaces.unshare(namespaces.NamespaceKind.MOUNT)
    _hand_over_namespace(channel)
    namespaces.make_private()
    if plan.network is not None:
        namespaces.enter(plan.network, namespaces.NamespaceKind.NETWORK)
    if plan.hostname is not None:
        namespaces.unshare(namespaces.NamespaceKind.UTS)
        namespaces.set_hostname(plan.hostname)
    build_root(Path(plan.root), plan)
    namespaces.pivot_root(plan.root)
    os.chdir(plan.working_directory)
    _redirect_input()
    _take_identity(plan)
    # Last, because a change of identity clears it. Containers must end with their runner.
    namespaces.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        raise OSError("the runner exited meanwhile")
    _restore_signals()
    os.execvpe(plan.command[0], plan.command, plan.environment)


def build_root(root: Path, plan: ContainerPlan) -> None:
    namespaces.mount(
        plan.owner, root, "tmpfs", namespaces.MountFlag.NO_DEVICES | namespaces.MountFlag.NO_SUID, "mode=0755"
    )
    for piece in plan.pieces:
        lay(root, piece)
    place_in(root, plan.working_directory).mkdir(parents=True, exist_ok=True)
    if plan.root_is_read_only:
        # Not recursive: volumes stay writable.
        namespaces.make_read_only(root, is_recursive=False)


def lay(root: Path, piece: Piece) -> None:
    place = place_in(root, piece.target)
    match piece.part:
        case PieceKind.BIND:
            _bind(place, piece)
        case PieceKind.MEMORY:
            place.mkdir(parents=True, exist_ok=True)
            flags = namespaces.MountFlag.NO_DEVICES | namespaces.MountFlag.NO_SUID
            namespaces.mount("tmpfs", place, "tmpfs", flags, f"mode={piece.mode:o}")
        case PieceKind.DIRECTORY:
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(piece.mode)
        case PieceKind.FILE:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(piece.source)
            place.chmod(piece.mode)
        case PieceKind.LINK:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(piece.source)


def place_in(root: Path, path: str) -> Path:
    """Resolve a path inside the root, with symlinks, without leaving the root."""
    todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    place, links = root, 0
    while todo:
        part = todo.pop()
        if part == "..":
            place = place if place == root else place.parent
            continue
        following = place / part
        if following.is_symlink():
            links += 1
            if links > MAX_LINKS:
                raise OSError(f"{path}: too many links")
            target = os.readlink(following)
            place = root if target.startswith("/") else place
            todo += [step for step in reversed(target.split("/")) if step not in ("", ".")]
        else:
            place = following
    return place


def _bind(place: Path, piece: Piece) -> None:
    try:
        is_directory = stat.S_ISDIR(os.stat(piece.source).st_mode)
    except FileNotFoundError:
        if piece.is_optional:
            return
        raise
    if is_directory:
        place.mkdir(parents=True, exist_ok=True)
    elif not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    namespaces.bind(piece.source, place, is_read_only=piece.is_read_only)


def _complain(channel: socket.socket, why: str) -> None:
    try:
        channel.send(why.encode()[:MAX_COMPLAINT])
    except OSError:
        # The runner is gone.
        return


def _hand_over_namespace(channel: socket.socket) -> None:
    """Send our mount namespace: it identifies every process of this container."""
    descriptor = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        socket.send_fds(channel, [b"mount namespace"], [descriptor])
    finally:
        os.close(descriptor)


def _redirect_input() -> None:
    descriptor = os.open("/dev/null", os.O_RDONLY)
    os.dup2(descriptor, 0)
    os.close(descriptor)


def _take_identity(plan: ContainerPlan) -> None:
    # Skip capabilities that this kernel does not have.
    kept = [name for name in plan.capabilities if name in namespaces.CAPABILITIES]
    if is_mapped("uid", plan.user) and is_mapped("gid", plan.group):
        groups = [group for group in plan.groups if is_mapped("gid", group)]
        namespaces.drop_privileges(kept, user=plan.user, group=plan.group, groups=groups if may_set_groups() else None)
    else:
        namespaces.drop_privileges(kept)
    if not plan.may_gain_privileges:
        namespaces.forbid_new_privileges()


def _restore_signals() -> None:
    """Reset the signals that Python ignores: exec would keep them ignored."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    main()
