"""Rules about a node's basic programs: the standalone kubelet, CRI-O, scripts, and the API's address."""

import posixpath
import tomllib
from collections.abc import Iterator
from typing import Any, Final

import yaml

from umbilical.bootstrap.verify.documents import dig
from umbilical.fault import IgnitionError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import API_PORT, ClusterNode
from umbilical.hardway.lint.applied import REFERENCES, references
from umbilical.hardway.lint.facts import OPENSHIFT, LintFacts, LintRule, RuleSeverity, Unreadable, rule
from umbilical.hardway.lint.node_reading import UnitCommand, commands
from umbilical.ignition.config import Config, File

KUBELET: Final = "kubelet"
KUBELET_UNIT: Final = "kubelet.service"
CRIO_DROP_INS: Final = "/etc/crio/crio.conf.d"
PAUSE_COMMAND: Final = "/usr/bin/pod"
UPSTREAM_PAUSE: Final = b"registry.k8s.io/pause"
API_SERVER_ENV: Final = "/etc/kubernetes/apiserver-url.env"
PROGRAM_DIRECTORIES: Final = ("/usr/local/bin", "/usr/local/sbin")
"""Files below /usr/local get an SELinux label with which systemd may execute them."""
SYSTEM_DIRECTORIES: Final = ("/usr/bin", "/usr/sbin", "/usr/libexec", "/usr/lib", "/bin", "/sbin")
PROGRAM_MODES: Final = (0o755, 0o555)
_JOINING_FLAGS: Final = ("kubeconfig", "bootstrap-kubeconfig")


def _kubelet_command(config: Config, where: str) -> UnitCommand:
    for unit in config.units:
        for command in commands(unit) if unit.name == KUBELET_UNIT else []:
            # In OpenShift's unit a wrapper starts the kubelet.
            if KUBELET in map(posixpath.basename, command.words):
                return command
    raise Unreadable(f"{where} has no {KUBELET_UNIT} that runs a kubelet")


def _bootstrap_kubelet(facts: LintFacts) -> tuple[UnitCommand, dict[str, Any]]:
    """Return its command and its configuration file, if it has one."""
    node = facts.cluster.bootstrap
    command = _kubelet_command(facts.ignition(node), layout.ignition(node))
    path = command.flags.get("config")
    if path is None:
        return command, {}
    try:
        value = yaml.safe_load(facts.node_file(node, path))
    except (yaml.YAMLError, ValueError):
        raise Unreadable(f"{layout.ignition(node)}: {path} is not YAML") from None
    return command, value if isinstance(value, dict) else {}


def _standalone(facts: LintFacts) -> Iterator[str]:
    command, configuration = _bootstrap_kubelet(facts)
    for flag in _JOINING_FLAGS:
        if flag in command.flags:
            yield f"the bootstrap kubelet has --{flag}"
    folder = command.flags.get("pod-manifest-path") or configuration.get("staticPodPath")
    if folder != layout.NODE_MANIFESTS:
        yield f"the bootstrap kubelet reads static pods from {folder or 'no directory'}, not {layout.NODE_MANIFESTS}"


def _webhooks(facts: LintFacts) -> Iterator[str]:
    command, configuration = _bootstrap_kubelet(facts)
    if "config" not in command.flags:
        # Without a file the defaults of the flags apply, which have no webhooks.
        return
    webhook = dig(configuration, "authentication", "webhook", "enabled")
    if webhook is not False:
        yield f"authentication.webhook.enabled of the bootstrap kubelet is {_shown(webhook)}, not false"
    mode = dig(configuration, "authorization", "mode")
    if mode != "AlwaysAllow":
        yield f"authorization.mode of the bootstrap kubelet is {_shown(mode)}, not AlwaysAllow"


def _pause_image(facts: LintFacts) -> Iterator[str]:
    wanted = dict(references(facts)).get("pod")
    if not wanted:
        raise Unreadable(f"{REFERENCES} has no tag pod")
    for node in facts.cluster.nodes:
        images = [image["pause_image"] for image in _crio_images(facts, node) if "pause_image" in image]
        if not images:
            yield f"{layout.ignition(node)}: no file in {CRIO_DROP_INS} sets pause_image"
        yield from (f"{layout.ignition(node)}: pause_image is {one}, not {wanted}" for one in images if one != wanted)
        for file in facts.ignition(node).files:
            if UPSTREAM_PAUSE in _content(file):
                yield f"{layout.ignition(node)}: {file.path} contains {UPSTREAM_PAUSE.decode()}"


def _pause_command(facts: LintFacts) -> Iterator[str]:
    for node in facts.cluster.nodes:
        settings = {key: value for image in _crio_images(facts, node) for key, value in image.items()}
        if settings.get("pause_command") != PAUSE_COMMAND:
            yield f"{layout.ignition(node)}: pause_command is not {PAUSE_COMMAND}"
        if not (settings.get("pause_image_auth_file") or settings.get("global_auth_file")):
            yield f"{layout.ignition(node)}: no auth file is set for the pause image"


