"""Server, agent and ping with the arguments of the chart's pods; only paths, names and variables are this machine's."""

import json
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
from tests.support.control_plane import PROGRAMS, control_plane

import chart
from umbilical.host.processes import Child, start
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType
from umbilical.pki.tunnel_renewal import AUTHORITY_LIFETIME, TunnelPairs, renew_tunnel
from umbilical.pki.tunnel_set import TunnelLeaf, TunnelRole

PROGRAM: Final = str(Path(sys.executable).parent / "umbilical")
SECONDS: Final = 60.0
AGENT_HEALTH: Final = "8093"
AGENT: Final = "DaemonSet umbilical-agent"
LEASE: Final = "k8s-app=umbilical-server"
VARIABLES: Final = {
    "POD_NAME": "pod",
    "POD_UID": "4d3f0d5e-0000-4000-8000-000000000000",
    # `helm test` dials the cluster's API; here the agent's health port plays it.
    "KUBERNETES_SERVICE_HOST": "127.0.0.1",
    "KUBERNETES_SERVICE_PORT": AGENT_HEALTH,
    "NODE_IP": "127.0.0.1",
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


def command(title: str, folder: Path, holder: str = "", values: str = "default") -> list[str]:
    """The command of a pod; `holder` gives it the certificate of another role."""
    (pod,) = (spec for name, _, spec in pods(rendering(values)) if name == title)
    text = "\n".join(pod["containers"][0]["args"])
    text = re.sub(r"\$\((\w+)\)", lambda match: VARIABLES[match[1]], text)
    text = re.sub(r"umbilical-(agents|clients)\.umbilical\.svc", "127.0.0.1", text)
    if holder:
        text = re.sub(r"(?<==/etc/umbilical/)\w+", holder, text)
    text = re.sub(r"/etc/umbilical|/run/umbilical(?=/)", str(folder), text)
    # Else an agent that is stopped stays for five seconds; and the cluster's API is not on the agent's loopback.
    more = ["--drain-linger=0s", f"--allow-destination=127.0.0.1:{AGENT_HEALTH}"] if title == AGENT else []
    return [PROGRAM, *text.split("\n"), *more]


@pytest.fixture
def tunnel(folder: Path) -> Iterator[Child]:
    """The server, with one agent."""
    with ExitStack() as stack:
        server, _ = (
            stack.enter_context(start(command(title, folder), folder / f"{title.replace(' ', '-')}.log"))
            for title in ("Deployment umbilical-server", AGENT)
        )
        server.wait_ready(is_ready, SECONDS)
        yield server


def is_ready() -> bool:
    """Whether an agent is connected; until then the answer is an error."""
    with urlopen("http://127.0.0.1:8092/readyz", timeout=SECONDS) as answer:
        return bool(answer.status == 200)


def ping(folder: Path, holder: str = "", values: str = "default") -> subprocess.CompletedProcess[str]:
    words = command("Pod umbilical-test", folder, holder, values)
    return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_the_test_pod_dials_through_server_and_agent_of_the_chart(tunnel: Child, folder: Path) -> None:
    done = ping(folder)
    assert done.returncode == 0, done.stderr
    assert f"ping 127.0.0.1:{AGENT_HEALTH} through 127.0.0.1:8090" in done.stdout


def test_an_agent_s_certificate_opens_no_tunnel_although_the_ca_is_the_same(tunnel: Child, folder: Path) -> None:
    assert ping(folder, "agent").returncode == 4


def test_a_client_s_certificate_is_not_accepted_as_an_agent(tunnel: Child, folder: Path) -> None:
    words = [*command(AGENT, folder, "client"), "--health=127.0.0.1:0", "--admin=127.0.0.1:0"]
    with start(words, folder / "stranger.log"):
        tunnel.wait_ready(lambda: "UMB346" in tunnel.log_text(), SECONDS)


@pytest.mark.real(*PROGRAMS)
def test_an_agent_finds_a_server_by_the_leases_and_the_rights_of_the_chart(folder: Path, tmp_path: Path) -> None:
    objects = rendering("high-availability")
    rights = [one for one in objects if one["kind"] in ("Role", "RoleBinding") and "leases" in one["metadata"]["name"]]
    assert len(rights) == 4
    titles = {"server": "DaemonSet umbilical-server", "agent": AGENT}
    with ExitStack() as stack:
        plane = stack.enter_context(control_plane(tmp_path))
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chart.NAMESPACE}}, *rights)
        children = {}
        for role, title in titles.items():
            account = plane.make_kubeconfig(f"system:serviceaccount:{chart.NAMESPACE}:umbilical-{role}")
            words = command(title, folder, values="high-availability")
            # Without the name of a Service only the lease leads to the server.
            words = [word for word in words if not word.startswith("--server=")]
            children[role] = stack.enter_context(start([*words, f"--kubeconfig={account}"], tmp_path / f"{role}.log"))
        children["server"].wait_ready(is_ready, SECONDS)
        leases = json.loads(plane.kubectl("get", "leases", "-n", chart.NAMESPACE, "-l", LEASE, "-o", "json"))["items"]
        assert [one["metadata"]["annotations"]["umbilical.dev/agent-address"] for one in leases] == ["127.0.0.1:8091"]
        done = ping(folder, values="high-availability")
        assert done.returncode == 0, done.stderr
