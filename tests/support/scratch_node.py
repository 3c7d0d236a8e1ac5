"""A bootstrap node in a folder: its own root with stand-ins for podman, oc, image_for and the service record.

Everything else is real: bash, openssl, jq, ip, sed and the kernel's network. The root is entered by a mount
namespace and chroot, so that scripts keep their absolute paths; the network is a namespace of the test's or an
empty one. Stand-ins append what they were asked to a file of calls. Needs root.
"""

import os
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.netns import Namespace

from umbilical.manifests.tree import AssetTree

IMAGE: Final = "registry.example/payload@sha256:" + "ab" * 32
RUN_SECONDS: Final = 90.0
CALLS: Final = "/var/log/calls"
STEPS: Final = "/var/log/steps"
KILLED: Final = "/var/log/killed"
_HOST_FOLDERS: Final = ("usr", "bin", "sbin", "lib", "lib64", "lib32", "proc", "dev", "sys")
_OWN_FOLDERS: Final = (
    "etc/kubernetes", "opt/openshift/auth", "opt/openshift/manifests", "opt/openshift/openshift",
    "var/log/openshift", "var/opt", "var/tmp", "tmp", "root", "run", "local-bin",
)  # fmt: skip
# What the real programs read: users, the linker's cache, awk's link, openssl's configuration.
_ETC: Final = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "ld.so.conf", "alternatives", "ssl/openssl.cnf")
_SERVICE_RECORD: Final = f"""
STAGE_NAME=
record_service_stage_start() {{
    if [ -n "${{STAGE_NAME}}" ]; then
        echo "stage $1 begins inside ${{STAGE_NAME}}" >&2
        exit 1
    fi
    STAGE_NAME=$1
    echo "stage-start $1" >>{CALLS}
}}
record_service_stage_success() {{
    echo "stage-success ${{STAGE_NAME:?no stage is open}}" >>{CALLS}
    STAGE_NAME=
}}
record_service_stage_failure() {{
    echo "stage-failure ${{STAGE_NAME:?no stage is open}}" >>{CALLS}
    STAGE_NAME=
}}
_record_exit() {{
    local status=$?
    if [ -n "${{STAGE_NAME}}" ]; then
        record_service_stage_failure
    fi
    echo "service-end ${{status}}" >>{CALLS}
}}
trap _record_exit EXIT
echo "service-start" >>{CALLS}
"""
_RELEASE_IMAGE: Final = f"""
image_for() {{
    echo "image_for $*" >>{CALLS}
    if [ -e /missing-images/"$1" ]; then
        echo "error: $1 is not in the payload" >&2
        return 1
    fi
    echo "{IMAGE}"
}}
"""
_STAND_IN: Final = f"""#!/bin/bash
echo "${{0##*/}} $*" >>{CALLS}
if [ -e /failing/"${{0##*/}}" ]; then
    echo "error: ${{0##*/}} was told to fail" >&2
    exit 1
fi
"""
# Counts the simple commands of the script itself, functions included, and kills it before a chosen one, or before
# the first at which no earlier run was killed. Programs that it starts are not counted: they end or fail, and to the
# script that is all the same.
_STEP_COUNTER: Final = f"""
unset BASH_ENV
_scratch_steps=0
declare -A _scratch_killed=()
if [ -n "${{SCRATCH_KILL_NEW:-}}" ] && [ -f {KILLED} ]; then
    while IFS= read -r _scratch_place; do
        _scratch_killed[${{_scratch_place}}]=yes
    done <{KILLED}
fi
_scratch_step() {{
    if [ "${{BASHPID}}" != "$$" ]; then
        return 0
    fi
    _scratch_steps=$((_scratch_steps + 1))
    echo "${{_scratch_steps}}" >{STEPS}
    if [ "${{_scratch_steps}}" = "${{SCRATCH_KILL_AT:-}}" ]; then
        kill -KILL "$$"
    fi
    if [ -n "${{SCRATCH_KILL_NEW:-}}" ]; then
        _scratch_place="${{BASH_SOURCE[1]}}:${{BASH_LINENO[0]}}:${{BASH_COMMAND//[^a-zA-Z0-9_]/-}}"
        if [ -z "${{_scratch_killed[${{_scratch_place}}]:-}}" ]; then
            echo "${{_scratch_place}}" >>{KILLED}
            kill -KILL "$$"
        fi
    fi
}}
set -T
trap _scratch_step DEBUG
"""


@dataclass(frozen=True)
class Ended:
    exit_code: int
    """Negative: killed by that signal."""
    stdout: str
    stderr: str
    steps: int
    """How many simple commands the script itself came to, the one that it was killed before included."""


