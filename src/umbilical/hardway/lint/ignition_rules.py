"""Rules about Ignition configs: whether a machine boots from them, and with the right name, address and files."""

import configparser
import json
import posixpath
from collections.abc import Iterator
from typing import Any, Final

from umbilical.bootstrap.verify.documents import dig
from umbilical.fault import IgnitionError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterNode, NodeRole
from umbilical.hardway.lint.facts import OPENSHIFT, LintFacts, LintRule, RuleSeverity, Unreadable, rule
from umbilical.hardway.lint.node_reading import copy_faults, missing_paths
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.ignition.config import File, faults
from umbilical.manifests.tree import SECRET_MODE
from umbilical.pki.pem import holds_key

KEYFILES: Final = "/etc/NetworkManager/system-connections"
HOSTNAME: Final = "/etc/hostname"
NODE_ANNOTATIONS: Final = "/etc/machine-config-daemon/node-annotations.json"
CONTENT: Final = "/etc/mcs-machine-config-content.json"
ENCAPSULATED: Final = "/etc/ignition-machine-config-encapsulated.json"
ANNOTATION: Final = "machineconfiguration.openshift.io"
MAX_BYTES: Final = 4 << 20
_KEY_IN_KUBECONFIG: Final = b"client-key-data:"


def _each(facts: LintFacts, search: Any, nodes: tuple[ClusterNode, ...] | None = None) -> Iterator[str]:
    for node in facts.cluster.nodes if nodes is None else nodes:
        yield from (f"{layout.ignition(node)}: {fault}" for fault in search(facts, node))


def _mode_faults(facts: LintFacts, node: ClusterNode) -> Iterator[str]:
    for file in facts.ignition(node).files:
        secret = _secret(file)
        if secret is not None and file.mode != SECRET_MODE:
            mode = "no mode" if file.mode is None else f"mode 0{file.mode:o}"
            yield f"{file.path} is {secret} and has {mode}, not 0{SECRET_MODE:o}"


def _secret(file: File) -> str | None:
    """Return why only root may read a file, by its content rather than its name; None if others may."""
    if posixpath.dirname(file.path) == KEYFILES:
        return "a keyfile"
    if file.path == layout.PULL_SECRET:
        return "the pull secret"
    try:
        content = file.content()
    except IgnitionError:
        return None
    if holds_key(content):
        return "a key"
    return "a kubeconfig" if _KEY_IN_KUBECONFIG in content else None


def _identity_faults(facts: LintFacts, node: ClusterNode) -> Iterator[str]:
    name = facts.node_file(node, HOSTNAME).decode(errors="replace").strip()
    if name != node.name:
        yield f"{HOSTNAME} is {name!r}, not {node.name!r}"
    family = "ipv4" if node.address.version == 4 else "ipv6"
    keyfile = _keyfile(facts, node)
    settings = keyfile[family] if keyfile.has_section(family) else {}
    address = settings.get("address1", "none")
    wanted = f"{node.address}/{facts.cluster.networks.machine.prefixlen}"
    if address.partition(",")[0] != wanted or settings.get("method") != "manual":
        yield f"the keyfile has the address {address}, not {wanted}"
    if settings.get("gateway") != str(facts.cluster.networks.gateway):
        yield f"the keyfile's gateway is {settings.get('gateway', 'none')}, not {facts.cluster.networks.gateway}"
    yield from _route_faults(facts, node, {value for key, value in settings.items() if key.startswith("route")})


def _route_faults(facts: LintFacts, node: ClusterNode, routes: set[str]) -> Iterator[str]:
    if node.role is NodeRole.BOOTSTRAP:
        return
    for other in facts.cluster.members:
        route = f"{other.pod_network},{other.address}"
        if other.id != node.id and other.pod_network is not None and route not in routes:
            yield f"the keyfile has no route {route} to the pods of {other.id}"


def _keyfile(facts: LintFacts, node: ClusterNode) -> configparser.RawConfigParser:
    found = [file.path for file in facts.ignition(node).files if posixpath.dirname(file.path) == KEYFILES]
    if len(found) != 1:
        raise Unreadable(f"{layout.ignition(node)} writes {len(found)} NetworkManager keyfiles, one is expected")
    parser = configparser.RawConfigParser(delimiters=("=",), strict=False)
    try:
        parser.read_string(facts.node_file(node, found[0]).decode())
    except (configparser.Error, ValueError):
        raise Unreadable(f"{layout.ignition(node)}: {found[0]} is not a keyfile") from None
    return parser


def _first_boot_faults(facts: LintFacts, node: ClusterNode) -> Iterator[str]:
    """Check for the files that the machine-config server would have added."""
    config = facts.ignition(node)
    needed = (layout.KUBELET_CLIENT_CA, layout.BOOTSTRAP_KUBECONFIG, NODE_ANNOTATIONS, CONTENT, ENCAPSULATED)
    missing = [path for path in needed if config.file(path) is None]
    if missing:
        yield from (f"{path} is not written" for path in missing)
        return
    bundle = facts.content(layout.bundle(Bundle.CLIENT_CA.value))
    if facts.node_file(node, layout.KUBELET_CLIENT_CA) != bundle:
        yield f"{layout.KUBELET_CLIENT_CA} is not the bundle {Bundle.CLIENT_CA.value}"
    if config.files[-1].path != ENCAPSULATED:
        yield f"{ENCAPSULATED} is not the last of the files"
    yield from _name_faults(facts, node)


