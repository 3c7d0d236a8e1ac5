"""SSH access to a bootstrap machine, from options and an install directory; and removal of the tunnel's files there:
the static pod, the socket and the keys."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from umbilical.bootstrap.install_dir import InstallDir
from umbilical.bootstrap.names import NATIVE, OWN, STATIC_POD
from umbilical.bootstrap.render.render import KUBERNETES_DIRECTORY
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.fault import BootstrapError
from umbilical.host.commands import SSH_PORT, CommandRunner, SshRunner


@dataclass(frozen=True)
class NodeAccess:
    """SSH options; each may be missing."""

    host: str | None = None
    user: str = "core"
    key: Path | None = None
    port: int = SSH_PORT


@contextmanager
def node_runner(access: NodeAccess, directory: InstallDir | None = None) -> Iterator[SshRunner | None]:
    """Provide a runner as root; None if no machine is named. Raises BootstrapError: its address is not known."""
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
    """Return the installer's own key; None lets ssh try the user's keys, one of which install-config names."""
    if directory is None:
        return None
    try:
        return stack.enter_context(directory.ssh_key())
    except BootstrapError as fault:
        if fault.code != "UMB174":
            raise
        return None


CLEANUP_SECONDS: Final = 60.0
# In this order: without its manifest the kubelet stops the server, which then cannot create the socket again.
PATHS: Final = (
    STATIC_POD,
    for_shape(Shape.OPENSHIFT).socket_on_host,
    for_shape(Shape.KUBERNETES).socket_on_host,
    OWN.pki_directory,
    NATIVE.pki_directory,
    f"{KUBERNETES_DIRECTORY}/pki",
    f"{KUBERNETES_DIRECTORY}/agent/konnectivity-agent-certs-secret.yaml",
    # cluster-bootstrap copies the installer's own keys there, and removes them when it finishes.
    "/etc/kubernetes/bootstrap-secrets/konnectivity",
    # The agents' Secret with its key, and a temporary file of it that a crash may leave.
    "/opt/openshift/manifests/konnectivity-agent-certs.yaml",
    "/opt/openshift/umbilical/.manifest",
)
# Prints one line per existing path: result, path, error.
SCRIPT: Final = b"""\
root=$1 act=$2
shift 2
if [ "${root}" = / ] && [ "$(id -u)" -ne 0 ]; then
    echo 'root is needed to see the keys' >&2
    exit 1
fi
for path; do
    place="${root%/}${path}"
    if [ ! -e "${place}" ] && [ ! -L "${place}" ]; then
        continue
    fi
    if [ "${act}" = look ]; then
        printf 'found\\t%s\\t\\n' "${path}"
    elif problem=$(rm -rf -- "${place}" 2>&1); then
        printf 'removed\\t%s\\t\\n' "${path}"
    else
        printf 'failed\\t%s\\t%s\\n' "${path}" "${problem##*: }"
    fi
done
"""


class FileState(Enum):
    REMOVED = "removed"
    FOUND = "would be removed"
    FAILED = "not removed"


@dataclass(frozen=True)
class CleanedFile:
    path: str
    state: FileState
    detail: str = ""


def clean_node(runner: CommandRunner, root: str = "/", *, dry_run: bool = False) -> list[CleanedFile]:
    """Remove the existing files and return them.

    Raises:
        HostError: the machine does not answer.
        BootstrapError: the script failed there, for instance without root.
    """
    act = "look" if dry_run else "remove"
    done = runner.run(["bash", "-s", "--", root, act, *PATHS], CLEANUP_SECONDS, SCRIPT)
    if not done.succeeded:
        why = (done.stderr.strip().splitlines() or [f"exit status {done.exit_code}"])[-1]
        remedy = "remove them by hand: rm -rf " + " ".join(PATHS)
        raise BootstrapError("UMB610", "the files on the bootstrap machine were not removed", why, remedy)
    return list(_read(done.stdout))


def _read(text: str) -> Iterator[CleanedFile]:
    states = {"removed": FileState.REMOVED, "found": FileState.FOUND, "failed": FileState.FAILED}
    for line in text.splitlines():
        word, _, rest = line.partition("\t")
        path, _, detail = rest.partition("\t")
        if word in states:
            yield CleanedFile(path, states[word], detail)
