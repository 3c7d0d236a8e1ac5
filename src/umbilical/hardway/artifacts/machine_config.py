"""The nodes' base configuration from the release's machine-config programs: input directory, script, and results.

The programs expect exactly these file names. All commands get the same version: without it the controller looks for
feature gates of `0.0.1-snapshot` and exits.
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
from umbilical.hardway.artifacts.inputs import Inputs, NodeBase, ReleasePayload
from umbilical.hardway.artifacts.manifests import config_resources as config
from umbilical.hardway.artifacts.manifests.objects import Make, yaml_stream
from umbilical.hardway.artifacts.release import IMAGE_REFERENCES
from umbilical.hardway.config.cluster import NodeRole
from umbilical.hardway.explain.entry import CommandFlag, Topic, TopicKind
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.tree import PUBLIC_MODE, SCRIPT_MODE, SECRET_MODE, AssetTree

STAGE: Final = 4
SCRIPT: Final = "render.sh"
WORK: Final = "work"
"""Directory beside the script; each run creates it again, so that the inputs stay unchanged."""
ASSETS: Final = "/assets"
"""The work directory as containers see it."""
RENDERED: Final = "mcc-output/machine-configs"
RENDER_FIX: Final = (
    f"install podman and run `umbilical stage run 4`; or copy artifacts/{layout.MACHINE_CONFIG} to a host with podman, "
    f"run its {SCRIPT} there with the pull secret in REGISTRY_AUTH_FILE, and copy its directory {WORK} back"
)
"""What to do where no machine configs are rendered."""
PULL_SECRET_FILE: Final = "openshift-config-secret-pull-secret.yaml"
FEATURE_GATE_FILE: Final = "99_feature-gate.yaml"


@dataclass(frozen=True)
class RenderStep:
    title: str
    image: str
    """Tag of the release."""
    options: tuple[str, ...]
    """Options of podman."""
    arguments: tuple[str, ...]
    """Arguments before the flags."""
    flags: tuple[CommandFlag, ...]
    readers: str
    without: str


def steps(payload: ReleasePayload) -> tuple[RenderStep, ...]:
    version = CommandFlag(
        "payload-version",
        payload.version,
        "Version of the feature gates to use from the FeatureGate's status; the same in all three commands.",
        'The controller looks for its built-in 0.0.1-snapshot and exits: "missing desired version".',
    )
    return (_config_api(version), _operator(payload, version), _controller(version))


def script(payload: ReleasePayload) -> bytes:
    commands = "\n".join(_lines(payload.images[step.image], step) for step in steps(payload)[:2])
    controller = steps(payload)[2]
    text = _SCRIPT.format(
        work=WORK, commands=commands, controller=_lines(payload.images[controller.image], controller), rendered=RENDERED
    )
    return text.encode()


def _config_api(version: CommandFlag) -> RenderStep:
    return RenderStep(
        "fill in the FeatureGate's status, and choose CRDs",
        "cluster-config-api",
        ("--net=none", "--user", "0"),
        ("/usr/bin/render",),
        (
            CommandFlag("asset-output-dir", f"{ASSETS}/api-bootstrap", "Output directory for the chosen CRDs."),
            CommandFlag(
                "rendered-manifest-dir",
                f"{ASSETS}/manifests",
                "Directory of the FeatureGate whose status is filled in.",
                "The FeatureGate has no list of the release's gates.",
            ),
            CommandFlag(
                "cluster-profile",
                "self-managed-high-availability",
                "Cluster profile, which selects the variants of CRDs and gates.",
                "CRDs for other cluster profiles are chosen too.",
            ),
            version,
        ),
        "The machine-config controller reads the FeatureGate.",
        'The controller reports "no featuregate found", or does not find the version in its status.',
    )


def _operator(payload: ReleasePayload, version: CommandFlag) -> RenderStep:
    manifests = f"{ASSETS}/manifests"
    return RenderStep(
        "write the ControllerConfig and the MachineConfigPools",
        "machine-config-operator",
        ("--net=none", "--user", "0"),
        ("bootstrap",),
        (
            CommandFlag(
                "root-ca", f"{ASSETS}/tls/root-ca.crt", "CA with which nodes verify the machine-config server."
            ),
            CommandFlag(
                "kube-ca",
                f"{ASSETS}/tls/kube-apiserver-complete-client-ca-bundle.crt",
                "Client CA of the kubelets; it becomes /etc/kubernetes/kubelet-ca.crt.",
                "Kubelets have no client CA and do not start.",
            ),
            CommandFlag(
                "config-file", f"{manifests}/cluster-config.yaml", "Install config with replica counts and networks."
            ),
            CommandFlag("dest-dir", f"{ASSETS}/mco-bootstrap", "Output directory."),
            CommandFlag(
                "pull-secret", f"{manifests}/{PULL_SECRET_FILE}", "Pull secret, which is written to every node."
            ),
            CommandFlag(
                "release-image",
                payload.image,
                "Release image by digest; it is part of the configuration that nodes are compared with.",
                "With a tag, the operator in the cluster renders another configuration than the nodes have.",
            ),
            CommandFlag(
                "image-references",
                f"{ASSETS}/image-references",
                "Images for the operator's templates.",
                "The program exits at once and names the missing image.",
            ),
            version,
            CommandFlag(
                "infra-config-file", f"{manifests}/cluster-infrastructure-02-config.yml", "Platform and topologies."
            ),
            CommandFlag(
                "network-config-file", f"{manifests}/cluster-network-02-config.yml", "Network plugin and networks."
            ),
            CommandFlag("dns-config-file", f"{manifests}/cluster-dns-02-config.yml", "The cluster's domain."),
            CommandFlag(
                "proxy-config-file", f"{manifests}/cluster-proxy-01-config.yaml", "Proxy for outgoing connections."
            ),
        ),
        "The machine-config controller.",
        'The controller reports "no controllerconfig found".',
    )


def _controller(version: CommandFlag) -> RenderStep:
    return RenderStep(
        "merge the MachineConfigs of each pool into one",
        "machine-config-operator",
        ("--net=none", "--user", "0", "--entrypoint", "/usr/bin/machine-config-controller"),
        ("bootstrap",),
        (
            CommandFlag(
                "manifest-dir", f"{ASSETS}/mcc-input", "Input: ControllerConfig, pools, gates and MachineConfigs."
            ),
            CommandFlag("dest-dir", f"{ASSETS}/mcc-output", "Output directory for the rendered MachineConfigs."),
            CommandFlag(
                "pull-secret",
                f"{ASSETS}/mcc-input/machineconfigcontroller-pull-secret",
                "Pull secret, a file that the previous command wrote.",
            ),
            version,
        ),
        "Stage 08: spec.config.raw is the base of each node's Ignition file.",
        "There is no base, and nodes lack about eighty files and units.",
    )


def _lines(image: str, step: RenderStep) -> str:
    flags = " \\\n".join(f"    {shlex.quote(str(one))}" for one in step.flags)
    arguments = " ".join(step.arguments)
    options = " ".join(step.options)
    head = f'podman run --rm {options} -v "$work:{ASSETS}:z" {shlex.quote(image)} {arguments} \\\n'
    return f"# {step.title[0].upper()}{step.title[1:]}.\n{head}{flags}\n"


_SCRIPT: Final = """\
#!/usr/bin/env bash
# Renders the MachineConfigs of masters and workers with the release's own programs, into
# {work}/{rendered}. podman reads registry credentials from $REGISTRY_AUTH_FILE.
set -euo pipefail