def _name_faults(facts: LintFacts, node: ClusterNode) -> Iterator[str]:
    name = dig(_json(facts, node, CONTENT), "metadata", "name")
    prefix = f"rendered-{node.role.value}-"
    if not str(name).startswith(prefix):
        yield f"{CONTENT} contains {name}, not a {prefix}..."
    annotations = _json(facts, node, NODE_ANNOTATIONS)
    for key in ("currentConfig", "desiredConfig"):
        if annotations.get(f"{ANNOTATION}/{key}") != name:
            yield f"{NODE_ANNOTATIONS}: {key} is {annotations.get(f'{ANNOTATION}/{key}')}, not {name}"
    if annotations.get(f"{ANNOTATION}/state") != "Done":
        yield f"{NODE_ANNOTATIONS}: the state is not Done"
    encapsulated = _json(facts, node, ENCAPSULATED)
    if dig(encapsulated, "metadata", "name") != name:
        yield f"{ENCAPSULATED} contains {dig(encapsulated, 'metadata', 'name')}, not {name}"
    if set(dig(encapsulated, "spec", "config") or {}) != {"ignition"}:
        yield f"{ENCAPSULATED} contains files, which Ignition has already written"


def _paths(facts: LintFacts) -> Iterator[str]:
    yield from _each(facts, lambda facts, node: (one.words for one in missing_paths(facts.ignition(node))))
    yield from _each(facts, copy_faults)


def _sizes(facts: LintFacts) -> Iterator[str]:
    for node in facts.cluster.nodes:
        size = len(facts.content(layout.ignition(node)))
        if size > MAX_BYTES:
            yield f"{layout.ignition(node)} has {size} bytes, more than {MAX_BYTES}"


def _units(facts: LintFacts) -> Iterator[str]:
    return _each(facts, _unit_faults)


def _unit_faults(facts: LintFacts, node: ClusterNode) -> Iterator[str]:
    units = {unit.name: unit for unit in facts.ignition(node).units}
    wanted = ["kubelet.service", *(["bootkube.service"] if node.role is NodeRole.BOOTSTRAP else [])]
    for name in wanted:
        unit = units.get(name)
        if unit is None or not unit.contents:
            yield f"there is no {name}"
        elif not unit.enabled or unit.mask:
            yield f"{name} is not enabled"


def _json(facts: LintFacts, node: ClusterNode, path: str) -> dict[str, Any]:
    try:
        value = json.loads(facts.node_file(node, path))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Unreadable(f"{layout.ignition(node)}: {path} is not a JSON object")
    return value


RULES: Final[tuple[LintRule, ...]] = (
    rule(
        "IGN-01",
        "Ignition accepts every config",
        "Ignition validates the config before it writes files: if a path is there twice, in the base and in the node's "
        "own files, the machine does not boot.",
        "merge files by path; `ignition-validate NODE.ign` reports all errors",
        lambda facts: _each(facts, lambda facts, node: faults(facts.ignition(node))),
    ),
    rule(
        "IGN-02",
        "only root can read secrets on nodes",
        "NetworkManager ignores a keyfile that other users can read, and other users could use keys and kubeconfigs.",
        "set mode 384 (0600) for keyfiles, keys, kubeconfigs and the pull secret",
        lambda facts: _each(facts, _mode_faults),
    ),
    rule(
        "IGN-03",
        "every node gets the address and the name of cluster.yaml",
        "Certificates, CSR policy, load balancer and DNS contain this address and name, and reject others.",
        f"render {HOSTNAME} and the keyfile, with routes to other nodes' pods, from cluster.yaml",
        lambda facts: _each(facts, _identity_faults),
    ),
    rule(
        "IGN-04",
        "masters and workers have the files that the machine-config server would have added",
        "Without kubelet-ca.crt the kubelet exits; without the annotations the machine-config daemon does not know the "
        "node's config; without the encapsulated MachineConfig it never updates the OS.",
        "add the five files for one rendered MachineConfig, the encapsulated one last",
        lambda facts: _each(facts, _first_boot_faults, facts.cluster.members),
        profiles=OPENSHIFT,
    ),
    rule(
        "IGN-05",
        "all files that programs on a node read exist",
        "A static pod with a missing file is in CrashLoopBackOff, and only its log shows the reason.",
        "write the file in the same Ignition config, mount its directory, or use a DirectoryOrCreate volume",
        _paths,
    ),
    rule(
        "IGN-06",
        "Ignition configs are small enough to be served",
        "Large configs take long to fetch, and some platforms have a size limit.",
        "apply objects through the API instead; compress large files (`compression: gzip`)",
        _sizes,
        severity=RuleSeverity.WARNING,
    ),
    rule(
        "IGN-07",
        "kubelet.service, and on the bootstrap node bootkube.service, are enabled",
        "A unit that is not enabled does not start: the machine boots, but no pod runs.",
        "set enabled: true for kubelet.service, and for bootkube.service on the bootstrap node",
        _units,
    ),
)
