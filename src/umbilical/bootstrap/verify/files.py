"""Checks F: the tunnel's files exist, with the installer's owner and modes, and none contains a key."""

from collections.abc import Callable, Iterator
from typing import Final

from umbilical.bootstrap.names import NATIVE, OWN, RECEIPT
from umbilical.bootstrap.verify.documents import dig, is_placeholder, is_within, shown
from umbilical.bootstrap.verify.facts import KUBE_SYSTEM, BootstrapCheck, BootstrapFacts, Need, functions, rule, tunnel
from umbilical.ignition.config import File
from umbilical.manifests.tree import SCRIPT_MODE, SECRET_MODE

OWN_DIRECTORY: Final = "/opt/openshift/umbilical"
ROLES: Final = (
    "egress", "override", "server_pod", "namespace", "agent_secret", "agent_daemon_set", "library",
    "certificate_script",
)  # fmt: skip
"""In the order of F1 to F8; fields of `TunnelNames`."""
SCRIPTS: Final = ("library", "certificate_script")
_KEY_MARK: Final = b"PRIVATE KEY-----"
_CERTIFICATE_MARK: Final = b"-----BEGIN CERTIFICATE-----"
_FIX: Final = "patch the installer's original file again: umbilical bootstrap patch FILE"


def _presence(role: str) -> Callable[[BootstrapFacts], Iterator[str]]:
    mode = SCRIPT_MODE if role in SCRIPTS else SECRET_MODE

    def search(facts: BootstrapFacts) -> Iterator[str]:
        assert facts.config is not None
        path: str = getattr(facts.names, role)
        if _is_written(facts, role):
            yield f"no here-document of bootkube.sh writes {path}"
            return
        found = facts.config.files_at(path)
        if len(found) != 1:
            yield f"{path} occurs {len(found)} times, not once"
        for file in found:
            yield from _node_faults(file, mode)

    return search


def _is_written(facts: BootstrapFacts, role: str) -> bool:
    """Whether bootkube.sh itself must write this file."""
    return facts.is_inline and role not in ("egress", "override")


def _not_written(role: str) -> Need:
    """Need an entry of the config: an inline tunnel has here-documents instead, and no scripts."""

    def need(facts: BootstrapFacts) -> str | None:
        if not _is_written(facts, role):
            return None
        if role in SCRIPTS:
            return functions(facts)
        path: str = getattr(facts.names, role)
        return f"bootkube.sh itself writes {path}" if facts.text(path) is not None else None

    return need


def _node_faults(file: File, mode: int) -> Iterator[str]:
    if file.mode != mode:
        yield f"{file.path} has mode {file.mode}, not {mode} (0{mode:o})"
    owner, group = file.entry.get("user"), file.entry.get("group")
    if file.user != "root" and dig(owner, "id") != 0:
        yield f"{file.path} belongs to {shown(dig(owner, 'name') or dig(owner, 'id'))}, not to root"
    if group and file.group != "root" and dig(group, "id") != 0:
        yield f"{file.path} belongs to group {shown(dig(group, 'name') or dig(group, 'id'))}, not to root"
    if file.overwrite is not True:
        yield f"{file.path} does not have overwrite: true"
    if file.source is None:
        yield f"{file.path} has no content"


def _own_namespace(facts: BootstrapFacts) -> str | None:
    is_foreign = facts.agent_namespace == KUBE_SYSTEM and facts.text(facts.names.namespace) is None
    return "the agents are in kube-system, which exists already" if is_foreign else None


def _secrets(facts: BootstrapFacts) -> Iterator[str]:
    assert facts.config is not None
    for index, content in facts.contents.items():
        path = facts.config.files[index].path
        if not _is_ours(facts, path) or not isinstance(content, bytes):
            continue
        if path.endswith((".crt", ".key")) or _KEY_MARK in content or _CERTIFICATE_MARK in content:
            yield f"{path} contains a key or a certificate"
    data = dig(facts.agent_secret.value, "data")
    # The values of a here-document are commands of the shell.
    is_known = isinstance(data, dict) and not facts.is_inline
    for name, value in data.items() if is_known else ():
        if not is_placeholder(value):
            yield f"{facts.names.agent_secret} has a value for {shown(name)} instead of a placeholder"


def _is_ours(facts: BootstrapFacts, path: str) -> bool:
    directories = (OWN_DIRECTORY, OWN.pki_directory, NATIVE.pki_directory)
    # The receipt contains bootkube.sh's entry, which may contain anything.
    is_below = path != RECEIPT and any(is_within(path, directory) for directory in directories)
    return is_below or path in [getattr(facts.names, role) for role in ROLES]


def _file_rule(number: int, role: str, title: str, why: str, *needs: Need) -> BootstrapCheck:
    return rule(f"F{number}", title, why, _FIX, _presence(role), tunnel, *needs, _not_written(role))


FILES: Final[tuple[BootstrapCheck, ...]] = (
    _file_rule(
        1,
        "egress",
        "the egress selector exists, readable only by root",
        "kube-apiserver reads it at the start and exits without it: the API never starts",
    ),
    _file_rule(
        2,
        "override",
        "the kube-apiserver override exists, readable only by root",
        "without it the operator's render command fails, every five seconds",
    ),
    _file_rule(
        3,
        "server_pod",
        "the server's static pod exists, readable only by root",
        "without the server every webhook call of the bootstrap kube-apiserver fails",
    ),
    _file_rule(
        4,
        "namespace",
        "the agents' namespace exists, readable only by root",
        "without the namespace cluster-bootstrap cannot create Secret and DaemonSet",
        _own_namespace,
    ),
    _file_rule(
        5,
        "agent_secret",
        "the agents' Secret exists, readable only by root",
        "agents without certificates exit at the start",
    ),
    _file_rule(
        6,
        "agent_daemon_set",
        "the agents' DaemonSet exists, readable only by root",
        "without agents the server cannot reach the pod network",
    ),
    _file_rule(
        7,
        "library",
        "the shell library exists and is executable",
        "without it bootkube.sh fails at the line that sources it, every five seconds",
    ),
    _file_rule(
        8,
        "certificate_script",
        "the certificate script exists and is executable",
        "without it the first bootkube step of the tunnel fails, and kube-apiserver is never rendered",
    ),
    rule(
        "F9",
        "the file contains no key and no certificate of the tunnel",
        "the installer does not load a file with an expired certificate; and every reader of the file has the key",
        "let the node create them, as umbilical bootstrap patch does",
        _secrets,
        tunnel,
    ),
)