# Before the results of an earlier run are deleted.
command -v podman >/dev/null || {{
  echo "podman is not installed" >&2
  exit 1
}}
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

_EXAMPLE: Final = ReleasePayload("VERSION", "RELEASE@sha256:DIGEST", {})
_COMPILED_IN: Final = "The program uses its built-in default path, which does not exist here, and exits."


def _flag_topics() -> tuple[Topic, ...]:
    """Return one topic per flag name; some steps share flags."""
    found: dict[str, Topic] = {}
    for step in steps(_EXAMPLE):
        program = f"{step.image} ({step.title})"
        by_hand = f"podman run --rm IMAGE {' '.join(step.arguments)} --help"
        for flag in step.flags:
            words = (flag.why, program, flag.without or _COMPILED_IN, by_hand, "bootkube.sh sets the same flag.")
            found.setdefault(flag.name, Topic(TopicKind.FLAG, f"--{flag.name}", STAGE, *words))
    return tuple(found.values())


MANIFESTS: Final[Mapping[str, tuple[Make, str]]] = {
    FEATURE_GATE_FILE: (config.feature_gate, "The feature gates of this version."),
    "cluster-config.yaml": (config.cluster_config, "The installer's install-config."),
    "cluster-dns-02-config.yml": (config.dns, "The cluster's domain."),
    "cluster-infrastructure-02-config.yml": (config.infrastructure, "Platform and topologies, with status."),
    "cluster-network-02-config.yml": (config.network, "The networks and the network plugin."),
    "cluster-proxy-01-config.yaml": (config.proxy, "An empty proxy configuration."),
    PULL_SECRET_FILE: (config.pull_secret, "Credentials for image registries, which are written to every node."),
}
"""Name below manifests/ -> the same objects that are applied, and their explanation."""
CERTIFICATES: Final[Mapping[str, tuple[Callable[[Inputs], bytes], str]]] = {
    "root-ca.crt": (
        lambda inputs: inputs.certificates["root-ca"].certificate,
        "The CA with which nodes verify the machine-config server.",
    ),
    f"{Bundle.CLIENT_CA.value}.crt": (
        lambda inputs: inputs.certificates.bundle(Bundle.CLIENT_CA),
        "The client CA bundle of the kubelets.",
    ),
}


