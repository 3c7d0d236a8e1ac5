"""Rules about the machine-config commands and their inputs, and about image digests."""

import re
from collections.abc import Iterator
from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.machine_config import RENDER_FIX
from umbilical.hardway.lint.applied import (
    REFERENCES,
    SCRIPT,
    container_images,
    podman_commands,
    references,
    release_version,
    text,
    value_of,
)
from umbilical.hardway.lint.facts import OPENSHIFT, LintFacts, LintRule, Unreadable, rule

BY_DIGEST: Final = re.compile(r"\S+@sha256:[0-9a-f]{64}")
CONTROLLER: Final = "machine-config-controller"
MANIFESTS: Final = f"{layout.MACHINE_CONFIG}/manifests"
OUTPUT: Final = f"{layout.MACHINE_CONFIG}/work/mcc-output/machine-configs"
POOLS: Final = ("master", "worker")
TEMPLATE_IMAGES: Final = (
    *("machine-config-operator", "keepalived-ipfailover", "coredns", "baremetal-runtimecfg", "oauth-proxy"),
    *("kube-rbac-proxy", "pod", "haproxy-router"),
)
"""Tags that the machine-config operator's templates need."""
BASE_FILES: Final = ("/usr/local/bin/configure-ovs.sh",)
BASE_UNITS: Final = ("nodeip-configuration.service", "ovs-configuration.service")
"""Parts of every rendered MachineConfig without which a member has no network of OVN-Kubernetes."""
_MOUNT: Final = "/assets/"
_MADE: Final = ("mco-bootstrap", "mcc-input", "mcc-output", "api-bootstrap")


def _images(facts: LintFacts) -> Iterator[str]:
    for path, image in container_images(facts):
        if not BY_DIGEST.fullmatch(image):
            yield f"{path}: image {image} has no digest"
    for name, image in references(facts):
        if not BY_DIGEST.fullmatch(image):
            yield f"{REFERENCES}: image {image} of {name} has no digest"
    for command in podman_commands(facts):
        if not any(BY_DIGEST.fullmatch(word) for word in command if not word.startswith("-")):
            yield f"{SCRIPT}: a container's image has no digest"
    actual = [value_of(command, "release-image") for command in podman_commands(facts)]
    if not any(BY_DIGEST.fullmatch(image) for image in actual):
        yield f"{SCRIPT}: --release-image has no digest"


def _operator(facts: LintFacts) -> tuple[int, list[str]]:
    for place, command in enumerate(podman_commands(facts)):
        if "bootstrap" in command and value_of(command, "release-image"):
            return place, command
    raise Unreadable(f"{SCRIPT} does not run the machine-config operator")


def _controller(facts: LintFacts) -> tuple[int, list[str]]:
    for place, command in enumerate(podman_commands(facts)):
        if "bootstrap" in command and value_of(command, "entrypoint").endswith(CONTROLLER):
            return place, command
    raise Unreadable(f"{SCRIPT} does not run the {CONTROLLER}")


def _commands(facts: LintFacts) -> Iterator[str]:
    (first, operator), (second, controller) = _operator(facts), _controller(facts)
    if first > second:
        yield f"{SCRIPT}: the {CONTROLLER} runs before the operator, but reads its results"
    version = release_version(facts)
    for name, command in (("the operator", operator), (f"the {CONTROLLER}", controller)):
        actual = value_of(command, "payload-version")
        if actual != version:
            yield f"{SCRIPT}: {name} has --payload-version {actual or 'not set'}, the release is {version}"
    for pool in POOLS if any(facts.below(OUTPUT)) else ():
        if not any(f"/rendered-{pool}-" in asset.path for asset in facts.below(OUTPUT)):
            yield f"{OUTPUT} has no rendered-{pool}-*.yaml"


