"""Checks C5 to C7: the server's pod, the agents' flags, and the agents' objects."""

import ipaddress
import posixpath
import re
from collections.abc import Iterator
from typing import Any, Final

from umbilical.bootstrap.names import BOOTSTRAP_ONLY, OWN
from umbilical.bootstrap.spec import STRATEGIES, Shape
from umbilical.bootstrap.verify.documents import (
    ParsedYaml,
    PodSpec,
    dig,
    is_placeholder,
    mappings,
    parse_yaml,
    seconds,
    shown,
)
from umbilical.bootstrap.verify.facts import KUBE_SYSTEM, BootstrapCheck, BootstrapFacts, files, rule, tunnel
from umbilical.checks.check import Doubt
from umbilical.manifests.objects import PORT_RANGE, RESERVED_PORTS

_GRANTS: Final = re.compile(r"system:openshift:scc:(hostnetwork(-v2)?|hostaccess|privileged)")
_FOLDERS: Final = ("/opt/openshift/manifests/", "/opt/openshift/openshift/")


def may_use_host_network(facts: BootstrapFacts) -> bool:
    return any(_grants(binding, facts) for binding in _bindings(facts))


def _bindings(facts: BootstrapFacts) -> Iterator[Any]:
    files = facts.config.files if facts.config else ()
    for index, content in facts.contents.items():
        is_manifest = files[index].path.startswith(_FOLDERS)
        # Parse only files that can contain a grant: some clusters have thousands of manifests.
        if is_manifest and isinstance(content, bytes) and b"system:openshift:scc:" in content:
            yield parse_yaml(content.decode("utf-8", "replace")).value


def _grants(binding: Any, facts: BootstrapFacts) -> bool:
    if dig(binding, "kind") not in ("RoleBinding", "ClusterRoleBinding"):
        return False
    role = dig(binding, "roleRef", "name")
    if not isinstance(role, str) or not _GRANTS.fullmatch(role):
        return False
    own = dig(binding, "metadata", "namespace")
    if dig(binding, "kind") == "RoleBinding" and own != facts.agent_namespace:
        return False
    return any(_is_agent(subject, facts) for subject in mappings(dig(binding, "subjects")))


def _is_agent(subject: dict[Any, Any], facts: BootstrapFacts) -> bool:
    account = facts.agent.spec.get("serviceAccountName", "default")
    named = {"kind": "ServiceAccount", "name": account, "namespace": facts.agent_namespace}
    group = f"system:serviceaccounts:{facts.agent_namespace}"
    return all(subject.get(key) == value for key, value in named.items()) or (
        subject.get("kind") == "Group" and subject.get("name") == group
    )


ADMIN_PORT: Final = 8095
"""The server's default."""
# The default of --sync-interval-cap, where it is not set.
SYNC_CAP_SECONDS: Final = 10.0
# Files that the certificate script creates for the server: the installer's script, and ours.
_MADE_ON_NODE: Final = (
    {"--cluster-cert": "server.crt", "--cluster-key": "server.key", "--cluster-ca-cert": "ca.crt"},
    {"--cluster-cert": "server/tls.crt", "--cluster-key": "server/tls.key", "--cluster-ca-cert": "server/ca.crt"},
)
_DIGEST: Final = re.compile(r"[a-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}")
_REFERENCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
_FIX: Final = "patch the installer's original file again: umbilical bootstrap patch FILE"


def _server(facts: BootstrapFacts) -> Iterator[str]:
    yield from _object_faults(facts.server_pod, "v1", "Pod")
    pod = facts.server
    yield from _container_faults(pod, "proxy-server")
    yield from _frontend_faults(pod)
    yield from _cluster_certificate_faults(facts)
    yield from _port_faults(pod)
    yield from _strategy_faults(pod)
    if pod.spec.get("hostNetwork") is not True:
        yield "the server is not in the host network, where agents dial it"


def _frontend_faults(pod: PodSpec) -> Iterator[str]:
    flags = pod.flags.values
    has_socket, port = bool(flags.get("--uds-name")), flags.get("--server-port")
    if not has_socket:
        yield "--uds-name is not set"
    if has_socket != (port == "0"):
        yield f"--server-port is {shown(port)}; with a Unix socket the server accepts only 0"
    for name in ("--server-cert", "--server-key", "--server-ca-cert"):
        if name in flags:
            yield f"{name} is set, which the server rejects with a Unix socket"


def _cluster_certificate_faults(facts: BootstrapFacts) -> Iterator[str]:
    for name, file in _MADE_ON_NODE[facts.names is OWN].items():
        path = facts.server.flags.values.get(name, "")
        mount = facts.server.mount_of(path) if path else None
        on_host = mount.on_host(path) if mount else None
        wanted = posixpath.join(facts.names.pki_directory, file)
        if on_host != wanted:
            yield f"{name}={path} is not {wanted} on the host, which the node creates"


