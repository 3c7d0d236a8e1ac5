"""Nodes' base configuration from the release's own programs: their input directory, the script, and what they leave.

File names are compiled into the programs, so these are exact. One version goes into all commands: a controller that was
not told it looks for gates of `0.0.1-snapshot` and stops.
"""

import base64
import binascii
import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from umbilical.fault import RenderError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs, NodeBase, Payload
from umbilical.hardway.artifacts.manifests import config_resources as config
from umbilical.hardway.artifacts.manifests.objects import Make, yaml_stream
from umbilical.hardway.artifacts.release import IMAGE_REFERENCES
from umbilical.hardway.config.cluster import Role
from umbilical.hardway.explain.entry import CommandFlag, Topic, TopicKind
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.tree import PUBLIC_MODE, SCRIPT_MODE, SECRET_MODE, AssetTree

STAGE: Final = 4
SCRIPT: Final = "render.sh"
WORK: Final = "work"
"""Below the script's directory; made anew by each run, so that inputs stay as they were rendered."""
ASSETS: Final = "/assets"
"""The work directory as containers see it."""
RENDERED: Final = "mcc-output/machine-configs"
PULL_SECRET_FILE: Final = "openshift-config-secret-pull-secret.yaml"
FEATURE_GATE_FILE: Final = "99_feature-gate.yaml"


@dataclass(frozen=True)
class Step:
    title: str
    image: str
    """Tag of the release."""
    options: tuple[str, ...]
    """Of podman."""
    arguments: tuple[str, ...]
    """Before the flags."""
    flags: tuple[CommandFlag, ...]
    readers: str
    without: str


def steps(payload: Payload) -> tuple[Step, ...]:
    version = CommandFlag(
        "payload-version",
        payload.version,
        "The version whose gates are looked up in the FeatureGate's status; the same in all three commands.",
        'The controller looks for its built-in 0.0.1-snapshot and stops: "missing desired version".',
    )
    return (_config_api(version), _operator(payload, version), _controller(version))


def script(payload: Payload) -> bytes:
    commands = "\n".join(_lines(payload.images[step.image], step) for step in steps(payload)[:2])
    controller = steps(payload)[2]
    text = _SCRIPT.format(
        work=WORK,
        commands=commands,
        controller=_lines(payload.images[controller.image], controller),
        rendered=RENDERED,
    )
    return text.encode()


def _config_api(version: CommandFlag) -> Step:
    return Step(
        "fill in the FeatureGate, and choose definitions",
        "cluster-config-api",
        ("--net=none", "--user", "0"),
        ("/usr/bin/render",),
        (
            CommandFlag("asset-output-dir", f"{ASSETS}/api-bootstrap", "Where the chosen definitions go."),
            CommandFlag(
                "rendered-manifest-dir",
                f"{ASSETS}/manifests",
                "Where the FeatureGate lies that gets its status.",
                "The FeatureGate stays without the release's own list of gates.",
            ),
            CommandFlag(
                "cluster-profile",
                "self-managed-high-availability",
                "Which variants of definitions and gates are meant.",
                "Definitions for clusters of other kinds are chosen too.",
            ),
            version,
        ),
        "The machine-config controller reads the FeatureGate.",
        'The controller says "no featuregate found", or misses the version in its status.',
    )


def _operator(payload: Payload, version: CommandFlag) -> Step:
    manifests = f"{ASSETS}/manifests"
    return Step(
        "make the controller's configuration and the pools",
        "machine-config-operator",
        ("--net=none", "--user", "0"),
        ("bootstrap",),
        (
            CommandFlag("root-ca", f"{ASSETS}/tls/root-ca.crt", "By whom nodes know the machine config server."),
            CommandFlag(
                "kube-ca",
                f"{ASSETS}/tls/kube-apiserver-complete-client-ca-bundle.crt",
                "Becomes /etc/kubernetes/kubelet-ca.crt: whose clients kubelets believe.",
                "Kubelets have no client authority, and do not start.",
            ),
            CommandFlag("config-file", f"{manifests}/cluster-config.yaml", "How many replicas, which networks."),
            CommandFlag("dest-dir", f"{ASSETS}/mco-bootstrap", "Where the results go."),
            CommandFlag("pull-secret", f"{manifests}/{PULL_SECRET_FILE}", "Goes onto every node."),
            CommandFlag(
                "release-image",
                payload.image,
                "By digest: it becomes part of what every node is compared with.",
                "With a tag, the operator in the cluster renders another configuration than the nodes have.",
            ),
            CommandFlag(
                "image-references",
                f"{ASSETS}/image-references",
                "Which images templates name.",
                "The program ends at once and names the image that it cannot find.",
            ),
            version,
            CommandFlag(
                "infra-config-file", f"{manifests}/cluster-infrastructure-02-config.yml", "Platform and topologies."
            ),
            CommandFlag("network-config-file", f"{manifests}/cluster-network-02-config.yml", "Which network plugin."),
            CommandFlag("dns-config-file", f"{manifests}/cluster-dns-02-config.yml", "The cluster's domain."),
            CommandFlag("proxy-config-file", f"{manifests}/cluster-proxy-01-config.yaml", "What goes through a proxy."),
        ),
        "The machine-config controller.",
        'The controller says "no controllerconfig found".',
    )


