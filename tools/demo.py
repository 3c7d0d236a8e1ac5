"""A tunnel's whole life on loopback, told in the terminal: real processes, real TLS, a webhook and its caller.

UMBILICAL_DEMO_PROGRAMS names another folder with `proxy-server` and `proxy-agent` (upstream's, say) to tell it with.
"""

import os
import shutil
import signal
import ssl
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from demo_parts import WEBHOOK_NAME, Caller, TunnelRefused, Webhook, free_port, http_status
from umbilical.host.errors import HostError
from umbilical.host.files import write_file, write_public
from umbilical.host.processes import Child, children, start
from umbilical.pki.authority import Authority
from umbilical.pki.bundle import KeyPair
from umbilical.pki.profiles import KeyType, Profile, client_profile, server_profile

READY_SECONDS: Final = 15.0
LIFETIME: Final = timedelta(hours=1)
CALLS: Final = 100
BULK_BYTES: Final = 16 * 1024 * 1024


class DemoFailed(Exception):
    """A step did not go as told; carries the three lines that the user sees."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"UMB921 the demo failed: {what}\n  why: {why}\n  next: run `make test`, which looks closer")


class Story:
    """Prints what happens, with the time since the start before every line."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        encoding = (sys.stdout.encoding or "").lower()
        self._tick = "✓" if "utf" in encoding else "[ok]"

    def chapter(self, title: str) -> None:
        print(f"\n{title}", flush=True)

    def say(self, who: str, what: str) -> None:
        self._line(" " * len(self._tick), who, what)

    def tick(self, who: str, what: str) -> None:
        self._line(self._tick, who, what)

    def seconds(self) -> float:
        return time.monotonic() - self._start

    def _line(self, mark: str, who: str, what: str) -> None:
        print(f"  {self.seconds():5.2f} s {mark} {who:<8} {what}", flush=True)


@dataclass(frozen=True)
class Pair:
    certificate: Path
    key: Path


