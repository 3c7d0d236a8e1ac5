"""Agents that show a service account token: whom a real API server vouches for gets in, nobody else.

Our agent reports what a server said, so it is the witness that both servers refuse with the same words.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.interop.fleet import check_tunnel, fleet
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


@dataclass(frozen=True, repr=False)
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
            pair = TunnelPair(Shape(server=implementation), pki, folder, [*flags, *verbosity])
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
    if implementation == "ours":
        flags.append("--v=10")
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
    return re.findall(r"server ended the stream: Unknown: (.*)", text)


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
    "forged": LOOKUP + "[invalid bearer token, ",
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
        ("", INVALID + "Failed to authenticate request. err:token is required for TokenReview in authentication"),
    ],
    ids=["none", "garbage", "empty"],
)
def test_what_is_no_token_is_refused_in_upstreams_words(
    doors: dict[str, TunnelPair], tmp_path: Path, token: str | None, text: str
) -> None:
    texts = _refusals_of_both(doors, tmp_path, token)
    assert texts["ours"] == texts["upstream"]
    assert texts["ours"].startswith(text)


def test_a_replaced_token_is_used_at_the_next_connect(
    doors: dict[str, TunnelPair], tokens: Tokens, tmp_path: Path
) -> None:
    door = doors["ours"]
    with agent_at(door, tmp_path, tokens.other_account) as agent:
        assert '"stranger" service account' in wait_for_refusal(agent)
        write_token(tmp_path, tokens.good)
        wait_for_agent(door)
        check_tunnel(door)
        # Nobody asks again while the connection lives; a new one shows what the file holds then.
        write_token(tmp_path, tokens.other_namespace)
        check_tunnel(door)
        door.server.kill()
        door.start_server()
        assert '"elsewhere" namespace' in wait_for_refusal(agent)


@pytest.mark.parametrize(
    ("octets", "text"),
    [(b"\xff\xfe\x00", "not text"), (b"a\nb", "not valid in a header"), (b"line\n", "not valid in a header")],
    ids=repr,
)
def test_a_file_that_cannot_be_a_token_is_named_and_stops_nobody(
    doors: dict[str, TunnelPair], tokens: Tokens, tmp_path: Path, octets: bytes, text: str
) -> None:
    door = doors["ours"]
    with agent_at(door, tmp_path, octets) as agent:
        wait_until(lambda: agent.log.read_text().count(text) >= 2, "the agent says what is wrong, and tries again")
        assert agent.is_running(), agent.log_tail()
        assert "Traceback" not in agent.log.read_text()
        write_token(tmp_path, tokens.good)
        wait_for_agent(door)
        check_tunnel(door)


def test_an_agent_waits_for_a_token_file_that_is_gone(
    doors: dict[str, TunnelPair], tokens: Tokens, tmp_path: Path
) -> None:
    door = doors["ours"]
    with agent_at(door, tmp_path, tokens.forged) as agent:
        wait_for_refusal(agent)
        (tmp_path / "token").unlink()
        wait_until(lambda: "No such file" in agent.log.read_text(), "the agent says what is missing")
        write_token(tmp_path, tokens.good)
        wait_for_agent(door)


def test_while_the_api_is_down_nobody_new_gets_in_and_tunnels_go_on(
    plane: ControlPlane, doors: dict[str, TunnelPair], tokens: Tokens, tmp_path: Path
) -> None:
    door = doors["ours"]
    waiting = tmp_path / "waiting"
    waiting.mkdir()
    with agent_at(door, tmp_path, tokens.good) as inside:
        wait_for_agent(door)
        plane.stop_apiserver()
        try:
            check_tunnel(door)
            inside.kill()
            wait_for_no_agent(door)
            with agent_at(door, waiting, tokens.good) as agent:
                text = wait_for_refusal(agent)
                assert text.startswith(INVALID + "Failed to authenticate request. err:")
                assert text.endswith("Connection refused")
                assert "token review failed" in door.server.log.read_text()
                plane.start_apiserver()
                wait_for_agent(door)
                check_tunnel(door)
        finally:
            if plane.apiserver is None or not plane.apiserver.is_running:
                plane.start_apiserver()


def test_our_own_commands_check_tokens_and_tell_no_one(
    plane: ControlPlane, pki: TunnelPki, tokens: Tokens, tmp_path: Path
) -> None:
    rule = (
        "--token-namespace",
        NAMESPACE,
        "--token-service-account",
        ACCOUNT,
        "--token-audience",
        KONNECTIVITY_AUDIENCE,
    )
    access = ("--kubeconfig", str(plane.make_kubeconfig(REVIEWER)), "--mode", "http-connect")
    debug = ("--log-level", "debug")
    write_token(tmp_path, tokens.other_account)
    with fleet(pki, tmp_path) as servers:
        server = servers.add_native_server("s1", *rule, *access, *debug)
        agent = servers.add_native_agent("a1", "--token-file", str(tmp_path / "token"), *debug)
        assert '"stranger" service account' in wait_for_refusal(agent.agent)
        write_token(tmp_path, tokens.good)
        wait_for_agent(server)
        check_tunnel(server)
        check_secrecy([server.server, agent.agent], tokens)


def check_secrecy(daemons: list[Daemon], tokens: Tokens) -> None:
    """Neither a token nor its signature is in a log or in what everybody sees of a process."""
    secrets = [text.encode() for token in astuple(tokens) for text in (token, token.rpartition(".")[2])]
    for daemon in daemons:
        process = Path(f"/proc/{daemon.pid}")
        seen = [daemon.log.read_bytes(), (process / "cmdline").read_bytes(), (process / "environ").read_bytes()]
        assert all(seen), "there is something to look at"
        assert not [secret for secret in secrets for place in seen if secret in place]


def test_no_token_is_in_a_log_at_any_verbosity(doors: dict[str, TunnelPair], tokens: Tokens, tmp_path: Path) -> None:
    door = doors["ours"]
    with agent_at(door, tmp_path, tokens.forged) as agent:
        wait_for_refusal(agent)
        write_token(tmp_path, tokens.other_audience)
        wait_for_refusal(agent)
        write_token(tmp_path, tokens.good)
        wait_for_agent(door)
        check_tunnel(door)
        check_secrecy([door.server, agent], tokens)
