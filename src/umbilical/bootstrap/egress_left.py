"""Which kube-apiservers still send their traffic by an egress selector, as far as the API shows it.

OpenShift keeps the arguments in ConfigMaps and in its operator's object; kubeadm and the like keep them on the
command line of mirror pods. One that runs outside of pods cannot be seen this way.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import CONFIG_MAP, OPENSHIFT_KUBE_APISERVER, POD
from umbilical.fault import ApiRefused

ARGUMENT: Final = "egress-selector-config-file"
OPENSHIFT_NAMESPACE: Final = "openshift-kube-apiserver"
# By the labels that kubeadm and its kin, and OpenShift's operator, put on them.
PODS: Final = (("kube-system", "component=kube-apiserver"), (OPENSHIFT_NAMESPACE, "app=openshift-kube-apiserver"))


@dataclass
class EgressLeft:
    places: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    """What may not be looked at."""


async def egress_left(client: ApiClient) -> EgressLeft:
    """Name each place that still holds the argument.

    Raises:
        ApiUnreachable: the API does not answer.
    """
    left = EgressLeft()
    for look in (_in_operator, _in_config_maps, _in_pods):
        try:
            left.places += await look(client)
        except ApiRefused as refusal:
            left.refusals.append(refusal.message)
    return left


async def _in_operator(client: ApiClient) -> list[str]:
    item = await objects.get(client, OPENSHIFT_KUBE_APISERVER, "cluster")
    if item is None:
        return []
    parts = ("observedConfig", "unsupportedConfigOverrides")
    return [
        f"kubeapiservers.operator.openshift.io/cluster spec.{part}"
        for part in parts
        if _has_argument(objects.field(item, "spec", part))
    ]


async def _in_config_maps(client: ApiClient) -> list[str]:
    """Look at the configuration to come, and at the ones that kube-apiservers run with now."""
    operator = await objects.get(client, OPENSHIFT_KUBE_APISERVER, "cluster")
    if operator is None:
        return []
    nodes = objects.items(objects.field(operator, "status", "nodeStatuses"))
    revisions = sorted({node["currentRevision"] for node in nodes if isinstance(node.get("currentRevision"), int)})
    found = []
    for name in ("config", *(f"config-{revision}" for revision in revisions)):
        item = await objects.get(client, CONFIG_MAP, name, OPENSHIFT_NAMESPACE)
        if item is not None and _has_argument(_parsed(objects.field(item, "data", "config.yaml"))):
            found.append(f"ConfigMap {OPENSHIFT_NAMESPACE}/{name}")
    return found


async def _in_pods(client: ApiClient) -> list[str]:
    found = []
    for namespace, labels in PODS:
        for pod in await objects.list_objects(client, POD, namespace, labels):
            if any(word.split("=")[0] == f"--{ARGUMENT}" for word in _words(pod)):
                found.append(f"Pod {namespace}/{objects.metadata(pod).get('name')}")
    return found


def _words(pod: Json) -> Iterator[str]:
    """Yield every word of every command line; OpenShift's are shell scripts in one argument."""
    for container in objects.items(objects.field(pod, "spec", "containers")):
        for key in ("command", "args"):
            for argument in container.get(key) or ():
                yield from str(argument).split()


def _parsed(text: Any) -> Any:
    import yaml

    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        pass
    try:
        return yaml.safe_load(str(text))
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _has_argument(config: Any) -> bool:
    arguments = config.get("apiServerArguments") if isinstance(config, dict) else None
    return isinstance(arguments, dict) and bool(arguments.get(ARGUMENT))
