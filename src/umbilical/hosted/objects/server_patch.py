"""The server put beside a kube-apiserver: as a changed manifest, or as patches for one that is elsewhere.

Doing it twice is the same as once. Everything that is not the tunnel's stays as it was.
"""

import copy
import posixpath
from collections.abc import Sequence
from typing import Any, Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.kube_apiserver_manifest import Manifest, conflict, flag_value, refused
from umbilical.hosted.objects.no_proxy_list import for_kube_apiserver
from umbilical.hosted.objects.server_sidecar import GRACE_SECONDS, client_mounts, pod_volumes, server_container
from umbilical.hosted.objects.spec import HostedSpec, Workload
from umbilical.hosted.objects.static_pod_files import static_volumes
from umbilical.manifests.objects import Object

EGRESS_FLAG: Final = "--egress-selector-config-file"
EGRESS_PATH: Final = f"{names.EGRESS_DIRECTORY}/{names.EGRESS_KEY}"
_ROUTING_FLAG: Final = "--enable-aggregator-routing"
_ADDRESS_FLAG: Final = "--kubelet-preferred-address-types"
_FIRST_CONTAINER: Final = "/spec/template/spec/containers/0"
_NO_PROXY: Final = ("NO_PROXY", "no_proxy")
_PROXY: Final = ("HTTPS_PROXY", "https_proxy")


def patched(manifest: Manifest, spec: HostedSpec) -> Object:
    """Return a copy of the manifest with the server, and with kube-apiserver asking it for the hosted cluster.

    Raises:
        RenderError: something else is where the tunnel's part must be.
    """
    changed = Manifest(copy.deepcopy(manifest.document), manifest.workload, manifest.index)
    flags = new_flags(manifest, spec)
    if flags:
        changed.container[changed.arguments_key] += flags
    for name, value in no_proxy_variables(manifest, spec).items():
        _set_variable(changed.container, name, value)
    _merge(changed.container, "volumeMounts", client_mounts(), "mountPath")
    _merge(changed.pod, "volumes", volumes(spec), "name")
    changed.pod["containers"] = [
        *(one for one in changed.pod["containers"] if one.get("name") != names.SERVER),
        server_container(spec),
    ]
    changed.pod["terminationGracePeriodSeconds"] = _grace_seconds(manifest)
    return changed.document


def strategic_patch(spec: HostedSpec) -> Object:
    """Return all but flags, as a strategic merge patch: that kind would replace the whole list of them."""
    main: Object = {"name": spec.kube_apiserver.container, "volumeMounts": client_mounts()}
    if spec.management_proxy.is_set:
        value = for_kube_apiserver(spec, spec.management_proxy.no_proxy)
        main["env"] = [{"name": _NO_PROXY[0], "value": value}]
    pod = {
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "containers": [main, server_container(spec)],
        "volumes": pod_volumes(spec),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": Workload.DEPLOYMENT.value,
        "metadata": {"name": spec.kube_apiserver.name, "namespace": spec.namespace},
        "spec": {"template": {"spec": pod}},
    }


def flag_patch(spec: HostedSpec) -> list[Object]:
    """Return flags as a JSON patch, which can add to a list. It knows places and no names, so it looks first."""
    look = {"op": "test", "path": f"{_FIRST_CONTAINER}/name", "value": spec.kube_apiserver.container}
    added = [{"op": "add", "path": f"{_FIRST_CONTAINER}/args/-", "value": flag} for flag in wanted_flags(spec)]
    return [look, *added] if added else []


def wanted_flags(spec: HostedSpec) -> list[str]:
    flags = [f"{EGRESS_FLAG}={EGRESS_PATH}"] if spec.kube_apiserver.has_egress_flag else []
    if spec.kube_apiserver.has_egress_flag and spec.aggregated_apis:
        # Else it dials the Service's own address, which is nobody's in the management cluster.
        flags.append(f"{_ROUTING_FLAG}=true")
    if spec.kube_apiserver.has_egress_flag:
        # By name an agent would have to find a node, and its resolver need not know nodes.
        flags.append(f"{_ADDRESS_FLAG}=InternalIP")
    return flags


def new_flags(manifest: Manifest, spec: HostedSpec) -> list[str]:
    """Return the flags that are not there yet.

    Raises:
        RenderError: one is there with a value that cannot work.
    """
    found = []
    for wanted in wanted_flags(spec):
        flag, _, value = wanted.partition("=")
        given = flag_value(manifest.container, flag)
        if given is None:
            found.append(wanted)
        elif given != value and flag != _ADDRESS_FLAG:
            raise conflict(f"it has {flag}={given} already, and {value} is needed")
    return found


def no_proxy_variables(manifest: Manifest, spec: HostedSpec) -> dict[str, str]:
    """Return NO_PROXY as it must be where kube-apiserver has a proxy: else that one would be asked for the servers."""
    given = _variables(manifest.container)
    present = [name for name in _NO_PROXY if name in given]
    if not present and not any(name in given for name in _PROXY):
        return {}
    found = {}
    for name in present or _NO_PROXY[:1]:
        entries = given.get(name, "").split(",")
        wanted = for_kube_apiserver(spec, entries)
        if set(wanted.split(",")) != {entry.strip() for entry in entries}:
            found[name] = wanted
    return found


def volumes(spec: HostedSpec) -> list[Object]:
    return static_volumes(spec) if spec.kube_apiserver.workload is Workload.STATIC_POD else pod_volumes(spec)


def _grace_seconds(manifest: Manifest) -> int:
    given = manifest.pod.get("terminationGracePeriodSeconds")
    return max(GRACE_SECONDS, given) if isinstance(given, int) else GRACE_SECONDS


def _merge(parent: Object, key: str, wanted: Sequence[Object], by: str) -> None:
    """Add entries to a list that may not be there yet; one of the same key must be the same entry."""
    entries = _entries(parent, key, by)
    for entry in wanted:
        there = next((one for one in entries if _normal(one[by]) == _normal(entry[by])), None)
        if there is None:
            entries.append(entry)
        elif there != entry:
            raise conflict(f"its {key} have another {entry[by]} already")
    parent[key] = entries


def _normal(value: str) -> str:
    return posixpath.normpath(value) if value.startswith("/") else value


def _entries(parent: Object, key: str, by: str) -> list[Object]:
    entries = parent.get(key) or []
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get(by), str) for entry in entries
    ):
        raise refused(f"its {key} cannot be read")
    return entries


def _variables(container: Object) -> dict[str, str]:
    """Return variables with a plain value; of others nothing can be told here."""
    found: dict[str, Any] = {entry["name"]: entry.get("value", "") for entry in _entries(container, "env", "name")}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _set_variable(container: Object, name: str, value: str) -> None:
    entries = _entries(container, "env", "name")
    others = [entry for entry in entries if entry["name"] != name]
    container["env"] = [*others, {"name": name, "value": value}]
