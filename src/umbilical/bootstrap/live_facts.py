"""Queries a running tunnel: commands on the bootstrap machine; the agents' DaemonSet, pods and readiness through the
Kubernetes API. `live` checks the answers."""

import ipaddress
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final

from umbilical.bootstrap.names import AGENT_NAME, NATIVE, OWN, SERVER_NAME
from umbilical.bootstrap.render.trial_webhook import CONFIGURATION, judged
from umbilical.bootstrap.spec import BOOTSTRAP_CONFIGS_ON_HOST, SOCKET_NAME
from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.fault import ApiRefused, ClusterError, HostError
from umbilical.host.commands import CommandResult, CommandRunner
from umbilical.manifests.objects import IpAddress

COMMAND_SECONDS: Final = 15.0
CURL_SECONDS: Final = 5
# No program exits with this status: the command could not run at all.
NOT_RUN: Final = -1
COMMAND_NOT_FOUND: Final = 127
# The second is upstream's older name, the only one in a payload of 4.14.
BACKEND_METRICS: Final = re.compile(
    r"^konnectivity_network_proxy_server_ready_backend(?:s|_connections)(?:\{[^}]*\})? (\S+)$", re.MULTILINE
)


@dataclass(frozen=True)
class NodePaths:
    """Paths on the machine; ours come before the installer's own."""

    socket: str = posixpath.join(BOOTSTRAP_CONFIGS_ON_HOST, SOCKET_NAME)
    kube_apiserver_config: str = posixpath.join(BOOTSTRAP_CONFIGS_ON_HOST, "kube-apiserver-config.yaml")
    own_certificate: str = f"{OWN.pki_directory}/server/tls.crt"
    native_certificate: str = f"{NATIVE.pki_directory}/server.crt"
    node_ip: str = "/opt/openshift/umbilical/node-ip"
    service_record: str = "/var/log/openshift/bootkube.json"

    def under(self, root: str) -> "NodePaths":
        """The same paths below another root: a copy of a machine, or a test's directory."""
        return NodePaths(**{field.name: root.rstrip("/") + getattr(self, field.name) for field in fields(self)})


@dataclass(frozen=True)
class NodePorts:
    agent: int = 8091
    health: int = 2041
    admin: int = 8095


@dataclass(frozen=True)
class NodeAnswers:
    """The unparsed output of each command."""

    socket: CommandResult
    listeners: CommandResult
    health: CommandResult
    metrics: CommandResult
    kube_apiserver_config: CommandResult
    certificate: CommandResult
    containers: CommandResult
    service_record: CommandResult
    node_ip: CommandResult


@dataclass(frozen=True)
class ServerCertificate:
    addresses: tuple[IpAddress, ...]
    ends: datetime


def query_node(runner: CommandRunner, paths: NodePaths, ports: NodePorts) -> NodeAnswers:
    """Run all commands, one after the other. Raises HostError: the machine does not answer at all."""
    # The first command tests SSH itself; later a missing program affects only its own answer.
    runner.run(["true"], COMMAND_SECONDS)
    answers = {name: _run(runner, command) for name, command in _commands(paths, ports).items()}
    return NodeAnswers(**answers)


def listening_addresses(answer: CommandResult, port: int) -> list[str]:
    """Return the addresses that listen on this port, from `ss -Hltn`."""
    places = [line.split()[3] for line in answer.stdout.splitlines() if len(line.split()) > 3]
    return [address for address, _, number in (place.rpartition(":") for place in places) if number == str(port)]


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0].strip("[]")).is_loopback
    except ValueError:
        return False  # `*`: all addresses


def ready_backends(answer: CommandResult) -> float | None:
    """Return how many agents the server could use; None without such a metric."""
    values = [_number(text) for text in BACKEND_METRICS.findall(answer.stdout)]
    return max(values, default=None)


def egress_file(answer: CommandResult) -> str | None:
    """Return kube-apiserver's egress argument from its configuration; None without one."""
    import yaml

    try:
        config = yaml.safe_load(answer.stdout)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    arguments = config.get("apiServerArguments") if isinstance(config, dict) else None
    value = arguments.get("egress-selector-config-file") if isinstance(arguments, dict) else None
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, str) and first else None


def server_certificate(answer: CommandResult) -> ServerCertificate | None:
    from umbilical.pki.certificate import read_certificates
    from umbilical.pki.pem import BundleError

    try:
        found = read_certificates(answer.stdout.encode())[0]
    except BundleError:
        return None
    return ServerCertificate(found.ip_addresses, found.not_after)


def running_containers(answer: CommandResult) -> int | None:
    """Count the containers in crictl's list; None if the output is not a list."""
    try:
        listed = json.loads(answer.stdout)
    except (ValueError, RecursionError):
        return None
    containers = listed.get("containers") if isinstance(listed, dict) else None
    return len(containers) if isinstance(containers, list) else None


def stage_results(answer: CommandResult, stages: Sequence[str]) -> dict[str, str] | None:
    """Return the last result of each step: `success`, `failure: …` or `open`; None without a service record."""
    try:
        entries = json.loads(answer.stdout)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entries, list):
        return None
    results: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry, dict) and entry.get("stage") in stages:
            results[entry["stage"]] = _stage_result(entry)
    return results


def found_node_ip(answer: CommandResult) -> IpAddress | None:
    try:
        return ipaddress.ip_address(answer.stdout.strip())
    except ValueError:
        return None


