"""A way to a control plane's pods from outside its network: `kubectl port-forward` as a child of ours."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from umbilical.fault import HostedError, HostError
from umbilical.host.processes import Child, start

READY_SECONDS: Final = 30.0
PROGRAMS: Final = ("kubectl", "oc")
_LINE: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) -> ")


@contextmanager
def port_forward(kubeconfig: Path, namespace: str, subject: str, port: int, log: Path) -> Iterator[int]:
    """Forward a port of `subject` (`svc/NAME`, `pod/NAME`); yield the one on our loopback that leads to it.

    Raises:
        HostedError: neither program is installed, or it does not get through.
    """
    command = [
        *(_program(), "port-forward", f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"),
        *("--address=127.0.0.1", subject, f":{port}"),
    ]
    try:
        child = start(command, log, name=f"port-forward to {subject}")
    except HostError as fault:
        raise _failed(namespace, subject, fault.why) from None
    with child:
        yield _wait(child, namespace, subject)


def _program() -> str:
    found = next((path for name in PROGRAMS if (path := shutil.which(name)) is not None), None)
    if found is None:
        raise HostedError(
            "UMB571",
            "no way to the control plane's network",
            f"neither {' nor '.join(PROGRAMS)} is on PATH, which would forward a port",
            "install kubectl, or run this where the server can be reached and give --server HOST:PORT",
        )
    return found


def _wait(child: Child, namespace: str, subject: str) -> int:
    try:
        child.wait_ready(lambda: _LINE.search(child.log_text()) is not None, READY_SECONDS)
    except HostError:
        # Its log goes with the private directory that it lies in: the message must hold what it says.
        raise _failed(namespace, subject, " | ".join(child.log_text().split("\n")[-4:]).strip(" |")) from None
    found = _LINE.search(child.log_text())
    assert found is not None
    return int(found[1])


def _failed(namespace: str, subject: str, why: str) -> HostedError:
    return HostedError(
        "UMB572",
        f"no port of {namespace}/{subject} can be forwarded",
        why or "it says nothing",
        "run it by hand: kubectl port-forward; or give --server HOST:PORT",
    )
