"""F: the tunnel's files are there, with the installer's owner and modes, and none of them carries a secret."""

from collections.abc import Callable, Iterator
from typing import Final

from umbilical.bootstrap.names import NATIVE, OWN, RECEIPT
from umbilical.bootstrap.verify.documents import dig, is_placeholder, is_within, shown
from umbilical.bootstrap.verify.facts import KUBE_SYSTEM, BootstrapCheck, BootstrapFacts, Need, rule, tunnel
from umbilical.ignition.config import File
from umbilical.manifests.tree import SCRIPT_MODE, SECRET_MODE

OWN_DIRECTORY: Final = "/opt/openshift/umbilical"
ROLES: Final = (
    "egress", "override", "server_pod", "namespace", "agent_secret", "agent_daemon_set", "library",
    "certificate_script",
)  # fmt: skip
"""In the order of F1 to F8; fields of `Names`."""
SCRIPTS: Final = ("library", "certificate_script")
_KEY_MARK: Final = b"PRIVATE KEY-----"
_CERTIFICATE_MARK: Final = b"-----BEGIN CERTIFICATE-----"
_FIX: Final = "patch the installer's original file again: umbilical bootstrap patch FILE"


def _presence(role: str) -> Callable[[BootstrapFacts], Iterator[str]]:
    mode = SCRIPT_MODE if role in SCRIPTS else SECRET_MODE

    def search(facts: BootstrapFacts) -> Iterator[str]:
        assert facts.config is not None
        path: str = getattr(facts.names, role)
        found = facts.config.files_at(path)
        if len(found) != 1:
            yield f"{path} is there {len(found)} times"
        for file in found:
            yield from _node_faults(file, mode)

    return search


def _node_faults(file: File, mode: int) -> Iterator[str]:
    if file.mode != mode:
        yield f"{file.path} has mode {file.mode}, not {mode} (0{mode:o})"
    owner, group = file.entry.get("user"), file.entry.get("group")
    if file.user != "root" and dig(owner, "id") != 0:
        yield f"{file.path} belongs to {shown(dig(owner, 'name') or dig(owner, 'id'))}, not to root"
    if group and file.group != "root" and dig(group, "id") != 0:
        yield f"{file.path} belongs to group {shown(dig(group, 'name') or dig(group, 'id'))}, not to root"
    if file.overwrite is not True:
        yield f"{file.path} does not overwrite"
    if file.source is None:
        yield f"{file.path} has no content"


def _own_namespace(facts: BootstrapFacts) -> str | None:
    is_foreign = facts.agent_namespace == KUBE_SYSTEM and facts.text(facts.names.namespace) is None
    return "the agents live in kube-system, which is there already" if is_foreign else None


def _secrets(facts: BootstrapFacts) -> Iterator[str]:
    assert facts.config is not None
    for index, content in facts.contents.items():
        path = facts.config.files[index].path
        if not _is_ours(facts, path) or not isinstance(content, bytes):
            continue
        if path.endswith((".crt", ".key")) or _KEY_MARK in content or _CERTIFICATE_MARK in content:
            yield f"{path} holds a key or a certificate"
    data = dig(facts.agent_secret.value, "data")
    for name, value in data.items() if isinstance(data, dict) else ():
        if not is_placeholder(value):
            yield f"{facts.names.agent_secret} does not leave {shown(name)} to the node"


def _is_ours(facts: BootstrapFacts, path: str) -> bool:
    directories = (OWN_DIRECTORY, OWN.pki_directory, NATIVE.pki_directory)
    # The receipt quotes bootkube.sh's entry, which may quote anything.
    is_below = path != RECEIPT and any(is_within(path, directory) for directory in directories)
    return is_below or path in [getattr(facts.names, role) for role in ROLES]


def _file_rule(number: int, role: str, title: str, why: str, *needs: Need) -> BootstrapCheck:
    return rule(f"F{number}", title, why, _FIX, _presence(role), tunnel, *needs)


FILES: Final[tuple[BootstrapCheck, ...]] = (
    _file_rule(
        1,
        "egress",
        "the egress selector is there, for root alone",
        "kube-apiserver reads it when it starts and exits when it is missing: the API never comes up",
    ),
    _file_rule(
        2,
        "override",
        "the kube-apiserver override is there, for root alone",
        "the operator's render command fails without it, every five seconds, for ever",
    ),
    _file_rule(
        3,
        "server_pod",
        "the server's static pod is there, for root alone",
        "no server runs, and every webhook call of the bootstrap kube-apiserver fails",
    ),
    _file_rule(
        4,
        "namespace",
        "the agents' namespace is there, for root alone",
        "cluster-bootstrap cannot create Secret and DaemonSet in a namespace that nobody made",
        _own_namespace,
    ),
    _file_rule(
        5,
        "agent_secret",
        "the agents' Secret is there, for root alone",
        "agents without certificates crash as they start",
    ),
    _file_rule(
        6,
        "agent_daemon_set",
        "the agents' DaemonSet is there, for root alone",
        "no agent ever connects, and the server has no way into the pod network",
    ),
    _file_rule(
        7,
        "library",
        "the shell library is there and can be run",
        "bootkube.sh ends at the line that sources it, and begins anew every five seconds",
    ),
    _file_rule(
        8,
        "certificate_script",
        "the certificate script is there and can be run",
        "the first stage of the tunnel fails every five seconds, and kube-apiserver is never rendered",
    ),
    rule(
        "F9",
        "no key and no certificate of the tunnel is in the file",
        "the installer refuses to load a file with an expired certificate, and whoever reads the file has the key",
        "let the node make them: umbilical bootstrap patch does so",
        _secrets,
        tunnel,
    ),
)