def trouble(answer: CommandResult) -> str:
    """Return the last line of the error output."""
    lines = (answer.stderr or answer.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit status {answer.exit_code}"


def could_run(answer: CommandResult) -> bool:
    return answer.exit_code not in (NOT_RUN, COMMAND_NOT_FOUND)


def _commands(paths: NodePaths, ports: NodePorts) -> Mapping[str, list[str]]:
    # openssl prints only the certificate, even if the file holds a key.
    first_certificate = (
        'for file; do [ -e "$file" ] && exec openssl x509 -in "$file"; done; echo "none of $*" >&2; exit 1'
    )
    return {
        "socket": ["env", "LC_ALL=C", "stat", "-c", "%F", paths.socket],
        "listeners": ["ss", "-Hltn"],
        "health": _curl(ports.health, "/healthz"),
        "metrics": _curl(ports.admin, "/metrics"),
        "kube_apiserver_config": ["cat", paths.kube_apiserver_config],
        "certificate": ["bash", "-c", first_certificate, "bash", paths.own_certificate, paths.native_certificate],
        "containers": ["crictl", "ps", "--name", f"^{SERVER_NAME}$", "--state", "Running", "-o", "json"],
        "service_record": ["cat", paths.service_record],
        "node_ip": ["cat", paths.node_ip],
    }


def _curl(port: int, path: str) -> list[str]:
    # A proxy of the environment must not get requests for loopback.
    options = ["-sS", "--fail", "--noproxy", "*", "--max-time", str(CURL_SECONDS)]
    return ["curl", *options, f"http://127.0.0.1:{port}{path}"]


def _run(runner: CommandRunner, command: Sequence[str]) -> CommandResult:
    try:
        return runner.run(command, COMMAND_SECONDS)
    except HostError as fault:
        return CommandResult(NOT_RUN, "", fault.brief)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _stage_result(entry: Mapping[str, Any]) -> str:
    if entry.get("phase") != "stage end":
        return "open"
    if entry.get("result") == "success":
        return "success"
    lines = str(entry.get("errorMessage") or "no message").strip().splitlines()
    return f"failure: {lines[-1] if lines else 'no message'}"


# A few agents suffice; in a big cluster querying all would only take time.
MAX_PODS_QUERIED: Final = 3


@dataclass(frozen=True)
class ClusterAnswers:
    daemon_set: Json | None
    pods: list[Json] = field(default_factory=list)
    readiness: dict[str, str] = field(default_factory=dict)
    """By pod: the agent's answer at /readyz through kube-apiserver, or the error."""
    webhook: dict[str, str] = field(default_factory=dict)
    """By requested verdict: what became of a dry run that the test webhook judges; empty without that webhook."""
    refusals: list[str] = field(default_factory=list)
    """Messages of requests that the API refused."""


async def query_cluster(client: ApiClient, namespace: str, health_port: int) -> ClusterAnswers:
    """Read the agents' objects. Raises ApiUnreachable: the API does not answer at all."""
    refusals: list[str] = []
    daemon_set = None
    pods: list[Json] = []
    try:
        daemon_set = await objects.get(client, objects.DAEMON_SET, AGENT_NAME, namespace)
        pods = await objects.list_objects(client, objects.POD, namespace, f"app={AGENT_NAME}")
    except ApiRefused as refusal:
        refusals.append(refusal.brief)
    readiness = {pod_name(pod): await _readiness(client, pod, health_port) for pod in _running(pods)[:MAX_PODS_QUERIED]}
    return ClusterAnswers(daemon_set, pods, readiness, await _webhook_verdicts(client), refusals)


async def _webhook_verdicts(client: ApiClient) -> dict[str, str]:
    try:
        if await objects.get_metadata(client, objects.WEBHOOK_CONFIGURATION, CONFIGURATION) is None:
            return {}
    except ApiRefused as refusal:
        return {"allow": refusal.brief}
    return {one: await objects.config_map_verdict(client, judged(one)) for one in ("allow", "deny")}


def pod_name(pod: Json) -> str:
    return str(objects.metadata(pod).get("name"))


def pods_in_trouble(pods: list[Json]) -> list[str]:
    """List pods that do not run, with their Kubernetes state."""
    return [f"{pod_name(pod)} {_state(pod)}" for pod in pods if pod not in _running(pods)]


def server_host(daemon_set: Json) -> str | None:
    """Return the address that agents dial: the value of their --proxy-server-host."""
    for container in objects.items(objects.field(daemon_set, "spec", "template", "spec", "containers")):
        words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
        for position, word in enumerate(words):
            name, equals, value = word.partition("=")
            if name == "--proxy-server-host":
                return value if equals else next(iter(words[position + 1 :]), None)
    return None


def _running(pods: list[Json]) -> list[Json]:
    return [pod for pod in pods if _state(pod) == "Running"]


def _state(pod: Json) -> str:
    for status in objects.items(objects.field(pod, "status", "containerStatuses")):
        waiting = objects.field(status, "state", "waiting", "reason")
        ended = objects.field(status, "state", "terminated", "reason")
        if waiting or ended:
            return str(waiting or ended)
    for condition in objects.items(objects.field(pod, "status", "conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("reason"))
    return str(objects.field(pod, "status", "phase"))


async def _readiness(client: ApiClient, pod: Json, port: int) -> str:
    namespace = objects.metadata(pod).get("namespace")
    # kube-apiserver dials the pod through the same egress as webhooks: an answer shows that the tunnel works.
    path = f"{objects.POD.path(namespace, pod_name(pod))}:{port}/proxy/readyz"
    try:
        return (await client.get_text(path)).strip()
    except ClusterError as fault:
        return fault.why