class Pki:
    """An authority in memory and the files that the programs want; the authority's key is never written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._now = datetime.now(UTC)
        self._authority = Authority.create("umbilical-demo", self._now, LIFETIME, KeyType.ECDSA_P256)
        self.authority = write_public(folder / "ca.crt", self._authority.certificate_pem)
        self.server = self._issue("server", server_profile("server", ["127.0.0.1"], KeyType.ECDSA_P256))
        self.agent = self._issue("agent", client_profile("agent", key_type=KeyType.ECDSA_P256))
        self.webhook = self._issue("webhook", server_profile("webhook", [WEBHOOK_NAME], KeyType.ECDSA_P256))

    def _issue(self, name: str, profile: Profile) -> Pair:
        pair: KeyPair = self._authority.issue(profile, self._now, LIFETIME)
        certificate = write_public(self._folder / f"{name}.crt", pair.certificate)
        return Pair(certificate, write_file(self._folder / f"{name}.key", pair.key))


@dataclass(frozen=True)
class Ports:
    agents: int = field(default_factory=free_port)
    server_health: int = field(default_factory=free_port)
    server_admin: int = field(default_factory=free_port)
    agent_health: int = field(default_factory=free_port)
    agent_admin: int = field(default_factory=free_port)

    def all(self) -> tuple[int, ...]:
        return (self.agents, self.server_health, self.server_admin, self.agent_health, self.agent_admin)


class Stage:
    """The programs of the demo, and how to start them."""

    def __init__(self, folder: Path, running: list[Child]) -> None:
        self.folder = folder
        self.socket = folder / "tunnel.sock"
        self.pki = Pki(folder)
        self.ports = Ports()
        self.running = running
        self._programs = Path(os.environ.get("UMBILICAL_DEMO_PROGRAMS") or Path(sys.executable).parent)

    def start_server(self) -> Child:
        pki, ports = self.pki, self.ports
        return self._start(
            "proxy-server",
            ["--mode=http-connect", f"--uds-name={self.socket}", "--server-port=0"],
            ["--agent-bind-address=127.0.0.1", f"--agent-port={ports.agents}"],
            ["--health-bind-address=127.0.0.1", f"--health-port={ports.server_health}"],
            [f"--admin-port={ports.server_admin}", f"--cluster-ca-cert={pki.authority}"],
            [f"--cluster-cert={pki.server.certificate}", f"--cluster-key={pki.server.key}"],
        )

    def start_agent(self) -> Child:
        pki, ports = self.pki, self.ports
        return self._start(
            "proxy-agent",
            ["--proxy-server-host=127.0.0.1", f"--proxy-server-port={ports.agents}", f"--ca-cert={pki.authority}"],
            [f"--agent-cert={pki.agent.certificate}", f"--agent-key={pki.agent.key}"],
            ["--health-server-host=127.0.0.1", f"--health-server-port={ports.agent_health}"],
            [f"--admin-server-port={ports.agent_admin}", "--sync-interval=100ms"],
        )

    def _start(self, name: str, *flags: Sequence[str]) -> Child:
        # The proxies of this machine's environment are not for traffic that stays on loopback.
        command = ["env", "-u", "HTTPS_PROXY", "-u", "https_proxy", str(self._programs / name)]
        command += [flag for group in flags for flag in group]
        child = start(command, self.folder / f"{name}.log", name=name)
        self.running.append(child)
        return child


@contextmanager
def webhook_running(pki: Pki) -> Iterator[Webhook]:
    webhook = Webhook(pki.webhook.certificate, pki.webhook.key, BULK_BYTES)
    thread = threading.Thread(target=webhook.serve_forever, daemon=True)
    thread.start()
    try:
        yield webhook
    finally:
        webhook.shutdown()
        webhook.server_close()
        thread.join(timeout=5)


def require(claim: bool, what: str, why: str) -> None:
    if not claim:
        raise DemoFailed(what, why)


def refusal(attempt: Callable[[], object]) -> tuple[str, float]:
    """Return what the tunnel answered to a call that it must refuse, and after how many milliseconds."""
    start_time = time.monotonic()
    try:
        attempt()
    except TunnelRefused as error:
        return str(error), (time.monotonic() - start_time) * 1000
    raise DemoFailed("a call got through that could not", "the tunnel answered 200")


def tell_no_agent(story: Story, stage: Stage, caller: Caller) -> None:
    story.chapter("1. A server without an agent refuses, and says why")
    server = stage.start_server()
    server.wait_ready(lambda: http_status(stage.ports.server_health, "/healthz") == 200, READY_SECONDS)
    server.wait_ready(stage.socket.is_socket, READY_SECONDS)
    mode = stage.socket.stat().st_mode & 0o777
    story.tick("server", f"is up (pid {server.pid}); clients enter by a Unix socket of mode {mode:04o}")
    require(http_status(stage.ports.server_health, "/readyz") == 500, "/readyz", "ready without an agent")
    answer, _ = refusal(lambda: caller.review("demo", privileged=False))
    require("No agent available" in answer, "a call without an agent", answer)
    story.tick("client", f"calls the webhook: {answer}")


def tell_agent(story: Story, stage: Stage) -> Child:
    story.chapter("2. An agent connects, outward, over mutual TLS")
    agent = stage.start_agent()
    agent.wait_ready(lambda: http_status(stage.ports.agent_health, "/readyz") == 200, READY_SECONDS)
    agent.wait_ready(lambda: http_status(stage.ports.server_health, "/readyz") == 200, READY_SECONDS)
    story.tick("agent", f"is connected (pid {agent.pid}); the server is ready")
    return agent


def tell_calls(story: Story, caller: Caller) -> None:
    story.chapter("3. The webhook answers through the tunnel")
    verdict = caller.review("harmless", privileged=False)
    require(verdict.allowed, "an admission review", "a harmless pod was denied")
    story.tick("webhook", "pod harmless: allowed")
    verdict = caller.review("mighty", privileged=True)
    require(not verdict.allowed, "an admission review", "a privileged pod was allowed")
    story.tick("webhook", f'pod mighty: denied, "{verdict.message}"')
    answer, _ = refusal(lambda: caller.open_tunnel(f"127.0.0.1:{free_port()}"))
    story.tick("client", f"asks for a port where nobody listens: {answer}")
    milliseconds = caller.download(BULK_BYTES)
    rate = BULK_BYTES / milliseconds / 1000
    story.tick("client", f"fetches {BULK_BYTES >> 20} MiB, checksum equal, {rate:.0f} MB/s with TLS end to end")
    for number in range(CALLS):
        require(caller.review(f"pod-{number}", privileged=False).allowed, "an admission review", f"pod-{number}")
    story.tick("client", f"makes {CALLS} more calls, a new tunnel for each")


def tell_cut(story: Story, stage: Stage, agent: Child, caller: Caller) -> Child:
    story.chapter("4. The agent is cut off")
    with caller.open_tunnel(caller.address) as tunnel:
        agent.kill()
        tunnel.settimeout(READY_SECONDS)
        require(tunnel.recv(1) == b"", "an open tunnel", "it outlived its agent")
    story.tick("client", "an open tunnel ends at once instead of hanging")
    answer, milliseconds = refusal(lambda: caller.review("demo", privileged=False))
    story.tick("client", f"a new call is refused in {milliseconds:.1f} ms: {answer}")
    successor = tell_return(story, stage)
    require(caller.review("demo", privileged=False).allowed, "an admission review", "denied after the return")
    story.tick("webhook", "pod demo: allowed")
    return successor


def tell_return(story: Story, stage: Stage) -> Child:
    agent = stage.start_agent()
    agent.wait_ready(lambda: http_status(stage.ports.agent_health, "/readyz") == 200, READY_SECONDS)
    agent.wait_ready(lambda: http_status(stage.ports.server_health, "/readyz") == 200, READY_SECONDS)
    story.tick("agent", f"another one takes its place (pid {agent.pid})")
    return agent


def tell_end(story: Story, stage: Stage, agent: Child) -> None:
    story.chapter("5. Nothing is left")
    # The first signal drains, the second one means now.
    agent.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    agent.stop(timeout_seconds=2)
    for child in stage.running:
        child.stop(timeout_seconds=5)
    story.tick("demo", f"{len(stage.running)} processes have ended")
    require(not stage.socket.exists(), "the end", f"{stage.socket} is still there")
    story.tick("demo", "the socket is gone")
    open_ports = [port for port in stage.ports.all() if http_status(port, "/healthz") is not None]
    require(not open_ports, "the end", f"somebody still listens on {open_ports}")
    story.tick("demo", f"{len(stage.ports.all())} ports are free again")


def tell_figures(story: Story, caller: Caller) -> None:
    story.chapter("Figures")
    ordered = sorted(caller.call_milliseconds)
    p50, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
    print(f"  calls     {len(ordered)}, each: connect, CONNECT, TLS handshake, AdmissionReview")
    print(f"  latency   p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    print(f"  bytes     {caller.bytes_carried:,} carried, counted before TLS")
    print(f"  all of it {story.seconds():.1f} s")
    print("\n  (On loopback the webhook needs no tunnel; it was reached through it all the same.)")


def tell(story: Story, stage: Stage, webhook: Webhook) -> None:
    context = ssl.create_default_context(cafile=str(stage.pki.authority))
    caller = Caller(stage.socket, webhook.address, context)
    story.say("demo", "an authority and three certificates are made, good for an hour")
    story.say("webhook", f"listens on {webhook.address} as {WEBHOOK_NAME}; it denies privileged pods")
    tell_no_agent(story, stage, caller)
    agent = tell_agent(story, stage)
    tell_calls(story, caller)
    successor = tell_cut(story, stage, agent, caller)
    tell_end(story, stage, successor)
    tell_figures(story, caller)


def main() -> int:
    story = Story()
    folder = Path(tempfile.mkdtemp(prefix="umbilical-demo-"))
    print("Umbilical: a tunnel's whole life on loopback\n")
    try:
        with children() as running:
            stage = Stage(folder, running)
            with webhook_running(stage.pki) as webhook:
                tell(story, stage, webhook)
    except (DemoFailed, HostError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
