"""The demo on loopback addresses, for machines without namespaces.

Server, agents, webhook and caller are the same programs with the same rendered arguments and certificates, each on its
own address of 127.0.0.0/8. Every process reaches every loopback address, so nothing is blocked without the tunnel;
instead the demo shows a call that fails because its egress selector names a tunnel that does not exist.
"""

import contextlib
import json
import os
import posixpath
import secrets
import socket
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from umbilical.bootstrap.names import AGENT_NAME, SERVER_NAME, STATIC_POD
from umbilical.bootstrap.spec import BOOTSTRAP_CONFIGS_ON_HOST
from umbilical.fault import LabError
from umbilical.host.files import make_directory, write_file
from umbilical.host.waiting import NotYet
from umbilical.lab import listeners, objects
from umbilical.lab.binaries import OWN_PROGRAMS
from umbilical.lab.hosted import parts
from umbilical.lab.images import PYTHON_PROGRAMS
from umbilical.lab.transcript import CallResult, Transcript
from umbilical.lab.tunnel_parts import ScenarioOptions, TunnelParts, make_parts
from umbilical.lab.waiting import wait
from umbilical.pki.authority import Authority

NOT_SHOWN: Final = (
    "that the bootstrap node is blocked without the tunnel, nodes and pods with networks and files of their own, and "
    "the bytes that the kernel counted"
)
NODES: Final = ("master-0", "master-1", "master-2", "worker-0", "worker-1")
WEBHOOK_NODE: Final = "worker-0"
CALLS: Final = 50
CALLER: Final = "lab-admission-caller"
CALL_SECONDS: Final = 60.0
READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 10.0
LINES_SHOWN: Final = 3
_TRIES: Final = 20
_PROGRAMS: Final = {**OWN_PROGRAMS, **PYTHON_PROGRAMS}
_DIALS: Final = "konnectivity_network_proxy_server_dial_duration_seconds_count"
# The child dies with this process, even after SIGKILL.
_RUN: Final = (
    "import sys; from umbilical.host.namespaces import die_with_parent; die_with_parent(); "
    "from {module} import main; sys.argv[0] = {name!r}; sys.exit(main())"
)


@dataclass(frozen=True)
class Addresses:
    """Addresses of the nodes: one /16 of loopback per demo, so that several can run at once."""

    number: int

    @property
    def bootstrap(self) -> str:
        return f"127.{self.number}.0.10"

    def pod(self, node: str, last: int) -> str:
        return f"127.{self.number}.{NODES.index(node) + 1}.{last}"

    def agent(self, node: str) -> str:
        return self.pod(node, 2)

    @property
    def webhook(self) -> str:
        return self.pod(WEBHOOK_NODE, 3)


def run(transcript: Transcript, folder: Path) -> None:
    """Run the demo with files in an empty directory; at the end no process of it is left.

    Raises LabError: a step failed.
    """
    with contextlib.ExitStack() as stack:
        stage = _LoopbackTestbed(transcript, folder, stack)
        with transcript.step(f"a bootstrap node and {len(NODES)} nodes as loopback addresses"):
            stage.choose_addresses()
            transcript.shows(nodes=("bootstrap", *NODES), apiserver=True, on_loopback=True)
        with transcript.step("a webhook on a node's address, failurePolicy Fail"):
            stage.start_webhook()
            transcript.shows(webhook=WEBHOOK_NODE)
        with transcript.step("configured for a missing tunnel, the stand-in's call fails"):
            stage.make_tunnel()
            stage.see(CallResult.UNREACHABLE, "allow")
        with transcript.step("the server, its socket and port"):
            stage.start_server()
            transcript.shows(server=True)
        with transcript.step("agents of every node connect to the server"):
            stage.start_agents()
            transcript.shows(agents=NODES)
            transcript.figures["agents"] = str(len(NODES))
        with transcript.step("through the tunnel the webhook allows a request"):
            stage.see(CallResult.ALLOWED, "allow")
        with transcript.step("through the tunnel the webhook denies a request"):
            stage.see(CallResult.DENIED, "deny")
        with transcript.step(f"{CALLS} calls"):
            stage.call_many()
        with transcript.step("the tunnel is removed: stop programs, delete files"):
            stage.remove_tunnel()
            transcript.shows(server=False, agents=())
        with transcript.step("nothing of the tunnel is left"):
            stage.check_nothing_is_left()
        with transcript.step("without the tunnel calls fail as before"):
            stage.see(CallResult.UNREACHABLE, "allow")


