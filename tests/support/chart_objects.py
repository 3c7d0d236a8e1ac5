"""The chart's renderings as objects, and their faults: references to nothing, pods without our settings."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import yaml

import chart

Object = dict[str, Any]
Objects = list[Object]
WORKLOADS: Final = frozenset({"Deployment", "DaemonSet", "Job", "CronJob", "Pod"})
NAMES: Final = tuple(path.name.removesuffix("-values.yaml") for path in chart.value_files())
_PROBES: Final = ("startupProbe", "livenessProbe", "readinessProbe")
DROPPED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def rendering(name: str) -> Objects:
    content = (chart.RENDERINGS / f"{name}.yaml").read_text()
    return [value for value in yaml.safe_load_all(content) if value is not None]


def named(objects: Iterable[Object], kind: str) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def pods(objects: Iterable[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Every pod with its title, metadata and spec."""
    for one in objects:
        if one["kind"] in WORKLOADS:
            outer = one["spec"]["jobTemplate"] if one["kind"] == "CronJob" else one
            template = outer if one["kind"] == "Pod" else outer["spec"]["template"]
            yield f"{one['kind']} {one['metadata']['name']}", template["metadata"], template["spec"]


def written_secrets(objects: Objects) -> set[str]:
    """The Secrets that the chart's own Job or cert-manager writes."""
    issued = {one["spec"]["secretName"] for one in named(objects, "Certificate").values()}
    arguments = [word for _, _, pod in pods(objects) for box in pod["containers"] for word in box["args"]]
    return issued | {word.partition("=")[2] for word in arguments if word.partition("=")[0].endswith("-secret")}


def missing(objects: Objects, existing_secrets: Iterable[str]) -> list[str]:
    """Every reference of a rendering to something that does not exist."""
    secrets = {*existing_secrets, *written_secrets(objects)}
    return [
        *(fault for title, head, pod in pods(objects) for fault in _missing_of_pod(objects, title, pod, secrets)),
        *_bindings(objects),
        *_selectors(objects),
        *_issuers(objects),
    ]


def _missing_of_pod(objects: Objects, title: str, pod: Object, secrets: set[str]) -> Iterator[str]:
    account = pod.get("serviceAccountName", "default")
    if account != "default" and account not in named(objects, "ServiceAccount"):
        yield f"{title}: ServiceAccount {account}"
    for volume in pod.get("volumes", ()):
        secret = volume.get("secret", {}).get("secretName")
        if secret and secret not in secrets:
            yield f"{title}: Secret {secret}"
        config_map = volume.get("configMap", {}).get("name")
        if config_map and config_map not in named(objects, "ConfigMap"):
            yield f"{title}: ConfigMap {config_map}"
    volumes = {volume["name"] for volume in pod.get("volumes", ())}
    for box in pod["containers"]:
        mounts = [str(one["name"]) for one in box.get("volumeMounts", ())]
        yield from (f"{title}: volume {name}" for name in mounts if name not in volumes)
        ports = {port["name"] for port in box.get("ports", ())}
        probes = [str(box[key]["httpGet"]["port"]) for key in _PROBES if key in box]
        yield from (f"{title}: probe's port {port}" for port in probes if port not in ports)


def _bindings(objects: Objects) -> Iterator[str]:
    for name, binding in named(objects, "RoleBinding").items():
        if binding["roleRef"]["name"] not in named(objects, binding["roleRef"]["kind"]):
            yield f"RoleBinding {name}: Role {binding['roleRef']['name']}"
        for subject in binding["subjects"]:
            if subject["name"] not in named(objects, subject["kind"]):
                yield f"RoleBinding {name}: {subject['kind']} {subject['name']}"