class ScratchNode:
    """One node. It keeps its files between runs, as a machine does between restarts of a service."""

    def __init__(self, root: Path, namespace: Namespace | None = None) -> None:
        self.root = root
        self.namespace = namespace
        self._make_folders()
        self.write("/usr/local/bin/bootstrap-service-record.sh", _SERVICE_RECORD, 0o555)
        self.write("/usr/local/bin/release-image.sh", _RELEASE_IMAGE, 0o555)
        for name in ("podman", "oc"):
            self.write(f"/usr/local/bin/{name}", _STAND_IN, 0o555)
        self.write("/opt/openshift/auth/kubeconfig", "", 0o600)

    def path(self, on_node: str) -> Path:
        """Say where a file of the node is to be found from outside."""
        relative = on_node.lstrip("/")
        if relative.startswith("usr/local/bin/"):
            # The host's /usr is mounted over the root's, and this folder over that.
            relative = relative.replace("usr/local/bin", "local-bin", 1)
        return self.root / relative

    def write(self, on_node: str, content: str | bytes, mode: int = 0o644) -> None:
        path = self.path(on_node)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)

    def install(self, tree: AssetTree) -> None:
        """Put rendered files where Ignition would."""
        for asset in tree:
            self.write(asset.path, asset.content, asset.mode)

    def read(self, on_node: str) -> str:
        return self.path(on_node).read_text()

    def calls(self, *kinds: str) -> list[str]:
        """Return what stand-ins were asked, in order; of all kinds, or those that begin with one of these words."""
        path = self.path(CALLS)
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not kinds or line.split()[0] in kinds]

    def forget_calls(self) -> None:
        self.path(CALLS).unlink(missing_ok=True)

    def fail(self, program: str, *, broken: bool = True) -> None:
        """Make a stand-in program fail from now on, or work again."""
        self._mark(f"/failing/{program}", broken)

    def lack_image(self, name: str, *, missing: bool = True) -> None:
        self._mark(f"/missing-images/{name}", missing)

    def run(
        self,
        script: str,
        arguments: Iterable[str] = (),
        *,
        kill_at: int | None = None,
        environment: Mapping[str, str] | None = None,
        timeout_seconds: float = RUN_SECONDS,
    ) -> Ended:
        """Run a script of the node (a path) or a text by bash in /opt/openshift, as bootkube.service does.

        `kill_at` ends it by SIGKILL before that simple command of its own, counted from 1.
        """
        if not script.startswith("/"):
            self.write("/root/script.sh", script)
            script = "/root/script.sh"
        self.path(STEPS).unlink(missing_ok=True)
        variables = {
            "PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin",
            "BASH_ENV": "/step-counter",
            "LC_ALL": "C",
            "SCRATCH_KILL_AT": "" if kill_at is None else str(kill_at),
            **(environment or {}),
        }
        done = subprocess.run(
            self._enter(["bash", script, *arguments]),
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr, self._steps())

    def run_killed_everywhere(self, script: str, arguments: Sequence[str] = (), *, most: int = 2000) -> Iterator[Ended]:
        """Run the script again and again on what the last run left, each time killed before the first command at
        which it was not killed yet, until it comes to its end. So each command of it is the last one once.
        """
        self.path(KILLED).unlink(missing_ok=True)
        for _ in range(most):
            ended = self.run(script, arguments, environment={"SCRATCH_KILL_NEW": "yes"})
            yield ended
            if ended.exit_code != -9:
                return
        raise AssertionError(f"no end after {most} runs")

    def killed_at(self) -> list[str]:
        """Return where `run_killed_everywhere` killed, as script:line:command."""
        return self.read(KILLED).splitlines()

    def _steps(self) -> int:
        path = self.path(STEPS)
        text = path.read_text().strip() if path.exists() else ""
        return int(text or 0)

    def _enter(self, command: list[str]) -> list[str]:
        # Each program replaces the one before it, so a killed script is seen as killed.
        network = ["unshare", "--net", "--"] if self.namespace is None else self.namespace.command()
        private = ["unshare", "--mount", "--propagation", "private", "--", "/bin/sh", "-ec", self._mounts(), "sh"]
        return [*network, *private, *command]

    def _mounts(self) -> str:
        root = shlex.quote(str(self.root))
        lines = [
            f"mount --rbind /{name} {root}/{name}"
            for name in _HOST_FOLDERS
            if Path(f"/{name}").is_dir() and not Path(f"/{name}").is_symlink()
        ]
        lines.append(f"mount --bind {root}/local-bin {root}/usr/local/bin")
        enter = 'cd /opt/openshift && exec "$@"'
        lines.append(f'exec chroot {root} /bin/sh -ec {shlex.quote(enter)} sh "$@"')
        return "\n".join(lines)

    def _make_folders(self) -> None:
        for name in (*_OWN_FOLDERS, *_HOST_FOLDERS):
            source = Path(f"/{name}")
            if source.is_symlink():
                self.root.mkdir(parents=True, exist_ok=True)
                (self.root / name).symlink_to(os.readlink(source))
            else:
                (self.root / name).mkdir(parents=True, exist_ok=True)
        wanted = [f"etc/{name}" for name in _ETC if Path(f"/etc/{name}").exists()]
        # Relative names: --parents looks for an absolute path's folders below the working directory.
        subprocess.run(["cp", "-a", "--parents", *wanted, self.root], cwd="/", check=True, timeout=RUN_SECONDS)
        (self.root / "step-counter").write_text(_STEP_COUNTER)

    def _mark(self, on_node: str, present: bool) -> None:
        if present:
            self.write(on_node, "")
        else:
            self.path(on_node).unlink(missing_ok=True)