def _port_faults(pod: PodSpec) -> Iterator[str]:
    flags = pod.flags
    ports = {"--agent-port": flags.integer("--agent-port"), "--health-port": flags.integer("--health-port")}
    for name, port in ports.items():
        if port is None or port not in PORT_RANGE or port in RESERVED_PORTS:
            value, last = shown(flags.values.get(name)), PORT_RANGE.stop - 1
            yield f"{name} is {value}, not a free port in {PORT_RANGE.start}..{last}"
    admin = flags.integer("--admin-port") if "--admin-port" in flags.values else ADMIN_PORT
    taken = [*ports.values(), admin]
    if len(set(taken)) != len(taken) or admin is None or admin in RESERVED_PORTS:
        yield f"agent, health and admin port are {', '.join(map(shown, taken))}: they must differ"
    yield from _probe_faults(pod, ports["--health-port"])


def _probe_faults(pod: PodSpec, port: int | None) -> Iterator[str]:
    probe = dig(pod.container, "livenessProbe", "httpGet")
    if probe is not None and (dig(probe, "port") != port or dig(probe, "path") != "/healthz"):
        yield f"the livenessProbe is {shown(dig(probe, 'path'))} on {shown(dig(probe, 'port'))}, not /healthz on {port}"


def _strategy_faults(pod: PodSpec) -> Iterator[str]:
    value = pod.flags.values.get("--proxy-strategies", "")
    names = value.split(",")
    if not set(names) <= set(STRATEGIES) or len(set(names)) != len(names):
        yield f"--proxy-strategies is {shown(value)}; allowed, each once: {', '.join(STRATEGIES)}"


def _container_faults(pod: PodSpec, program: str) -> Iterator[str]:
    if len(pod.containers) != 1:
        yield f"it has {len(pod.containers)} containers, not one"
    yield from pod.flags.faults
    if posixpath.basename(pod.flags.program) != program:
        yield f"it runs {shown(pod.flags.program)}, not {program}"
    image = pod.container.get("image")
    if not isinstance(image, str) or not (is_placeholder(image) or _REFERENCE.fullmatch(image)):
        yield f"its image is {shown(image)}"
    elif not is_placeholder(image) and not _DIGEST.fullmatch(image):
        yield Doubt(f"its image {image} is not pinned by a digest")


def _agent(facts: BootstrapFacts) -> Iterator[str]:
    pod = facts.agent
    yield from _container_faults(pod, "proxy-agent")
    yield from _agent_certificate_faults(facts)
    yield from _dial_faults(facts)
    yield from _probe_faults(pod, pod.flags.integer("--health-server-port"))
    yield from _interval_faults(pod)


def _agent_certificate_faults(facts: BootstrapFacts) -> Iterator[str]:
    data = dig(facts.agent_secret.value, "data")
    keys = list(data) if isinstance(data, dict) else []
    for name in ("--ca-cert", "--agent-cert", "--agent-key"):
        path = facts.agent.flags.values.get(name, "")
        mount = facts.agent.mount_of(path) if path else None
        if mount is None or mount.secret_name is None:
            yield f"{name}={path} is not in a mounted Secret"
        elif posixpath.relpath(path, mount.path) not in keys:
            yield f"{name}={path}: the Secret has no {posixpath.relpath(path, mount.path)}"


def _dial_faults(facts: BootstrapFacts) -> Iterator[str]:
    flags = facts.agent.flags
    host = flags.values.get("--proxy-server-host", "")
    if not is_placeholder(host) and not _is_address(host):
        yield f"--proxy-server-host is {shown(host)}, neither a placeholder nor an address"
    port, served = flags.values.get("--proxy-server-port"), facts.server.flags.values.get("--agent-port")
    if port is None or port != served:
        yield f"agents dial port {shown(port)}, but the server listens on {shown(served)}"
    strategies = facts.server.flags.values.get("--proxy-strategies", "").split(",")
    identifiers = flags.values.get("--agent-identifiers", "")
    if "defaultRoute" in strategies and "default-route=true" not in identifiers.split("&"):
        yield f"the server needs agents with default-route=true, but theirs is {shown(identifiers)}"


def _is_address(text: str) -> bool:
    try:
        return not ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return False


def _interval_faults(pod: PodSpec) -> Iterator[str]:
    values = pod.flags.values
    interval = seconds(values["--sync-interval"]) if "--sync-interval" in values else 1.0
    cap = seconds(values["--sync-interval-cap"]) if "--sync-interval-cap" in values else SYNC_CAP_SECONDS
    if interval is None or cap is None or interval > cap:
        given = [shown(values.get(name)) for name in ("--sync-interval", "--sync-interval-cap")]
        yield f"--sync-interval {given[0]} is not a duration up to --sync-interval-cap {given[1]}"


