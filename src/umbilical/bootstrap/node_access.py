"""The way to a bootstrap machine: by what the user names, and by what an install directory knows for the rest."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from umbilical.bootstrap.install_dir import InstallDir
from umbilical.fault import BootstrapError
from umbilical.host.ssh import SSH_PORT, SshRunner


@dataclass(frozen=True)
class NodeAccess:
    """What was given; anything may be left out."""

    host: str | None = None
    user: str = "core"
    key: Path | None = None
    port: int = SSH_PORT


@contextmanager
def node_runner(access: NodeAccess, directory: InstallDir | None = None) -> Iterator[SshRunner | None]:
    """Lend a runner with root's rights on the machine; None when nothing names a machine.

    Raises:
        BootstrapError: the install directory does not tell where the machine is.
    """
    host = access.host
    if host is None and directory is not None:
        host = directory.bootstrap_addresses().ssh
    if host is None:
        yield None
        return
    with ExitStack() as stack:
        key = access.key if access.key is not None else _key_of(directory, stack)
        sudo = access.user != "root"
        yield stack.enter_context(SshRunner(host, access.user, key, access.port, sudo=sudo))


def _key_of(directory: InstallDir | None, stack: ExitStack) -> Path | None:
    """Take the installer's own key; where it kept none, ssh tries the user's, one of which install-config named."""
    if directory is None:
        return None
    try:
        return stack.enter_context(directory.ssh_key())
    except BootstrapError as fault:
        if fault.code != "UMB174":
            raise
        return None
