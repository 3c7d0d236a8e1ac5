"""The program that runs the pods of one node as processes, instead of a kubelet.

`python -m umbilical.lab.podrunner --node NAME --images FILE --node-ip ADDRESS [--pod-networks CIDR ...]`; with
--kubeconfig it also registers the node and gets pods from the API. SIGTERM stops all pods in order; after any other end
the kernel kills them. It logs to standard error.
"""

import argparse
import asyncio
import ipaddress
import logging
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from umbilical.fault import Fault
from umbilical.host import namespaces
from umbilical.lab import images
from umbilical.lab.pods.node import BACK_OFF_SECONDS, Folders, RunnerNode, Sources
from umbilical.lab.pods.pod_networks import PodNetworks
from umbilical.lab.pods.pod_table import PodTable, PodWorker
from umbilical.lab.pods.process import kill, left_by
from umbilical.lab.pods.spec import LabPod
from umbilical.lab.pods.static_pods import Daemons, NoSources, StaticPods, read_folder
from umbilical.lab.pods.status import report

log: Final = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.5
# Changes come in bursts when a pod starts, so the report is written at most this often.
REPORT_SECONDS: Final = 0.05
AGAIN_SECONDS: Final = 1.0
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
# Less than the keeper's timeout for its programs.
LAST_GRACE_SECONDS: Final = 2.0
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"


class PodRunner:
    """Runs pods until `run` is cancelled."""

    def __init__(self, node: RunnerNode, kubeconfig: Path | None = None) -> None:
        self._node, self._kubeconfig = node, kubeconfig
        self._networks = PodNetworks(node)
        self._dirty = asyncio.Event()
        self._listeners = [self._dirty]
        self._table: PodTable | None = None
        self._static = StaticPods(node.name)
        self._daemons = Daemons(node.name, node.labels or {})

    async def run(self) -> None:
        self._make_folders()
        try:
            await self._run()
        finally:
            namespaces.unmount(self._node.folders.secrets, is_lazy=True)

    def hurry(self) -> None:
        """From now on, give pods only a short grace period."""
        if self._table is not None:
            self._table.shorten_grace(LAST_GRACE_SECONDS)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            table = self._table = PodTable(group, self._note_change)
            group.create_task(_lasting(lambda: self._keep_report(table)))
            group.create_task(_lasting(lambda: self._watch_folders(table)))
            if self._kubeconfig is not None:
                # Imported here: without it a runner without an API starts twice as fast.
                from umbilical.lab.pods.api_sync import ApiSync

                sync = ApiSync(self._node, self._kubeconfig, table, self.worker)
                self._listeners.append(sync.changed)
                group.create_task(_lasting(sync.run))

    def worker(self, pod: LabPod, sources: Sources) -> PodWorker:
        return PodWorker(pod, self._node, sources, self._networks, self._note_change)

    def _note_change(self) -> None:
        for listener in self._listeners:
            listener.set()

    async def _watch_folders(self, table: PodTable) -> None:
        nothing = NoSources()
        while True:
            folders = self._node.folders
            static = self._static.read(read_folder(folders.manifests))
            table.want("static", static, lambda pod: self.worker(pod, nothing))
            daemons = self._daemons.read(read_folder(folders.daemons))
            table.want("daemons", daemons, lambda pod: self.worker(pod, self._daemons))
            await asyncio.sleep(POLL_SECONDS)

    async def _keep_report(self, table: PodTable) -> None:
        while True:
            self._dirty.clear()
            _replace(self._node.folders.status_file, report(self._node.name, table.records()))
            await self._dirty.wait()
            await asyncio.sleep(REPORT_SECONDS)

    def _make_folders(self) -> None:
        folders = self._node.folders
        for folder in (folders.run, folders.container_root, folders.secrets, folders.networks, folders.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self._clear()
        if not folders.secrets.is_mount():
            flags = namespaces.MountFlag.NO_DEVICES | namespaces.MountFlag.NO_SUID
            namespaces.mount("tmpfs", folders.secrets, "tmpfs", flags, "mode=0700")

    def _clear(self) -> None:
        """Remove what a killed runner left behind."""
        folders = self._node.folders
        for pid in left_by(self._node.owner):
            # A container's first process ended with its runner; its children may still run.
            kill(pid)
        self._networks.clear()
        if folders.secrets.is_mount():
            namespaces.unmount(folders.secrets, is_lazy=True)
        shutil.rmtree(folders.state / "pods", ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    flags = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    # No log line per API request.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        asyncio.run(_run_until_stopped(PodRunner(_node(flags), flags.kubeconfig)))
    except Fault as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


async def _lasting(run: Callable[[], Awaitable[None]]) -> None:
    """Restart after an unexpected error (like a full disk), which must not stop the node's pods."""
    while True:
        try:
            await run()
        except Exception:
            log.exception("unexpected error, continuing")
        await asyncio.sleep(AGAIN_SECONDS)


async def _run_until_stopped(runner: PodRunner) -> None:
    task = asyncio.current_task()
    assert task is not None

    def stop() -> None:
        runner.hurry()
        task.cancel()

    for number in STOPPING:
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        await runner.run()
    except asyncio.CancelledError:
        log.info("stopped")


def _node(flags: argparse.Namespace) -> RunnerNode:
    labels = dict(label.split("=", 1) for label in flags.labels)
    return RunnerNode(
        name=flags.node,
        addresses=tuple(flags.node_ip),
        images=images.from_json(flags.images.read_bytes()),
        pod_networks=tuple(flags.pod_networks),
        labels={HOSTNAME_LABEL: flags.node, **labels},
        back_off_seconds=flags.back_off_seconds,
        folders=Folders(),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="podrunner", description="Run the pods of one node as processes.")
    parser.add_argument("--node", required=True, help="name of the node")
    parser.add_argument("--node-ip", required=True, nargs="+", help="addresses of the node, the main one first")
    parser.add_argument("--images", required=True, type=Path, help="table of images (JSON)")
    parser.add_argument("--pod-networks", nargs="*", default=[], type=ipaddress.ip_network, help="networks of its pods")
    parser.add_argument("--labels", nargs="*", default=[], help="additional labels of the node, KEY=VALUE")
    parser.add_argument("--kubeconfig", type=Path, help="register the node and run pods from this API")
    parser.add_argument("--back-off-seconds", type=float, default=BACK_OFF_SECONDS, help="first delay of a crash loop")
    return parser


def _replace(path: Path, content: bytes) -> None:
    """Write atomically, without a sync: after a crash of the machine there is no lab."""
    scratch = path.with_name(f".{path.name}.new")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    scratch.replace(path)


if __name__ == "__main__":
    sys.exit(main())
