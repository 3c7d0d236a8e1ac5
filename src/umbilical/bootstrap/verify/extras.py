"""Checks X: other causes of failure: a wrong tunnel state, half a patch, rejected pods, missing programs."""

from collections.abc import Iterator
from typing import Any, Final

from umbilical.bootstrap.names import OWN, RECEIPT
from umbilical.bootstrap.patch.config_facts import TunnelState
from umbilical.bootstrap.verify.documents import dig, mappings, shown
from umbilical.bootstrap.verify.facts import KUBE_SYSTEM, BootstrapCheck, BootstrapFacts, files, functions, rule, tunnel
from umbilical.bootstrap.verify.files import ROLES
from umbilical.bootstrap.verify.shell_script import Script
from umbilical.checks.check import Doubt

# Commands of bash, of coreutils and similar packages, and other programs on RHCOS.
_KNOWN: Final = frozenset(
    {
        ".", ":", "[", "[[", "break", "builtin", "cd", "command", "continue", "declare", "echo", "eval", "exec", "exit",
        "export", "false", "let", "local", "mapfile", "printf", "pwd", "read", "readonly", "return", "set", "shift",
        "shopt", "source", "test", "trap", "true", "type", "ulimit", "umask", "unset", "wait",
        "awk", "base64", "basename", "bash", "cat", "chmod", "chown", "cmp", "cp", "crictl", "curl", "cut", "date",
        "diff", "dirname", "env", "find", "flock", "grep", "gzip", "head", "hostname", "id", "install", "ip",
        "journalctl", "jq", "kill", "ln", "logger", "ls", "mkdir", "mktemp", "mv", "oc", "openssl", "podman",
        "readlink", "realpath", "restorecon", "rm", "rmdir", "sed", "seq", "sha256sum", "sha512sum", "sleep", "sort",
        "ss", "stat", "sync", "systemctl", "tail", "tar", "tee", "timeout", "touch", "tr", "uname", "uniq", "wc",
        "xargs",
    }
)  # fmt: skip
_MISSING: Final = frozenset(
    {
        "dig", "envsubst", "gettext", "host", "kubectl", "nc", "ncat", "netcat", "nslookup", "perl", "python",
        "python3", "yq",
    }
)  # fmt: skip
# Functions of bootkube.sh's own libraries.
_PROVIDED: Final = frozenset(
    {"image_for", "record_service_stage_start", "record_service_stage_success", "record_service_stage_failure"}
)
_HOST_FLAGS: Final = ("hostPID", "hostIPC")


def _expected_tunnel_state(facts: BootstrapFacts) -> Iterator[str]:
    if facts.expected_state is not None and facts.found_state is not facts.expected_state:
        yield f"the tunnel state is {facts.found_state.value}, not {facts.expected_state.value}"


def _needs_expectation(facts: BootstrapFacts) -> str | None:
    return f"no --expect (it is {facts.found_state.value})" if facts.expected_state is None else None


def _leftovers(facts: BootstrapFacts) -> Iterator[str]:
    assert facts.config is not None
    if facts.found_state is TunnelState.PATCHED:
        return
    ours = {RECEIPT, *(getattr(OWN, role) for role in ROLES)}
    yield from (f"{file.path} exists" for file in facts.config.files if file.path in ours)
    functions = (OWN.setup_function, OWN.manifests_function, OWN.cleanup_function)
    for command in facts.bootkube.commands if facts.bootkube else ():
        if command.program in functions or OWN.library in command.words:
            yield f"line {command.line} of bootkube.sh: {' '.join(command.words)}"