class _LoopbackTestbed:
    """The running programs and their files."""

    def __init__(self, transcript: Transcript, folder: Path, stack: contextlib.ExitStack) -> None:
        self._transcript = transcript
        self._folder = folder
        self._stack = stack
        self._addresses = Addresses(0)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._parts: TunnelParts | None = None

    @property
    def _tunnel(self) -> TunnelParts:
        assert self._parts is not None, "make_tunnel comes first"
        return self._parts

    @property
    def _socket(self) -> Path:
        # The volume's short name: a Unix socket address has at most 107 bytes.
        return self._folder / SERVER_NAME / "socket" / posixpath.basename(self._tunnel.spec.socket_on_host)

    @property
    def _egress_file(self) -> Path:
        return self._folder / "egress-selector-config.yaml"

    @property
    def _authority_file(self) -> Path:
        return self._folder / "lab-service-ca.crt"

    def choose_addresses(self) -> None:
        self._addresses = _free_addresses()
        self._transcript.saw(f"bootstrap {self._addresses.bootstrap}")
        for node in NODES:
            self._transcript.saw(f"{node} {self._addresses.agent(node)}")
        self._transcript.saw(f"no Kubernetes here: {CALLER} replaces kube-apiserver")

    def start_webhook(self) -> None:
        address = self._addresses.webhook
        service = objects.service_on(WEBHOOK_NODE, datetime.now(UTC))
        write_file(self._authority_file, service.authority, 0o644)
        self._start(objects.NAME, service.pod_spec, [service.secret], [f"--listen={address}:{objects.PORT}"])
        self._wait_for_listener(objects.NAME, f"{address}:{objects.PORT}")
        self._transcript.saw(f"{objects.NAMESPACE}/{objects.NAME} of {WEBHOOK_NODE}, {address}:{objects.PORT}")

    def make_tunnel(self) -> None:
        self._parts = make_parts(
            ScenarioOptions(is_stand_in=True), self._addresses.bootstrap, Authority, datetime.now(UTC)
        )
        local = str(self._socket.parent).encode()
        egress = self._parts.egress_file.replace(BOOTSTRAP_CONFIGS_ON_HOST.encode(), local)
        write_file(self._egress_file, egress, 0o644)
        self._transcript.saw(f"--egress-selector-config-file={self._egress_file}")

    def start_server(self) -> None:
        pod = yaml.safe_load(self._tunnel.files[STATIC_POD].content)["spec"]
        address, port = self._addresses.bootstrap, self._tunnel.spec.agent_port
        listening = [f"--{name}-bind-address={address}" for name in ("agent", "health", "admin")]
        self._start(SERVER_NAME, pod, (), listening)
        self._wait_for_listener(SERVER_NAME, f"{address}:{port}")
        self._wait(SERVER_NAME, "the server's socket", self._look_for_socket)
        self._transcript.saw(f"{self._socket}; LISTEN {address}:{port}")

    def start_agents(self) -> None:
        daemon_set = parts.find(self._tunnel.objects, "DaemonSet", AGENT_NAME)
        pod = daemon_set["spec"]["template"]["spec"]
        for node in NODES:
            own = self._addresses.agent(node)
            listening = [f"--health-server-host={own}", f"--admin-bind-address={own}"]
            self._start(f"{AGENT_NAME}-{node}", pod, self._tunnel.objects, listening)
        for node in NODES:
            url = f"http://{self._addresses.agent(node)}:{self._tunnel.spec.health_port}/readyz"
            self._wait(f"{AGENT_NAME}-{node}", f"the agent of {node}", partial(_fetched, url))
        self._transcript.saw(f"connected: {', '.join(NODES)}")

    def see(self, wanted: CallResult, verdict: str) -> None:
        """Call the webhook once, check the result and record the caller's message."""
        answer = self._call(verdict, 1)
        text = answer["message"] or f"{answer['call']} by {objects.WEBHOOK}"
        if CallResult(answer["call"]) is not wanted:
            why = f"the call was {answer['call']}: {text}"
            raise LabError("UMB850", f"no call with the result {wanted.value}", why, "try again: umbilical lab demo")
        self._transcript.saw(text)
        self._transcript.shows(call=wanted)

    def call_many(self) -> None:
        before = self._dials()
        answer = self._call("allow", CALLS)
        dials = self._dials() - before
        if answer["calls"][CallResult.ALLOWED.value] != CALLS or dials != CALLS:
            why = f"{answer['calls']}, and the server counted {dials} dials"
            raise LabError("UMB855", f"not all of {CALLS} calls went through the tunnel", why, "umbilical lab demo")
        seconds = [float(each) for each in answer["callSeconds"]]
        p50 = f"{statistics.median(seconds) * 1000:.1f} ms"
        self._transcript.figures.update(
            {"calls": str(len(seconds)), "dials that agents answered": str(dials), "p50": p50}
        )
        self._transcript.saw(f"{len(seconds)} calls, p50 {p50}; the server counted {dials} dials that agents answered")

    def remove_tunnel(self) -> None:
        """Stop the tunnel's programs and delete its files; the webhook stays."""
        ending = {name: self._running.pop(name) for name in list(self._running) if name != objects.NAME}
        # All at once: an agent that drains serves for some seconds more.
        for process in ending.values():
            process.terminate()
        for name, process in ending.items():
            _await_end(process)
            self._transcript.saw(f"{name} stopped")
        for place in self._files_of_tunnel():
            for path in sorted(place.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            place.rmdir()
            self._transcript.saw(f"{place} removed")

    def check_nothing_is_left(self) -> None:
        def look() -> None:
            found = [str(path) for path in self._files_of_tunnel()]
            ports = (self._tunnel.spec.agent_port, self._tunnel.spec.health_port)
            ours = f"127.{self._addresses.number}."
            found += [each for each in listeners.on_ports(_tables(), ports) if each.startswith(ours)]
            if found:
                raise NotYet(", ".join(found))

        wait("the tunnel to be gone", look, STOP_SECONDS)
        self._transcript.saw("no server, no agent, no key, no socket, and the port is closed")

    def _files_of_tunnel(self) -> list[Path]:
        return sorted(
            path for path in self._folder.iterdir() if path.is_dir() and path.name.startswith("konnectivity-")
        )

    def _call(self, verdict: str, count: int) -> dict[str, Any]:
        where = f"{self._addresses.webhook}:{objects.PORT}"
        options = [f"--address={where}", f"--service={objects.NAME}", f"--namespace={objects.NAMESPACE}"]
        asked = [f"--webhook={objects.WEBHOOK}", f"--ca-file={self._authority_file}", f"--count={count}"]
        command = _command(CALLER, [f"--egress-selector-config-file={self._egress_file}", *options, *asked])
        wanted = json.dumps(objects.judged(verdict)).encode()
        done = subprocess.run(
            command, input=wanted, capture_output=True, timeout=CALL_SECONDS, env=_environment(), check=False
        )
        if done.returncode != 0:
            why = _last_lines(done.stderr) or f"it exited with {done.returncode} and printed nothing"
            raise LabError("UMB816", f"{CALLER} failed", why, "try again: umbilical lab demo")
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    def _dials(self) -> int:
        spec = self._tunnel.spec
        text = _fetched(f"http://{self._addresses.bootstrap}:{spec.health_port}/metrics")
        rows = [line.split() for line in text.splitlines() if line.startswith(_DIALS)]
        return sum(int(float(row[1])) for row in rows)

    def _start(
        self, name: str, pod: Mapping[str, Any], known: Iterable[Mapping[str, Any]], more: Sequence[str]
    ) -> None:
        """Run the only container of a rendered pod; each volume is a directory of the same name."""
        own, container = self._folder / name, pod["containers"][0]
        places = {mount["mountPath"]: make_directory(own / mount["name"], 0o700) for mount in container["volumeMounts"]}
        self._fill(pod, container, known, places)
        command = parts.command(container)
        log = os.open(self._folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(
                _command(command[0], [*(_local(word, places) for word in command[1:]), *more]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                # Ctrl-C in the terminal reaches this process only.
                start_new_session=True,
            )
        finally:
            os.close(log)
        self._stack.callback(_end, process)
        self._running[name] = process

    def _fill(
        self,
        pod: Mapping[str, Any],
        container: Mapping[str, Any],
        known: Iterable[Mapping[str, Any]],
        places: Mapping[str, Path],
    ) -> None:
        files = dict(parts.mounted_files(pod, container, known))
        on_host = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
        for mount in container["volumeMounts"]:
            source = on_host.get(mount["name"])
            for asset in self._tunnel.files if source is not None else ():
                if posixpath.dirname(asset.path) == source:
                    files[posixpath.join(mount["mountPath"], posixpath.basename(asset.path))] = asset.content
        for path, content in files.items():
            write_file(Path(_local(path, places)), content)

    def _wait_for_listener(self, name: str, wanted: str) -> None:
        port = int(wanted.rpartition(":")[2])

        def look() -> None:
            if wanted not in listeners.on_ports(_tables(), [port]):
                raise NotYet(f"nothing listens on {wanted}")

        self._wait(name, f"{name} to listen", look)

    def _look_for_socket(self) -> None:
        if not self._socket.exists():
            raise NotYet(f"{self._socket} does not exist")

    def _wait(self, name: str, what: str, look: Callable[[], object]) -> None:
        """Wait; if the program has ended, raise LabError with the last lines of its log."""

        def look_or_fail() -> None:
            status = self._running[name].poll()
            if status is not None:
                why = _last_lines((self._folder / f"{name}.log").read_bytes()) or f"it exited with {status}"
                raise LabError("UMB816", f"{name} has ended", why, "try again: umbilical lab demo")
            look()

        wait(what, look_or_fail, READY_SECONDS)


def _free_addresses() -> Addresses:
    """Find a /16 of loopback with free ports: another demo, or a wildcard listener, may use them."""
    refusal = ""
    for _ in range(_TRIES):
        addresses = Addresses(64 + secrets.randbelow(190))
        try:
            for host, port in (
                (addresses.bootstrap, 8091),
                (addresses.bootstrap, 2041),
                (addresses.webhook, objects.PORT),
            ):
                socket.create_server((host, port)).close()
        except OSError as error:
            refusal = f"{host}:{port}: {error.strerror or error}"
            continue
        return addresses
    why = f"last attempt: {refusal}"
    raise LabError(
        "UMB818", "no free loopback addresses for the demo", why, "stop what listens on them, then try again"
    )


def _command(program: str, arguments: Sequence[str]) -> list[str]:
    # -P: do not import from the working directory.
    code = _RUN.format(module=_PROGRAMS[program], name=program)
    return [sys.executable, "-P", "-c", code, *arguments]


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}


def _local(word: str, places: Mapping[str, Path]) -> str:
    """Replace the container path in an argument with the path of the volume's directory."""
    head, separator, path = word.rpartition("=")
    for mount, place in places.items():
        if path == mount or path.startswith(f"{mount}/"):
            return f"{head}{separator}{place}{path[len(mount) :]}"
    return word


def _fetched(url: str) -> str:
    # Without a proxy from the environment: it cannot reach this machine's loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5.0) as answer:
            return str(answer.read().decode())
    except OSError as error:
        raise NotYet(f"{url}: {error}") from None


def _tables() -> str:
    return "".join(Path(table).read_text() for table in listeners.TABLES if Path(table).exists())


def _last_lines(content: bytes) -> str:
    return " | ".join(content.decode(errors="replace").strip().splitlines()[-LINES_SHOWN:])


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