def _controller(version: CommandFlag) -> Step:
    return Step(
        "merge all machine configs of a pool into one",
        "machine-config-operator",
        ("--net=none", "--user", "0", "--entrypoint", "/usr/bin/machine-config-controller"),
        ("bootstrap",),
        (
            CommandFlag(
                "manifest-dir", f"{ASSETS}/mcc-input", "Configuration, pools, gates, and machine configs of one's own."
            ),
            CommandFlag("dest-dir", f"{ASSETS}/mcc-output", "Where rendered-master-... and rendered-worker-... go."),
            CommandFlag(
                "pull-secret",
                f"{ASSETS}/mcc-input/machineconfigcontroller-pull-secret",
                "Written by the step before, without an ending.",
            ),
            version,
        ),
        "Whoever makes nodes' Ignition files: spec.config.raw is the base that each is merged onto.",
        "There is no base, and nodes lack some eighty files and units.",
    )


def _lines(image: str, step: Step) -> str:
    flags = " \\\n".join(f"    {shlex.quote(str(one))}" for one in step.flags)
    told = " ".join(step.arguments)
    options = " ".join(step.options)
    head = f'podman run --rm {options} -v "$work:{ASSETS}:z" {shlex.quote(image)} {told} \\\n'
    return f"# {step.title[0].upper()}{step.title[1:]}.\n{head}{flags}\n"


_SCRIPT: Final = """\
#!/usr/bin/env bash
# Renders the machine configs of masters and workers with the release's own programs, into
# {work}/{rendered}. podman finds the way into registries by $REGISTRY_AUTH_FILE.
set -euo pipefail

here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
work=$here/{work}

rm -rf -- "$here/{work}"
mkdir -m 0700 -- "$work"
cp -R -- "$here/tls" "$here/manifests" "$here/image-references" "$work/"

{commands}
mkdir -- "$work/mcc-input"
cp -- "$work"/mco-bootstrap/bootstrap/manifests/* "$work/mcc-input/"
cp -- "$work"/manifests/* "$work/image-references" "$work/mcc-input/"

{controller}
for pool in master worker; do
  compgen -G "$work/{rendered}/rendered-$pool-*.yaml" || {{
    echo "no rendered-$pool-*.yaml in $work/{rendered}" >&2
    exit 1
  }}
done
"""

_EXAMPLE: Final = Payload("VERSION", "RELEASE@sha256:DIGEST", {})
_COMPILED_IN: Final = "It looks at a path that is compiled into it, where nothing lies here, and ends."


def _flag_topics() -> tuple[Topic, ...]:
    """One for each name; some steps share one."""
    found: dict[str, Topic] = {}
    for step in steps(_EXAMPLE):
        program = f"{step.image} ({step.title})"
        by_hand = f"podman run --rm IMAGE {' '.join(step.arguments)} --help"
        for flag in step.flags:
            words = (flag.why, program, flag.without or _COMPILED_IN, by_hand, "bootkube.sh gives the same flag.")
            found.setdefault(flag.name, Topic(TopicKind.FLAG, f"--{flag.name}", STAGE, *words))
    return tuple(found.values())


MANIFESTS: Final[Mapping[str, tuple[Make, str]]] = {
    FEATURE_GATE_FILE: (config.feature_gate, "The feature gates of this version."),
    "cluster-config.yaml": (config.cluster_config, "The installer's configuration."),
    "cluster-dns-02-config.yml": (config.dns, "The cluster's domain."),
    "cluster-infrastructure-02-config.yml": (config.infrastructure, "Platform and topologies, status included."),
    "cluster-network-02-config.yml": (config.network, "The networks and their plugin."),
    "cluster-proxy-01-config.yaml": (config.proxy, "That there is no proxy."),
    PULL_SECRET_FILE: (config.pull_secret, "Access to registries, which goes onto every node."),
}
"""Name below manifests/ -> the same objects that are applied, and what they say."""
CERTIFICATES: Final[Mapping[str, tuple[Callable[[Inputs], bytes], str]]] = {
    "root-ca.crt": (
        lambda inputs: inputs.certificates["root-ca"].certificate,
        "By whom nodes know the machine config server.",
    ),
    f"{Bundle.CLIENT_CA.value}.crt": (
        lambda inputs: inputs.certificates.bundle(Bundle.CLIENT_CA),
        "Whose clients kubelets believe.",
    ),
}