def render_machine_config(inputs: Inputs, made: AssetTree) -> AssetTree:
    """Render machine-config/; the kubernetes profile has none."""
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
        "The operator exits and names the file that it cannot read.",
        by_hand,
        "The installer writes the same file to /opt/openshift on the bootstrap node.",
    )


def _path(name: str) -> str:
    return f"artifacts/{layout.MACHINE_CONFIG}/{name}"


TOPICS: Final = (
    Topic(
        TopicKind.FILE,
        SCRIPT,
        STAGE,
        "Runs three containers of the release one after the other: for the FeatureGate, the ControllerConfig and the "
        "MachineConfigs. All get the same version.",
        "Stage 04; its result is the base of every node's Ignition file.",
        "Nodes get our own small base, and the machine-config daemon reports that they differ from their pool.",
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


def read_bases(files: Mapping[str, bytes]) -> dict[NodeRole, NodeBase]:
    """Read the rendered MachineConfigs. Raises RenderError: UMB718, a pool has none or several, or one is invalid."""
    found: dict[NodeRole, NodeBase] = {}
    for role in (NodeRole.MASTER, NodeRole.WORKER):
        names = [name for name in sorted(files) if (match := RENDERED_FILE.fullmatch(name)) and match[1] == role.value]
        if len(names) != 1:
            raise _unusable(f"{len(names)} files match rendered-{role.value}-*.yaml, one is expected")
        found[role] = read_base(files[names[0]])
    return found


def read_base(content: bytes) -> NodeBase:
    """Read one rendered MachineConfig. Raises RenderError: UMB718, it is not a valid one."""
    try:
        value = yaml.load(content, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unusable(f"it is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(value, dict) or value.get("kind") != "MachineConfig":
        raise _unusable("its kind is not MachineConfig")
    name = _member(value, "metadata").get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _unusable("its name does not have the form rendered-master-0123456789abcdef")
    config = _config(_member(value, "spec").get("config"))
    return NodeBase(_json(config), _json(value), name)


def _config(value: Any) -> dict[str, Any]:
    """Return the Ignition config: the field itself, or `raw` below it as an object, as JSON or as base64 of JSON."""
    found = value["raw"] if isinstance(value, dict) and "raw" in value else value
    if isinstance(found, str):
        found = _decoded(found)
    if not isinstance(found, dict) or not isinstance(found.get("ignition"), dict):
        raise _unusable("spec.config does not contain an Ignition config")
    return found


def _decoded(text: str) -> Any:
    try:
        if not text.lstrip().startswith("{"):
            text = base64.b64decode(text, validate=True).decode()
        return json.loads(text)
    except (ValueError, RecursionError, binascii.Error):
        raise _unusable("spec.config.raw is neither JSON nor base64 of JSON") from None


def _member(value: dict[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise _unusable(f"it has a value that JSON cannot represent: {error}") from None


def _unusable(why: str) -> RenderError:
    remedy = "run machine-config/render.sh again and read its output: umbilical explain 04"
    return RenderError("UMB718", "a rendered MachineConfig was not read", why, remedy)