def _security(facts: BootstrapFacts) -> Iterator[str]:
    pod = facts.agent
    for name in _HOST_FLAGS:
        if pod.spec.get(name):
            yield f"the agents request {name}"
    for volume in mappings(pod.spec.get("volumes")):
        if "hostPath" in volume:
            yield f"the agents mount {shown(dig(volume, 'hostPath', 'path'))} of the host"
    contexts = (pod.spec.get("securityContext"), pod.container.get("securityContext"))
    yield from _privileges(contexts)
    asked = [name for name in ("runAsUser", "runAsGroup", "fsGroup") if _setting(contexts, name) is not None]
    if asked and facts.agent_namespace != KUBE_SYSTEM:
        yield f"the agents set {asked[0]}, which the restricted SCC assigns"
    # The installer's own pods rely on the SCC; ours are in a namespace that enforces `restricted`.
    if facts.found_state is TunnelState.PATCHED:
        yield from _restrictions(contexts)


def _privileges(contexts: tuple[Any, ...]) -> Iterator[str]:
    if _setting(contexts, "privileged") is True:
        yield "the agents request privileged"
    if _setting(contexts, "runAsUser") == 0:
        yield "the agents request to run as root"
    if _setting(contexts, "allowPrivilegeEscalation") is True:
        yield "the agents request privilege escalation"
    if _setting(contexts, "capabilities", "add"):
        yield "the agents request capabilities"


def _restrictions(contexts: tuple[Any, ...]) -> Iterator[str]:
    if _setting(contexts, "runAsNonRoot") is not True:
        yield "runAsNonRoot is not true"
    if _setting(contexts, "allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if _setting(contexts, "capabilities", "drop") != ["ALL"]:
        yield "not all capabilities are dropped"
    if _setting(contexts, "seccompProfile", "type") != "RuntimeDefault":
        yield "seccompProfile is not RuntimeDefault"


def _setting(contexts: tuple[Any, ...], *keys: str) -> Any:
    """Return the container's setting, else the pod's."""
    pod, container = (dig(context, *keys) for context in contexts)
    return pod if container is None else container


def _programs(facts: BootstrapFacts) -> Iterator[str]:
    names = facts.names
    for path, script in ((names.library, facts.library), (names.certificate_script, facts.certificate_script)):
        assert script is not None
        defined = {*script.functions, *_PROVIDED, names.certificate_script}
        for line, program in sorted(_called(script)):
            if program in _MISSING:
                yield f"{path} line {line}: {program} is not on RHCOS"
            elif program not in _KNOWN and program not in defined and "$" not in program:
                yield Doubt(f"{path} line {line}: {shown(program)} may not be on RHCOS")


def _called(script: Script) -> set[tuple[int, str]]:
    called = {(command.line, command.program) for command in script.commands if command.program}
    # A program that another one starts: `timeout 60 envsubst`, `quietly openssl`.
    started = {(command.line, word) for command in script.commands for word in command.words[1:3] if word in _MISSING}
    return {(line, program.removeprefix("/usr/bin/")) for line, program in called | started}


EXTRAS: Final[tuple[BootstrapCheck, ...]] = (
    rule(
        "X1",
        "the file has the tunnel state that --expect names",
        "an unpatched file installs a cluster without the tunnel, without any error",
        "see what the file contains and what a patch would change: umbilical bootstrap plan FILE",
        _expected_tunnel_state,
        _needs_expectation,
    ),
    rule(
        "X2",
        "a file that is not patched contains nothing of ours",
        "half a patch calls missing functions, or leaves files that make the next patch fail",
        "create the file again: openshift-install create ignition-configs",
        _leftovers,
    ),
    rule(
        "X3",
        "restricted SCC and Pod Security accept the agents' pods",
        "rejected pods are never created: the DaemonSet stays at 0, and only its events show why",
        "patch the installer's original file again: umbilical bootstrap patch FILE",
        _security,
        tunnel,
        files("agent_daemon_set"),
    ),
    rule(
        "X4",
        "the scripts use only programs of RHCOS",
        "a bootkube step that calls a missing program fails every five seconds, as with envsubst (OCPBUGS-99164)",
        "use bash, coreutils, sed, jq, ip, openssl and oc",
        _programs,
        tunnel,
        functions,
        files("library", "certificate_script"),
    ),
)