def _objects(facts: BootstrapFacts) -> Iterator[str]:
    yield from _object_faults(facts.agent_daemon_set, "apps/v1", "DaemonSet")
    yield from _object_faults(facts.agent_secret, "v1", "Secret")
    yield from _selector_faults(facts)
    yield from _namespace_faults(facts)
    yield from _secret_faults(facts)
    if not any((toleration == {"operator": "Exists"}) for toleration in mappings(facts.agent.spec.get("tolerations"))):
        yield "the agents do not tolerate every taint (operator Exists without a key)"
    yield from _shape_faults(facts)
    named = {"DaemonSet": facts.agent_daemon_set, "Secret": facts.agent_secret, "Namespace": facts.namespace}
    for kind, document in named.items():
        if document.value is not None and not _is_bootstrap_only(document.value):
            yield f"the {kind} has no label {'='.join(BOOTSTRAP_ONLY)}"


def _object_faults(document: ParsedYaml, version: str, kind: str) -> Iterator[str]:
    if document.fault:
        yield document.fault
    elif (dig(document.value, "apiVersion"), dig(document.value, "kind")) != (version, kind):
        found = f"{shown(dig(document.value, 'apiVersion'))} {shown(dig(document.value, 'kind'))}"
        yield f"it is {found}, not {version} {kind}"


def _selector_faults(facts: BootstrapFacts) -> Iterator[str]:
    spec = dig(facts.agent_daemon_set.value, "spec")
    selector, labels = dig(spec, "selector", "matchLabels"), dig(spec, "template", "metadata", "labels")
    if not isinstance(selector, dict) or not selector or not isinstance(labels, dict):
        yield "the DaemonSet has no selector, or its pods have no labels"
    elif any(shown(labels.get(name)) != shown(value) for name, value in selector.items()):
        yield "the DaemonSet's selector does not match its own pods"


def _namespace_faults(facts: BootstrapFacts) -> Iterator[str]:
    names = {
        "DaemonSet": dig(facts.agent_daemon_set.value, "metadata", "namespace"),
        "Secret": dig(facts.agent_secret.value, "metadata", "namespace"),
    }
    if facts.text(facts.names.namespace) is not None:
        yield from _object_faults(facts.namespace, "v1", "Namespace")
        names["Namespace"] = dig(facts.namespace.value, "metadata", "name")
    elif names["DaemonSet"] != KUBE_SYSTEM:
        yield f"nothing creates the namespace {shown(names['DaemonSet'])}"
    if len(set(map(shown, names.values()))) != 1 or not isinstance(names["DaemonSet"], str):
        yield "namespaces differ: " + ", ".join(f"{kind} {shown(name)}" for kind, name in names.items())


def _secret_faults(facts: BootstrapFacts) -> Iterator[str]:
    name = dig(facts.agent_secret.value, "metadata", "name")
    mounted = [mount.secret_name for mount in facts.agent.mounts if mount.secret_name is not None]
    if not isinstance(name, str) or mounted != [name]:
        yield f"the agents mount {', '.join(mounted) or 'no Secret'}, but the Secret's name is {shown(name)}"


def _shape_faults(facts: BootstrapFacts) -> Iterator[str]:
    is_on_host = facts.agent.spec.get("hostNetwork") is True
    if facts.found_shape is not Shape.SEED:
        if is_on_host and not may_use_host_network(facts):
            yield "the agents use the host network, and no SCC allows it for their service account"
        return
    # dnsPolicy Default belongs to the host network: one without the other is a mistake.
    if is_on_host != (facts.agent.spec.get("dnsPolicy") == "Default"):
        yield "the agents' hostNetwork and dnsPolicy do not fit together"
    if facts.agent_namespace != KUBE_SYSTEM or facts.text(facts.names.namespace) is not None:
        yield f"the agents of shape seed must be in {KUBE_SYSTEM}, without a Namespace file"


def _is_bootstrap_only(value: Any) -> bool:
    name, wanted = BOOTSTRAP_ONLY
    return bool(dig(value, "metadata", "labels", name) == wanted)


POD_RULES: Final[tuple[BootstrapCheck, ...]] = (
    rule(
        "C5",
        "the server's socket, certificates, ports and strategies are valid together",
        "the server exits on invalid options, the kubelet restarts it, and no agent can connect",
        _FIX,
        _server,
        tunnel,
        files("server_pod"),
    ),
    rule(
        "C6",
        "agents have the right server address, certificates and identifiers",
        "if agents crash, dial a wrong port or lack default-route=true, every dial fails without a backend",
        _FIX,
        _agent,
        tunnel,
        files("server_pod", "agent_daemon_set"),
    ),
    rule(
        "C7",
        "DaemonSet, Secret and Namespace fit together, and pods can be created",
        "pods that an SCC rejects, or without their Secret, never start; objects without the label are not deleted",
        _FIX,
        _objects,
        tunnel,
        files("agent_secret", "agent_daemon_set"),
    ),
)
