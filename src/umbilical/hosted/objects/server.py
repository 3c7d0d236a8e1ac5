"""The server's container beside kube-apiserver, with HyperShift's flags, probes and requests and fixes to them; as a
changed manifest, or as patches if the manifest is not given.
"""

import copy
import posixpath
from collections.abc import Sequence
from typing import Any, Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.components import for_kube_apiserver
from umbilical.hosted.objects.control_plane_files import static_volumes
from umbilical.hosted.objects.forms import UNPRIVILEGED, config_map_volume, mount, probe, requests, secret_volume
from umbilical.hosted.objects.kube_apiserver_manifest import Manifest, conflict, flag_value, refused
from umbilical.hosted.objects.spec import HostedSpec, ServerCount, TlsProfile, Workload
from umbilical.manifests.objects import Object

PROGRAM: Final = "/usr/bin/proxy-server"
# kube-apiserver serves for this long after SIGTERM (shutdown-delay-duration), and needs its server until then.
STOP_DELAY_SECONDS: Final = 70
# The rest of the pod's grace period, minus a few seconds.
DRAIN_SECONDS: Final = 60
GRACE_SECONDS: Final = 135
# An agent's own dial timeout is 5 s; an agent without an answer after this hangs.
DIAL_SECONDS: Final = 15
LEASE_LABEL: Final = "k8s-app=konnectivity-server"
KUBECONFIG_DIRECTORY: Final = "/etc/konnectivity/kubeconfig"
KUBECONFIG_KEY: Final = "kubeconfig"
_MIN_VERSIONS: Final = {TlsProfile.INTERMEDIATE: "VersionTLS12", TlsProfile.MODERN: "VersionTLS13"}
_INTERMEDIATE_SUITES: Final = tuple(
    f"TLS_ECDHE_{signer}_WITH_{cipher}"
    for cipher in ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256")
    for signer in ("ECDSA", "RSA")
)


def server_container(spec: HostedSpec) -> Object:
    return {
        "name": names.SERVER,
        "image": spec.images.server,
        "imagePullPolicy": "IfNotPresent",
        "command": [PROGRAM],
        "args": server_flags(spec),
        # Not /readyz: it requires an agent, and agents need a ready kube-apiserver: neither would become ready.
        "readinessProbe": probe("/healthz", names.HEALTH_PORT, periodSeconds=10, timeoutSeconds=5, failureThreshold=3),
        "livenessProbe": probe(
            "/healthz",
            names.HEALTH_PORT,
            initialDelaySeconds=120,
            periodSeconds=60,
            timeoutSeconds=30,
            failureThreshold=3,
        ),
        # By the kubelet: neither our image nor upstream's has a shell or a program that waits. Needs Kubernetes 1.30.
        "lifecycle": {"preStop": {"sleep": {"seconds": STOP_DELAY_SECONDS}}},
        "resources": requests("10m", "50Mi"),
        "securityContext": {**UNPRIVILEGED, **_user(spec)},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(spec),
    }


def _user(spec: HostedSpec) -> Object:
    """A static pod's keys are files that only root may read; without capabilities root may not do much more."""
    return {"runAsUser": 0} if spec.kube_apiserver.workload is Workload.STATIC_POD else {}


