"""Agents that show a service account token: whom a real API server vouches for gets in, nobody else.

Our agent reports what a server said, so it is the witness that both servers refuse with the same words.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.interop.fleet import check_tunnel
from tests.support.control_plane import KONNECTIVITY_AUDIENCE, PROGRAMS, ControlPlane, control_plane
from tests.support.tunnel_pair import Daemon, Shape, TunnelPair, wait_until
from tests.support.tunnel_pki import TunnelPki

pytestmark = pytest.mark.real(*PROGRAMS, "proxy-server", "proxy-agent")

NAMESPACE: Final = "kube-system"
ACCOUNT: Final = "konnectivity-agent"
REVIEWER: Final = "system:konnectivity-server"
INVALID: Final = "Failed to validate authentication token, err:"
LOOKUP: Final = INVALID + "lookup failed: "
REVIEW_ONLY: Final[dict[str, object]] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "review-tokens-only"},
    "rules": [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}],
}


@dataclass(frozen=True)
class Tokens:
    """Each is signed by the API server, except `forged`."""

    good: str
    other_account: str
    other_namespace: str
    other_audience: str
    of_a_deleted_account: str
    forged: str


@pytest.fixture(scope="module")
def plane(namespace: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("token-plane")) as plane:
        plane.apply(REVIEW_ONLY)
        plane.kubectl(
            "create", "clusterrolebinding", "review", "--clusterrole=review-tokens-only", f"--user={REVIEWER}"
        )
        yield plane


@pytest.fixture(scope="module")
def tokens(plane: ControlPlane) -> Tokens:
    plane.kubectl("create", "namespace", "elsewhere")
    for namespace, name in ((NAMESPACE, ACCOUNT), (NAMESPACE, "stranger"), (NAMESPACE, "gone"), ("elsewhere", ACCOUNT)):
        plane.kubectl("-n", namespace, "create", "serviceaccount", name)
    good = plane.service_account_token(NAMESPACE, ACCOUNT)
    head, body, signature = good.split(".")
    tokens = Tokens(
        good,
        plane.service_account_token(NAMESPACE, "stranger"),
        plane.service_account_token("elsewhere", ACCOUNT),
        plane.service_account_token(NAMESPACE, ACCOUNT, "https://kubernetes.default.svc"),
        plane.service_account_token(NAMESPACE, "gone"),
        f"{head}.{body}.{signature[::-1]}",
    )
    plane.kubectl("-n", NAMESPACE, "delete", "serviceaccount", "gone")
    return tokens


@pytest.fixture(scope="module")
def doors(
    plane: ControlPlane, pki: TunnelPki, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, TunnelPair]]:
    """Our server and upstream's, each asking the API server about every agent."""
    flags = [
        "--cluster-ca-cert=",
        f"--agent-namespace={NAMESPACE}",
        f"--agent-service-account={ACCOUNT}",
        f"--authentication-audience={KONNECTIVITY_AUDIENCE}",
        f"--kubeconfig={plane.make_kubeconfig(REVIEWER)}",
    ]
    with ExitStack() as stack:
        doors = {}
        for implementation in ("ours", "upstream"):
            folder = tmp_path_factory.mktemp(f"door-{implementation}")
            # client-go prints whole requests at this verbosity; ours is to print none at any.
            verbosity = ["--v=10"] if implementation == "ours" else []
            pair = TunnelPair(Shape(server=implementation), pki, folder, [*flags, *verbosity], ["--v=10"])
            stack.callback(pair.stop)
            pair.start_server()
            doors[implementation] = pair
        yield doors