def _inputs(facts: LintFacts) -> Iterator[str]:
    _, operator = _operator(facts)
    for word in operator:
        _, _, path = word.partition(f"={_MOUNT}")
        if path and path.split("/")[0] not in _MADE and f"{layout.MACHINE_CONFIG}/{path}" not in facts.assets:
            yield f"{SCRIPT} refers to {_MOUNT}{path}, but {layout.MACHINE_CONFIG}/{path} is missing"
    kinds = {text(one, "kind") for asset in facts.below(MANIFESTS) for one in facts.documents(asset.path)}
    yield from (
        f"{MANIFESTS} has no {kind}" for kind in ("FeatureGate", "Infrastructure", "Secret") if kind not in kinds
    )
    tags = dict(references(facts))
    yield from (f"{REFERENCES} lacks {tag}" for tag in TEMPLATE_IMAGES if tag not in tags)
    yield from _copies(facts)


def _copies(facts: LintFacts) -> Iterator[str]:
    """Check that the script copies all inputs of the controller before it runs."""
    _, controller = _controller(facts)
    folder = value_of(controller, "manifest-dir").removeprefix(_MOUNT)
    secret = value_of(controller, "pull-secret").removeprefix(_MOUNT)
    if not folder or not secret.startswith(f"{folder}/"):
        yield f"{SCRIPT}: the {CONTROLLER} has no manifest directory, or its pull secret is not in it"
    head = facts.text(SCRIPT).partition(CONTROLLER)[0]
    copied = " ".join(line for line in head.splitlines() if line.startswith("cp ") and line.endswith(f'/{folder}/"'))
    parts = {
        "mco-bootstrap/bootstrap/manifests/*": "ControllerConfig, pools and pull secret",
        "/manifests/*": "FeatureGate and the cluster's configuration",
        "image-references": "the images",
    }
    for part, what in parts.items():
        # The path of the operator's manifests has the same ending as ours.
        words = [word for word in copied.replace('"', "").split() if word.endswith(part)]
        if not words or (part == "/manifests/*" and all("mco-bootstrap" in word for word in words)):
            yield f"{SCRIPT} does not copy {part} ({what}) into {folder}"


def _bases(facts: LintFacts) -> Iterator[str]:
    for node in facts.cluster.members:
        config = facts.ignition(node)
        units = {unit.name for unit in config.units}
        missing = [path for path in BASE_FILES if config.file(path) is None]
        missing += [name for name in BASE_UNITS if name not in units]
        if missing:
            yield f"{layout.ignition(node)} lacks {', '.join(missing)}"


RULES: Final[tuple[LintRule, ...]] = (
    rule(
        "CFG-05",
        "every image has a digest, including the release image",
        "A tag may refer to another image later, and the version operator reports another desired image than the one "
        "that it runs.",
        "use the images of image-references, and set release.image with a digest",
        _images,
        profiles=OPENSHIFT,
    ),
    rule(
        "MCO-01",
        "the machine-config operator and controller both run, with the version of the release",
        "Without the operator the controller finds no ControllerConfig; without the version it looks for gates of "
        "0.0.1-snapshot.",
        "run the operator's bootstrap command, then the controller's, both with --payload-version",
        _commands,
        profiles=OPENSHIFT,
    ),
    rule(
        "MCO-02",
        "the machine-config controller finds all its inputs",
        'It exits with "no controllerconfig found" or "no featuregate found", or names the missing file.',
        "copy the operator's manifests, the cluster's manifests and image-references into its manifest directory",
        _inputs,
        profiles=OPENSHIFT,
    ),
    rule(
        "MCO-03",
        "masters and workers have the base that the machine-config operator renders",
        "Our own base has only the kubelet and the pause image. Without the operator's files and units there is no "
        "bridge br-ex, so OVN-Kubernetes does not start, nodes stay NotReady, and the machine-config daemon reports "
        "them as degraded.",
        RENDER_FIX,
        _bases,
        profiles=OPENSHIFT,
    ),
)