def server_flags(spec: HostedSpec) -> list[str]:
    cluster, server, ca = names.SERVER_CLUSTER_DIRECTORY, names.SERVER_SERVER_DIRECTORY, names.SERVER_CA_DIRECTORY
    return [
        "--logtostderr=true",
        "--log-file-max-size=0",
        f"--cluster-cert={cluster}/tls.crt",
        f"--cluster-key={cluster}/tls.key",
        # Without it anybody who reaches the port is accepted as an agent (CVE-2026-16242). Not the clients' CA: agents'
        # keys are in the hosted cluster, where the tenant can read them.
        f"--cluster-ca-cert={ca}/{names.AGENT_CA_KEY}",
        f"--server-cert={server}/tls.crt",
        f"--server-key={server}/tls.key",
        f"--server-ca-cert={ca}/{names.CLIENT_CA_KEY}",
        f"--server-port={names.FRONTEND_PORT}",
        f"--agent-port={names.AGENT_PORT}",
        f"--health-port={names.HEALTH_PORT}",
        f"--admin-port={names.ADMIN_PORT}",
        "--mode=http-connect",
        "--proxy-strategies=destHost,defaultRoute",
        "--keepalive-time=30s",
        "--frontend-keepalive-time=30s",
        # HyperShift's server stops at once and breaks open tunnels.
        f"--graceful-shutdown-timeout={DRAIN_SECONDS}s",
        f"--backend-dial-timeout={DIAL_SECONDS}s",
        # Also with leases: for agents that cannot reach the hosted API.
        f"--server-count={spec.replicas}",
        *_tls_flags(spec.tls_profile),
        *(_lease_flags() if spec.server_count is ServerCount.LEASES else ()),
        *(_identity_flags() if spec.is_ours else ()),
    ]


def _tls_flags(profile: TlsProfile) -> list[str]:
    version = f"--tls-min-version={_MIN_VERSIONS[profile]}"
    # TLS 1.3 has no suites to choose.
    return [version] if profile is TlsProfile.MODERN else [version, f"--cipher-suites={','.join(_INTERMEDIATE_SUITES)}"]


def _lease_flags() -> list[str]:
    return [
        "--enable-lease-controller=true",
        f"--lease-namespace={names.HOSTED_NAMESPACE}",
        f"--lease-label={LEASE_LABEL}",
        f"--kubeconfig={KUBECONFIG_DIRECTORY}/{KUBECONFIG_KEY}",
    ]


def _identity_flags() -> list[str]:
    """Flags of our server only: upstream's trusts the identifiers that an agent announces."""
    return [
        f"--agent-identities={names.IDENTITIES_DIRECTORY}/{names.IDENTITIES_KEY}",
        f"--frontend-identities=CN={names.CN_CLIENT}",
    ]


def _mounts(spec: HostedSpec) -> list[Object]:
    return [
        mount("cluster-certs", names.SERVER_CLUSTER_DIRECTORY),
        mount("server-certs", names.SERVER_SERVER_DIRECTORY),
        mount("konnectivity-ca", names.SERVER_CA_DIRECTORY),
        *([mount("agent-identities", names.IDENTITIES_DIRECTORY)] if spec.is_ours else []),
        *([mount("lease-kubeconfig", KUBECONFIG_DIRECTORY)] if spec.server_count is ServerCount.LEASES else []),
        {"name": names.TMP_VOLUME, "mountPath": "/tmp"},
    ]


def client_mounts() -> list[Object]:
    """Mounts of kube-apiserver's own container, for its connection to the server."""
    return [
        mount("egress-selector-config", names.EGRESS_DIRECTORY),
        mount("konnectivity-client", names.CLIENT_PAIR_DIRECTORY),
        mount("konnectivity-ca", names.CLIENT_CA_DIRECTORY),
    ]


def pod_volumes(spec: HostedSpec) -> list[Object]:
    """Volumes of both containers, from Secrets and ConfigMaps."""
    secrets = {
        "cluster-certs": names.SECRET_CLUSTER,
        "server-certs": names.SECRET_SERVER,
        "konnectivity-client": names.SECRET_CLIENT,
    }
    maps = {"konnectivity-ca": names.CA_BUNDLE, "egress-selector-config": names.EGRESS_CONFIG_MAP}
    if spec.is_ours:
        maps["agent-identities"] = names.IDENTITIES_CONFIG_MAP
    if spec.server_count is ServerCount.LEASES:
        secrets["lease-kubeconfig"] = spec.leases.kubeconfig_secret
    return [
        *(secret_volume(name, of) for name, of in secrets.items()),
        *(config_map_volume(name, of) for name, of in maps.items()),
        {"name": names.TMP_VOLUME, "emptyDir": {}},
    ]


