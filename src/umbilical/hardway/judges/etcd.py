"""A real etcd, for three seconds on loopback, with the bootstrap node's certificates.

It would have found what cost days in the log that all this began with: a serving certificate that is no client's.
"""

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from umbilical.fault import HostError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.judges.bench import Bench
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.host.processes import Child, run, start

START_SECONDS: Final = 60.0
"""For a machine that is busy with other things; usually it is one."""
WATCH_SECONDS: Final = 3.0
ASK_SECONDS: Final = 20.0
COMPLAINTS: Final = ("rejected connection", "bad certificate", "incompatible key usage")


def etcd_faults(bench: Bench) -> list[str]:
    node = bench.facts.cluster.bootstrap.id
    names = [f"etcd-{kind}-{node}" for kind in ("serving", "peer")] + ["etcd-client"]
    files = [path for name in names for path in (layout.certificate(name), layout.key(name))]
    missing = [path for path in (*files, layout.bundle(Bundle.ETCD_CA.value)) if path not in bench.facts.assets]
    if missing:
        return [f"{path} is missing" for path in missing]
    try:
        return _trial(bench, *names)
    except HostError as fault:
        return [f"{fault.what}: {fault.why}".replace(f"{bench.folder}/", "")]


def _trial(bench: Bench, serving: str, peer: str, client: str) -> list[str]:
    with ExitStack() as stack:
        # Both at once, so that they differ.
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        urls = [f"https://127.0.0.1:{one.getsockname()[1]}" for one in sockets]
        for one in sockets:
            one.close()
        command = [bench.program("etcd"), *_flags(bench, urls, serving, peer)]
        member = stack.enter_context(start(command, bench.folder / "etcd.log", name="etcd"))
        began = time.monotonic()
        # One that complains of certificates will never be ready.
        member.wait_ready(lambda: bool(_complaints(member)) or _is_healthy(bench, urls[0], client), START_SECONDS, 0.2)
        faults = _as_itself(bench, urls[0], serving)
        while not faults and time.monotonic() < began + WATCH_SECONDS:
            time.sleep(0.1)
            faults = _complaints(member)
        return faults


def _flags(bench: Bench, urls: Sequence[str], serving: str, peer: str) -> list[str]:
    clients, peers = urls
    authorities = bench.file(layout.bundle(Bundle.ETCD_CA.value))
    return [
        "--name=etcd-bootstrap",
        f"--data-dir={bench.folder / 'etcd-data'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=etcd-bootstrap={peers}",
        *_pair_flags(bench, "", serving, authorities),
        *_pair_flags(bench, "peer-", peer, authorities),
        "--unsafe-no-fsync",
    ]


def _pair_flags(bench: Bench, prefix: str, name: str, authorities: Path) -> list[str]:
    return [
        f"--{prefix}cert-file={bench.file(layout.certificate(name))}",
        f"--{prefix}key-file={bench.file(layout.key(name))}",
        f"--{prefix}trusted-ca-file={authorities}",
        f"--{prefix}client-cert-auth=true",
    ]


def _is_healthy(bench: Bench, url: str, name: str) -> bool:
    try:
        _ask(bench, url, name)
    except HostError:
        return False
    return True


def _as_itself(bench: Bench, url: str, serving: str) -> list[str]:
    """Ask as etcd's own gateway and the liveness probe do: with the serving pair."""
    try:
        _ask(bench, url, serving)
    except HostError as fault:
        return [f"etcd does not take its own serving certificate from a client: {fault.why.splitlines()[-1]}"]
    return []


def _ask(bench: Bench, url: str, name: str) -> str:
    command = [
        bench.program("etcdctl"),
        f"--endpoints={url}",
        f"--cacert={bench.file(layout.bundle(Bundle.ETCD_CA.value))}",
        f"--cert={bench.file(layout.certificate(name))}",
        f"--key={bench.file(layout.key(name))}",
        *("--command-timeout=5s", "endpoint", "health"),
    ]
    return run(command, ASK_SECONDS)


def _complaints(member: Child) -> list[str]:
    lines = [line for line in member.log_text().splitlines() if any(text in line for text in COMPLAINTS)]
    return [f"etcd logs: {lines[0][:300]}"] if lines else []
