"""Server, agent and ping with the arguments of the chart's pods; only paths, names and variables are this machine's."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pytest
from tests.support.chart_objects import named, pods, rendering

from umbilical.host.processes import Child, start
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType
from umbilical.pki.tunnel_renewal import AUTHORITY_LIFETIME, TunnelPairs, renew_tunnel
from umbilical.pki.tunnel_set import TunnelLeaf, TunnelRole

PROGRAM: Final = str(Path(sys.executable).parent / "umbilical")
SECONDS: Final = 60.0
AGENT_HEALTH: Final = "8093"
VARIABLES: Final = {
    "POD_NAME": "pod",
    # `helm test` dials the cluster's API; here the agent's health port plays it.
    "KUBERNETES_SERVICE_HOST": "127.0.0.1",
    "KUBERNETES_SERVICE_PORT": AGENT_HEALTH,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pods mount at /etc/umbilical."""
    folder = tmp_path_factory.mktemp("etc")
    key_type = KeyType.ECDSA_P256
    leaves = [TunnelLeaf(role, key_type, ("127.0.0.1",) if role is TunnelRole.SERVER else ()) for role in TunnelRole]
    made = renew_tunnel(TunnelPairs(), leaves, AUTHORITY_LIFETIME, key_type, datetime.now(UTC), Authority)
    for role, pair in made.issued.items():
        (folder / role.value).mkdir()
        files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": made.authority.bundle}
        for name, content in files.items():
            (folder / role.value / name).write_bytes(content)
    rules = named(rendering("default"), "ConfigMap")["umbilical-identities"]["data"]["identities"]
    (folder / "identities").mkdir()
    (folder / "identities" / "identities").write_text(rules)
    return folder


def command(title: str, folder: Path, holder: str = "") -> list[str]:
    """The command of a pod; `holder` gives it the certificate of another role."""
    (pod,) = (spec for name, _, spec in pods(rendering("default")) if name == title)
    text = "\n".join(pod["containers"][0]["args"])
    text = re.sub(r"\$\((\w+)\)", lambda match: VARIABLES[match[1]], text)
    text = re.sub(r"umbilical-(agents|clients)\.umbilical\.svc", "127.0.0.1", text)
    if holder:
        text = re.sub(r"(?<==/etc/umbilical/)\w+", holder, text)
    return [PROGRAM, *text.replace("/etc/umbilical", str(folder)).split("\n")]


@pytest.fixture(scope="module")
def tunnel(folder: Path) -> Iterator[Child]:
    """The server, with one agent."""
    with ExitStack() as stack:
        server, _ = (
            stack.enter_context(start(command(title, folder), folder / f"{title.replace(' ', '-')}.log"))
            for title in ("Deployment umbilical-server", "DaemonSet umbilical-agent")
        )
        server.wait_ready(is_ready, SECONDS)
        yield server


def is_ready() -> bool:
    """Whether an agent is connected; until then the answer is an error."""
    with urlopen("http://127.0.0.1:8092/readyz", timeout=SECONDS) as answer:
        return bool(answer.status == 200)


def ping(folder: Path, holder: str = "") -> subprocess.CompletedProcess[str]:
    words = command("Pod umbilical-test", folder, holder)
    return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_the_test_pod_dials_through_server_and_agent_of_the_chart(tunnel: Child, folder: Path) -> None:
    done = ping(folder)
    assert done.returncode == 0, done.stderr
    assert f"ping 127.0.0.1:{AGENT_HEALTH} through 127.0.0.1:8090" in done.stdout


def test_an_agent_s_certificate_opens_no_tunnel_although_the_ca_is_the_same(tunnel: Child, folder: Path) -> None:
    assert ping(folder, "agent").returncode == 4


def test_a_client_s_certificate_is_not_accepted_as_an_agent(tunnel: Child, folder: Path) -> None:
    words = [*command("DaemonSet umbilical-agent", folder, "client"), "--health=127.0.0.1:0", "--admin=127.0.0.1:0"]
    with start(words, folder / "stranger.log"):
        tunnel.wait_ready(lambda: "UMB346" in tunnel.log_text(), SECONDS)