def _selectors(objects: Objects) -> Iterator[str]:
    """Selectors that select nothing, and names of ports that what they select does not have."""
    for one in objects:
        title, spec = f"{one['kind']} {one['metadata']['name']}", one.get("spec", {})
        if one["kind"] in ("Service", "NetworkPolicy", "PodDisruptionBudget", "PodMonitor"):
            labels = spec.get("podSelector", spec.get("selector"))
            yield from _selected(title, labels.get("matchLabels", labels), _pod_ports(objects), _ports(one))
        elif one["kind"] == "ServiceMonitor":
            yield from _selected(title, spec["selector"]["matchLabels"], _service_ports(objects), _ports(one))
        elif one["kind"] in ("Deployment", "DaemonSet"):
            labels = spec["template"]["metadata"]["labels"]
            if not spec["selector"]["matchLabels"].items() <= labels.items():
                yield f"{title}: its own pods"


def _selected(
    title: str, labels: Object, ports_by_labels: list[tuple[Object, set[str]]], ports: set[str]
) -> Iterator[str]:
    found = [known for candidate, known in ports_by_labels if labels.items() <= candidate.items()]
    if not found:
        yield f"{title}: nothing has the labels {labels}"
    yield from (f"{title}: port {port}" for port in sorted(ports) if not all(port in known for known in found))


def _pod_ports(objects: Objects) -> list[tuple[Object, set[str]]]:
    return [
        (head["labels"], {port["name"] for box in pod["containers"] for port in box.get("ports", ())})
        for _, head, pod in pods(objects)
    ]


def _service_ports(objects: Objects) -> list[tuple[Object, set[str]]]:
    services = named(objects, "Service").values()
    return [(one["metadata"]["labels"], {port["name"] for port in one["spec"]["ports"]}) for one in services]


def _ports(one: Object) -> set[str]:
    spec = one["spec"]
    if one["kind"] == "Service":
        return {port["targetPort"] for port in spec["ports"]}
    if one["kind"] == "NetworkPolicy":
        return {port["port"] for rule in spec.get("ingress", ()) for port in rule["ports"]}
    endpoints = [*spec.get("endpoints", ()), *spec.get("podMetricsEndpoints", ())]
    return {endpoint["port"] for endpoint in endpoints}


def _issuers(objects: Objects) -> Iterator[str]:
    for name, one in named(objects, "Certificate").items():
        issuer = one["spec"]["issuerRef"]
        if issuer["name"] not in named(objects, issuer["kind"]):
            yield f"Certificate {name}: {issuer['kind']} {issuer['name']}"
    for name, one in named(objects, "Issuer").items():
        secret = one["spec"].get("ca", {}).get("secretName")
        if secret and secret not in written_secrets(objects):
            yield f"Issuer {name}: Secret {secret}"


def unsafe(objects: Objects) -> list[str]:
    """Every pod and container without our security settings, requests, or the way in which we use tokens."""
    return [fault for title, _, pod in pods(objects) for fault in _unsafe_pod(title, pod)]


def _unsafe_pod(title: str, pod: Object) -> Iterator[str]:
    context = pod.get("securityContext", {})
    has_socket = any("hostPath" in volume for volume in pod.get("volumes", ()))
    if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield f"{title}: seccompProfile"
    # A socket's directory on the node belongs to root.
    if (context.get("runAsUser") == 0) is not has_socket:
        yield f"{title}: runAsUser {context.get('runAsUser')}"
    if not has_socket and context.get("runAsNonRoot") is not True:
        yield f"{title}: runAsNonRoot"
    if "automountServiceAccountToken" not in pod or pod.get("enableServiceLinks") is not False:
        yield f"{title}: token or service links by default"
    for box in pod["containers"]:
        if box["securityContext"] != DROPPED:
            yield f"{title}: securityContext of {box['name']}"
        if set(box["resources"]) != {"requests"} or set(box["resources"]["requests"]) != {"cpu", "memory"}:
            yield f"{title}: resources of {box['name']}"
        if box.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            yield f"{title}: terminationMessagePolicy of {box['name']}"
