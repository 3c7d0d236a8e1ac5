"""Runs a real etcd on loopback for three seconds with the bootstrap node's certificates.

It finds a serving certificate without clientAuth, with which etcd cannot dial its own port.
"""

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from umbilical.fault import HostError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.hardway.validators.scratch import ScratchCopy
from umbilical.host.processes import Child, run, start

START_SECONDS: Final = 60.0
"""Usually one second is enough; the limit is for a busy machine."""
WATCH_SECONDS: Final = 3.0
ASK_SECONDS: Final = 20.0
COMPLAINTS: Final = ("rejected connection", "bad certificate", "incompatible key usage")


def etcd_faults(scratch: ScratchCopy) -> list[str]:
    node = scratch.facts.cluster.bootstrap.id
    names = [f"etcd-{kind}-{node}" for kind in ("serving", "peer")] + ["etcd-client"]
    files = [path for name in names for path in (layout.certificate(name), layout.key(name))]
    missing = [path for path in (*files, layout.bundle(Bundle.ETCD_CA.value)) if path not in scratch.facts.assets]
    if missing:
        return [f"{path} is missing" for path in missing]
    try:
        return _trial(scratch, *names)
    except HostError as fault:
        return [f"{fault.what}: {fault.why}".replace(f"{scratch.folder}/", "")]


def _trial(scratch: ScratchCopy, serving: str, peer: str, client: str) -> list[str]:
    with ExitStack() as stack:
        # Both sockets are open at the same time, so that the ports differ.
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        urls = [f"https://127.0.0.1:{one.getsockname()[1]}" for one in sockets]
        for one in sockets:
            one.close()
        command = [scratch.program("etcd"), *_flags(scratch, urls, serving, peer)]
        member = stack.enter_context(start(command, scratch.folder / "etcd.log", name="etcd"))
        began = time.monotonic()
        # An etcd that logs certificate errors never becomes ready.
        member.wait_ready(
            lambda: bool(_complaints(member)) or _is_healthy(scratch, urls[0], client), START_SECONDS, 0.2
        )
        faults = _as_itself(scratch, urls[0], serving)
        while not faults and time.monotonic() < began + WATCH_SECONDS:
            time.sleep(0.1)
            faults = _complaints(member)
        return faults


def _flags(scratch: ScratchCopy, urls: Sequence[str], serving: str, peer: str) -> list[str]:
    clients, peers = urls
    authorities = scratch.file(layout.bundle(Bundle.ETCD_CA.value))
    return [
        "--name=etcd-bootstrap",
        f"--data-dir={scratch.folder / 'etcd-data'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=etcd-bootstrap={peers}",
        *_pair_flags(scratch, "", serving, authorities),
        *_pair_flags(scratch, "peer-", peer, authorities),
        "--unsafe-no-fsync",
    ]


def _pair_flags(scratch: ScratchCopy, prefix: str, name: str, authorities: Path) -> list[str]:
    return [
        f"--{prefix}cert-file={scratch.file(layout.certificate(name))}",
        f"--{prefix}key-file={scratch.file(layout.key(name))}",
        f"--{prefix}trusted-ca-file={authorities}",
        f"--{prefix}client-cert-auth=true",
    ]


def _is_healthy(scratch: ScratchCopy, url: str, name: str) -> bool:
    try:
        _ask(scratch, url, name)
    except HostError:
        return False
    return True


def _as_itself(scratch: ScratchCopy, url: str, serving: str) -> list[str]:
    """Connect as etcd's own gateway and the liveness probe do: with the serving pair."""
    try:
        _ask(scratch, url, serving)
    except HostError as fault:
        return [f"etcd rejects its own serving certificate as a client certificate: {fault.why.splitlines()[-1]}"]
    return []


def _ask(scratch: ScratchCopy, url: str, name: str) -> str:
    command = [
        scratch.program("etcdctl"),
        f"--endpoints={url}",
        f"--cacert={scratch.file(layout.bundle(Bundle.ETCD_CA.value))}",
        f"--cert={scratch.file(layout.certificate(name))}",
        f"--key={scratch.file(layout.key(name))}",
        *("--command-timeout=5s", "endpoint", "health"),
    ]
    return run(command, ASK_SECONDS)


def _complaints(member: Child) -> list[str]:
    lines = [line for line in member.log_text().splitlines() if any(text in line for text in COMPLAINTS)]
    return [f"etcd logged: {lines[0][:300]}"] if lines else []