def _crio_images(facts: LintFacts, node: ClusterNode) -> Iterator[dict[str, Any]]:
    for file in facts.ignition(node).files:
        if posixpath.dirname(file.path) == CRIO_DROP_INS:
            try:
                image = dig(tomllib.loads(_content(file).decode()), "crio", "image")
            except ValueError:
                raise Unreadable(f"{layout.ignition(node)}: {file.path} is not TOML") from None
            if isinstance(image, dict):
                yield image


def _programs(facts: LintFacts) -> Iterator[str]:
    for node in facts.cluster.nodes:
        config = facts.ignition(node)
        for unit in config.units:
            for command in commands(unit):
                for fault in _program_faults(config, command):
                    yield f"{layout.ignition(node)}: {unit.name}: {fault}"


def _program_faults(config: Config, command: UnitCommand) -> Iterator[str]:
    scripts = [word for word in command.words[1:] if config.file(word) and _is_script(config.file(word))]
    for program in (command.program, *scripts):
        directory = posixpath.dirname(program)
        if directory not in (*PROGRAM_DIRECTORIES, *SYSTEM_DIRECTORIES):
            yield f"{program} is not in {PROGRAM_DIRECTORIES[0]}"
        file = config.file(program)
        if file is not None and file.mode not in PROGRAM_MODES:
            yield f"{program} has mode 0{file.mode or 0:o}, not 0755 or 0555"


def _is_script(file: File | None) -> bool:
    return file is not None and _content(file).startswith(b"#!")


def _api_server_env(facts: LintFacts) -> Iterator[str]:
    wanted = {"KUBERNETES_SERVICE_HOST": facts.cluster.internal_api_name, "KUBERNETES_SERVICE_PORT": str(API_PORT)}
    for node in facts.cluster.members:
        if facts.ignition(node).file(API_SERVER_ENV) is None:
            yield f"{layout.ignition(node)} does not write {API_SERVER_ENV}"
            continue
        lines = facts.node_file(node, API_SERVER_ENV).decode(errors="replace").splitlines()
        found = {name: value.strip("'\"") for name, _, value in (line.partition("=") for line in lines)}
        for name, value in wanted.items():
            if found.get(name) != value:
                yield f"{layout.ignition(node)}: {API_SERVER_ENV}: {name} is {_shown(found.get(name))}, not {value}"


def _content(file: File) -> bytes:
    try:
        return file.content()
    except IgnitionError:
        return b""


def _shown(value: object) -> str:
    return "not set" if value is None else str(value)


RULES: Final[tuple[LintRule, ...]] = (
    rule(
        "BK-01",
        "the bootstrap kubelet is standalone",
        "With a kubeconfig it waits for an API that runs in its own static pods, and starts none of them.",
        "remove --kubeconfig and --bootstrap-kubeconfig from the unit, and set staticPodPath to the pods' directory",
        _standalone,
        profiles=OPENSHIFT,
    ),
    rule(
        "BK-02",
        "the bootstrap kubelet uses no webhooks for authentication and authorization",
        "With a configuration file webhooks are on by default; without an API the kubelet exits: `no client provided, "
        "cannot use webhook`.",
        "set authentication.webhook.enabled: false and authorization.mode: AlwaysAllow in its configuration",
        _webhooks,
    ),
    rule(
        "CRIO-01",
        "the pause image is that of the release",
        "The pull secret has no credentials for the registry of CRI-O's default pause image: no pod gets a sandbox.",
        f'[crio.image] pause_image = "<the release\'s image pod, by digest>" in {CRIO_DROP_INS}',
        _pause_image,
        profiles=OPENSHIFT,
    ),
    rule(
        "CRIO-02",
        "CRI-O has the pause image's command and credentials",
        "The release's image has /usr/bin/pod instead of CRI-O's default /pause, and is not public.",
        f'set pause_command = "{PAUSE_COMMAND}" and pause_image_auth_file = "{layout.PULL_SECRET}" beside pause_image',
        _pause_command,
        profiles=OPENSHIFT,
        severity=RuleSeverity.WARNING,
    ),
    rule(
        "SE-01",
        "SELinux allows units to run their programs",
        "A script below /opt has an SELinux label for data: systemd fails with `Permission denied` (203/EXEC) although "
        "its mode is right.",
        "put the script into /usr/local/bin with mode 0555",
        _programs,
        profiles=OPENSHIFT,
    ),
    rule(
        "AU-01",
        "masters and workers have the API's address before cluster IPs work",
        "The network operator reads the API's address from this file; without it the operator exits with status 1, and "
        "no node gets a network.",
        f"write {API_SERVER_ENV} with the name api-int of the cluster and port {API_PORT}",
        _api_server_env,
        profiles=OPENSHIFT,
    ),
)
