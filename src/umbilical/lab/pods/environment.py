"""Variables of a container, and `$(NAME)` in its command and arguments, as the kubelet expands them."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from umbilical.fault import PodError
from umbilical.lab.pods.spec import Pod

_REFERENCE: Final = re.compile(r"\$\$|\$\(([^()]*)\)")
_BY_KEY: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Put values in; what is unknown stays as it is written, and `$$` is one dollar sign."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return _REFERENCE.sub(value, text)


def expand_all(texts: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(expand(text, variables) for text in texts)


def pod_field(pod: Pod, path: str, node: str, node_ip: str, addresses: Sequence[str]) -> str:
    """Look a field of the downward API up.

    Raises:
        PodError: UMB831, there is no such field.
    """
    known = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "metadata.labels": _lines(pod.labels),
        "metadata.annotations": _lines(pod.annotations),
        "spec.nodeName": node,
        "spec.serviceAccountName": pod.service_account,
        "status.hostIP": node_ip,
        "status.hostIPs": node_ip,
        "status.podIP": addresses[0] if addresses else "",
        "status.podIPs": ",".join(addresses),
    }
    if path in known:
        return known[path]
    if found := _BY_KEY.fullmatch(path):
        return (pod.labels if found[1] == "labels" else pod.annotations).get(found[2], "")
    why = f"a pod has no field {path!r} that its containers could be told"
    raise PodError("UMB831", f"a fieldRef of {pod.title} cannot be used", why, "see the API's downward fields")


def _lines(table: Mapping[str, str]) -> str:
    return "\n".join(f'{key}="{value}"' for key, value in sorted(table.items()))