def render_machine_config(inputs: Inputs, made: AssetTree) -> AssetTree:
    """Make machine-config/; in the kubernetes profile there is none."""
    tree = AssetTree()
    if not inputs.cluster.is_openshift:
        return tree
    folder = layout.MACHINE_CONFIG
    for name, (pem, _) in sorted(CERTIFICATES.items()):
        tree.add(f"{folder}/tls/{name}", pem(inputs), PUBLIC_MODE)
    for name, (make, _) in sorted(MANIFESTS.items()):
        mode = SECRET_MODE if name == PULL_SECRET_FILE else PUBLIC_MODE
        tree.add(f"{folder}/manifests/{name}", yaml_stream(make(inputs)), mode)
    tree.add(f"{folder}/{IMAGE_REFERENCES}", inputs.payload.manifests[IMAGE_REFERENCES], PUBLIC_MODE)
    tree.add(f"{folder}/{SCRIPT}", script(inputs.payload), SCRIPT_MODE)
    return tree


def _topic(name: str, what: str, by_hand: str) -> Topic:
    return Topic(
        TopicKind.FILE,
        f"{layout.MACHINE_CONFIG}/{name}",
        STAGE,
        what,
        f"{SCRIPT}: the machine-config operator, which expects exactly this name.",
        "The operator ends with the name of the file that it cannot read.",
        by_hand,
        "The installer leaves the same file in /opt/openshift on the bootstrap node.",
    )


def _path(name: str) -> str:
    return f"artifacts/{layout.MACHINE_CONFIG}/{name}"


TOPICS: Final = (
    Topic(
        TopicKind.FILE,
        SCRIPT,
        STAGE,
        "Runs three containers of the release, one after the other: FeatureGate, controller configuration, machine "
        "configs. All are told the same version.",
        "Stage 04; what it makes is the base of every node's Ignition file.",
        "Nodes are built on our own small base, and the machine-config daemon finds them different from its pool.",
        f"cat artifacts/machine-config/{SCRIPT}; ls artifacts/machine-config/{WORK}/{RENDERED}",
        "bootkube.sh runs the same three containers on the bootstrap node.",
    ),
    *_flag_topics(),
    *(_topic(f"manifests/{name}", what, f"cat {_path(f'manifests/{name}')}") for name, (_, what) in MANIFESTS.items()),
    *(
        _topic(f"tls/{name}", what, f"openssl x509 -noout -subject -enddate -in {_path(f'tls/{name}')}")
        for name, (_, what) in CERTIFICATES.items()
    ),
)


RENDERED_FILE: Final = re.compile(r"(?:.*/)?rendered-(master|worker)-[0-9a-z]+\.ya?ml")
_NAME: Final = re.compile(r"rendered-(?:master|worker)-[0-9a-z]+")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_bases(files: Mapping[str, bytes]) -> dict[Role, NodeBase]:
    """Read the rendered MachineConfigs. Raises RenderError: UMB718, not exactly one per pool, or unreadable."""
    found: dict[Role, NodeBase] = {}
    for role in (Role.MASTER, Role.WORKER):
        names = [name for name in sorted(files) if (match := RENDERED_FILE.fullmatch(name)) and match[1] == role.value]
        if len(names) != 1:
            raise _unusable(f"{len(names)} files are called like rendered-{role.value}-0123456789abcdef.yaml")
        found[role] = read_base(files[names[0]])
    return found


def read_base(content: bytes) -> NodeBase:
    """Read one rendered MachineConfig. Raises RenderError: UMB718, it is none."""
    try:
        value = yaml.load(content, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unusable(f"it is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(value, dict) or value.get("kind") != "MachineConfig":
        raise _unusable("its kind is not MachineConfig")
    name = _member(value, "metadata").get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _unusable("its name is not like rendered-master-0123456789abcdef")
    config = _config(_member(value, "spec").get("config"))
    return NodeBase(_json(config), _json(value), name)


def _config(value: Any) -> dict[str, Any]:
    """Find the Ignition config: the field itself, or below `raw`, there as an object, as JSON or as its base64."""
    found = value["raw"] if isinstance(value, dict) and "raw" in value else value
    if isinstance(found, str):
        found = _decoded(found)
    if not isinstance(found, dict) or not isinstance(found.get("ignition"), dict):
        raise _unusable("spec.config holds no Ignition config")
    return found


def _decoded(text: str) -> Any:
    try:
        if not text.lstrip().startswith("{"):
            text = base64.b64decode(text, validate=True).decode()
        return json.loads(text)
    except (ValueError, RecursionError, binascii.Error):
        raise _unusable("spec.config.raw is neither JSON nor its base64") from None


def _member(value: dict[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise _unusable(f"it holds what JSON has no form for: {error}") from None


def _unusable(why: str) -> RenderError:
    remedy = "run machine-config/render.sh again and look at what it prints: umbilical explain 04"
    return RenderError("UMB718", "a rendered MachineConfig cannot be used", why, remedy)