@contextmanager
def agent_at(
    door: TunnelPair, folder: Path, token: str | bytes | None, implementation: str = "ours"
) -> Iterator[Daemon]:
    """Run an agent that shows this token from `folder / "token"`, and no certificate."""
    pair = TunnelPair(Shape(agent=implementation), door.pki, folder)
    pair.ports = door.ports
    flags = ["--agent-cert=", "--agent-key=", f"--proxy-server-port={door.ports.agent}"]
    if token is not None:
        write_token(folder, token)
        flags.append(f"--service-account-token-path={folder / 'token'}")
    daemon = Daemon([*pair.agent.command, *flags], folder / f"agent-{implementation}-{door.shape.server}.log")
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.kill()
        print(daemon.log_tail())


def write_token(folder: Path, token: str | bytes) -> None:
    """Replace the file in one step, as the kubelet does."""
    fresh = folder / "token.new"
    fresh.write_bytes(token.encode() if isinstance(token, str) else token)
    fresh.chmod(0o600)
    fresh.rename(folder / "token")


def refusals(agent: Daemon, start: int = 0) -> list[str]:
    """What servers answered our agent, by its own log."""
    text = agent.log.read_bytes()[start:].decode()
    return re.findall(r"server ended the stream: UNKNOWN: (.*)", text)


def wait_for_refusal(agent: Daemon) -> str:
    """Return what the server says from now on; an attempt that is under way may still get the old answer."""
    start = agent.log.stat().st_size
    wait_until(lambda: len(refusals(agent, start)) >= 2, f"the agent is refused\n{agent.log_tail()}")
    return refusals(agent, start)[-1]


def wait_for_agent(door: TunnelPair) -> None:
    wait_until(lambda: door.server_health("/readyz")[0] == 200, "the server has an agent")


def wait_for_no_agent(door: TunnelPair) -> None:
    wait_until(lambda: door.server_health("/readyz")[0] == 500, "the server has no agent")


@pytest.mark.parametrize(("server", "agent"), [("ours", "ours"), ("ours", "upstream"), ("upstream", "ours")])
def test_the_token_of_the_right_account_opens_the_tunnel(
    doors: dict[str, TunnelPair], tokens: Tokens, tmp_path: Path, server: str, agent: str
) -> None:
    with agent_at(doors[server], tmp_path, tokens.good, agent):
        wait_for_agent(doors[server])
        check_tunnel(doors[server])
    wait_for_no_agent(doors[server])


FAULTS: Final = {
    "other_account": LOOKUP + f'incoming request from "stranger" service account. Expected "{ACCOUNT}"',
    "other_namespace": LOOKUP + f'incoming request from "elsewhere" namespace. Expected "{NAMESPACE}"',
    "other_audience": LOOKUP + "[invalid bearer token, token audiences ",
    "of_a_deleted_account": LOOKUP + "[invalid bearer token, ",
    "forged": LOOKUP + "invalid bearer token",
}


def _refusals_of_both(doors: dict[str, TunnelPair], folder: Path, token: str | None) -> dict[str, str]:
    texts = {}
    for implementation, door in doors.items():
        with agent_at(door, folder, token) as agent:
            texts[implementation] = wait_for_refusal(agent)
            assert agent.is_running()
        assert door.server_health("/readyz")[0] == 500
    return texts


@pytest.mark.parametrize(("kind", "text"), FAULTS.items(), ids=FAULTS)
def test_every_other_token_is_refused_in_upstreams_words(
    doors: dict[str, TunnelPair], tokens: Tokens, tmp_path: Path, kind: str, text: str
) -> None:
    texts = _refusals_of_both(doors, tmp_path, getattr(tokens, kind))
    assert texts["ours"] == texts["upstream"]
    assert texts["ours"].startswith(text)


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (None, "Authentication context was not found in metadata"),
        ("garbage", LOOKUP),
        ("", ""),
    ],
    ids=["none", "garbage", "empty"],
)
def test_what_is_no_token_is_refused_in_upstreams_words(
    doors: dict[str, TunnelPair], tmp_path: Path, token: str | None, text: str
) -> None:
    texts = _refusals_of_both(doors, tmp_path, token)
    assert texts["ours"] == texts["upstream"]
    assert texts["ours"].startswith(text)