EGRESS_FLAG: Final = "--egress-selector-config-file"
EGRESS_PATH: Final = f"{names.EGRESS_DIRECTORY}/{names.EGRESS_KEY}"
_ROUTING_FLAG: Final = "--enable-aggregator-routing"
_ADDRESS_FLAG: Final = "--kubelet-preferred-address-types"
_FIRST_CONTAINER: Final = "/spec/template/spec/containers/0"
_NO_PROXY: Final = ("NO_PROXY", "no_proxy")
_PROXY: Final = ("HTTPS_PROXY", "https_proxy")


def patched(manifest: Manifest, spec: HostedSpec) -> Object:
    """Return a copy of the manifest with the server, and with kube-apiserver configured to use it.

    Raises RenderError: the manifest already has a different entry of the same name.
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
    """Return everything except flags as a strategic merge patch, which would replace the whole list of flags."""
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
    """Return flags as a JSON patch, which can append to a list. It uses indexes, so it tests the container's name."""
    test = {"op": "test", "path": f"{_FIRST_CONTAINER}/name", "value": spec.kube_apiserver.container}
    added = [{"op": "add", "path": f"{_FIRST_CONTAINER}/args/-", "value": flag} for flag in wanted_flags(spec)]
    return [test, *added] if added else []


def wanted_flags(spec: HostedSpec) -> list[str]:
    flags = [f"{EGRESS_FLAG}={EGRESS_PATH}"] if spec.kube_apiserver.has_egress_flag else []
    if spec.kube_apiserver.has_egress_flag and spec.aggregated_apis:
        # Without it kube-apiserver dials the Service's ClusterIP, which does not exist in the management cluster.
        flags.append(f"{_ROUTING_FLAG}=true")
    if spec.kube_apiserver.has_egress_flag:
        # The agents' resolver may not know the names of nodes.
        flags.append(f"{_ADDRESS_FLAG}=InternalIP")
    return flags


def new_flags(manifest: Manifest, spec: HostedSpec) -> list[str]:
    """Return the missing flags. Raises RenderError: a flag is set to a conflicting value."""
    found = []
    for wanted in wanted_flags(spec):
        flag, _, value = wanted.partition("=")
        given = flag_value(manifest.container, flag)
        if given is None:
            found.append(wanted)
        elif given != value and flag != _ADDRESS_FLAG:
            raise conflict(f"it has {flag}={given}, and the tunnel needs {value}")
    return found


def no_proxy_variables(manifest: Manifest, spec: HostedSpec) -> dict[str, str]:
    """Return the required NO_PROXY if kube-apiserver has a proxy, so that it dials the servers directly."""
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
    """Add entries to a list, which may be missing; an existing entry with the same key must be equal."""
    entries = _entries(parent, key, by)
    for entry in wanted:
        there = next((one for one in entries if _normal(one[by]) == _normal(entry[by])), None)
        if there is None:
            entries.append(entry)
        elif there != entry:
            raise conflict(f"its {key} already have a different {entry[by]}")
    parent[key] = entries


def _normal(value: str) -> str:
    return posixpath.normpath(value) if value.startswith("/") else value


def _entries(parent: Object, key: str, by: str) -> list[Object]:
    entries = parent.get(key) or []
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get(by), str) for entry in entries
    ):
        raise refused(f"its {key} are invalid")
    return entries


def _variables(container: Object) -> dict[str, str]:
    """Return variables with a plain value; valueFrom is not resolved here."""
    found: dict[str, Any] = {entry["name"]: entry.get("value", "") for entry in _entries(container, "env", "name")}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _set_variable(container: Object, name: str, value: str) -> None:
    entries = _entries(container, "env", "name")
    others = [entry for entry in entries if entry["name"] != name]
    container["env"] = [*others, {"name": name, "value": value}]
