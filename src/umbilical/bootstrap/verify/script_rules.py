"""Checks C8 to C11: the shell library and the certificate script, parsed like bash."""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import Final

from umbilical.bootstrap.names import STAGES, STATIC_POD
from umbilical.bootstrap.shell.scripts import IMAGE_IN_PAYLOAD
from umbilical.bootstrap.verify.documents import PLACEHOLDER, shown
from umbilical.bootstrap.verify.facts import BootstrapCheck, BootstrapFacts, files, functions, rule, tunnel
from umbilical.bootstrap.verify.shell_script import Script, ShellBlock, ShellCommand
from umbilical.checks.check import Doubt

MAX_HOURS: Final = 24
_SUBSTITUTION: Final = re.compile(r"s([|,#%~!@])\\?\$\{(\w+)\}\1(.*?)\1g?", re.DOTALL)
_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_]\w*)")
_IMAGE_LOOKUP: Final = re.compile(r"\$\(\s*image_for\s+[\"']?([^\s\"')]+)")
_BRACED: Final = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_SERVER_NAME: Final = re.compile(r"^\s*subjectAltName\s*=\s*IP:(\S+)\s*$", re.MULTILINE)
_SERVER_USAGE: Final = re.compile(r"^\s*extendedKeyUsage\s*=\s*serverAuth\s*$", re.MULTILINE)
_AGENT_USAGE: Final = re.compile(r"^\s*extendedKeyUsage\s*=\s*clientAuth\s*$", re.MULTILINE)
_DECLARATIONS: Final = ("local", "export", "declare", "readonly")
_FIX: Final = "patch the installer's original file again: umbilical bootstrap patch FILE"


def texts_of(command: ShellCommand) -> tuple[str, ...]:
    """Return all texts of a command: words, assignments, targets and here-documents; as printf prints them."""
    texts = (*command.words, *command.assignments, *(target for _, target in command.redirects))
    is_printf = command.program == "printf" or command.words[:2] == ("echo", "-e")
    return tuple(text.replace("\\n", "\n") for text in texts) if is_printf else texts


def functions_of(facts: BootstrapFacts) -> tuple[str, str, str]:
    names = facts.names
    return names.setup_function, names.manifests_function, names.cleanup_function


def _placeholders(facts: BootstrapFacts) -> Iterator[str]:
    yield from dict.fromkeys(_image_faults(_library(facts).commands))
    if facts.is_inline:
        yield from _unset_variables(facts)
        return
    setup, manifests, _ = functions_of(facts)
    names = facts.names
    yield from _filling_faults(facts, setup, names.server_pod)
    for path in (names.namespace, names.agent_secret, names.agent_daemon_set):
        if facts.text(path) is not None:
            yield from _filling_faults(facts, manifests, path)


def _unset_variables(facts: BootstrapFacts) -> Iterator[str]:
    """The shell fills in its own here-documents; `set -u` ends the script at a variable that is not set yet."""
    names = facts.names
    manifests = {(">", path) for path in (names.server_pod, names.agent_secret, names.agent_daemon_set)}
    commands = _library(facts).commands
    for index, command in enumerate(commands):
        is_manifest = not manifests.isdisjoint(command.redirects)
        if not is_manifest and command.program != "openssl":
            continue
        used = {name for text in texts_of(command) for name in _BRACED.findall(text)}
        for name in sorted(used - _assigned(commands[:index])):
            if name in _assigned(commands):
                yield f"line {command.line} of bootkube.sh uses ${{{name}}} before it is set"
            elif is_manifest:
                yield f"line {command.line} of bootkube.sh uses ${{{name}}} and nothing sets it"


def _filling_faults(facts: BootstrapFacts, function: str, path: str) -> Iterator[str]:
    text = facts.text(path) or ""
    wanted = {found[2:-1] for found in PLACEHOLDER.findall(text)}
    if "${" in PLACEHOLDER.sub("", text):
        yield f"{path} contains a ${{ that is not a placeholder"
    library = _library(facts)
    commands = library.reached_from(function)
    if not any(path in texts_of(command) for command in commands):
        yield f"{function} does not read {path}"
    filled = {**_expanded(library, commands, path), **_substitutions(commands)}
    # The second function can use the first one's variables, except local ones.
    assigned = _assigned(commands) | _globals(library.reached_from(facts.names.setup_function))
    for name in sorted(wanted):
        if name not in filled:
            yield f"nothing that {function} calls fills in ${{{name}}} of {path}"
        elif missing := [variable for variable in filled[name] if variable not in assigned]:
            yield f"${{{name}}} of {path} is filled in from {missing[0]}, which {function} never sets"


def _substitutions(commands: Iterable[ShellCommand]) -> dict[str, list[str]]:
    """Return the placeholders that sed replaces, each with the variables of its replacement."""
    found: dict[str, list[str]] = {}
    for command in commands:
        if "sed" in command.words:
            for _, name, value in (match for text in texts_of(command) for match in _SUBSTITUTION.findall(text)):
                found.setdefault(name, _VARIABLE.findall(value))
    return found


def _expanded(library: Script, commands: Iterable[ShellCommand], path: str) -> dict[str, list[str]]:
    """Return the placeholders that envsubst replaces in a file: the names of exported variables."""
    reads = any(command.words == ("envsubst",) and ("<", path) in command.redirects for command in commands)
    exports = [command for command in library.commands if command.program == "export"]
    names = {word.partition("=")[0] for command in exports for word in command.words[1:]}
    return {name: [name] for name in names} if reads else {}


def _image_faults(commands: Iterable[ShellCommand]) -> Iterator[str]:
    for name, value in _assignments(commands):
        asked = _IMAGE_LOOKUP.search(value) if name == "KONNECTIVITY_IMAGE" else None
        if asked is not None and asked[1] != IMAGE_IN_PAYLOAD:
            yield f"KONNECTIVITY_IMAGE is image {shown(asked[1])} of the payload, not {IMAGE_IN_PAYLOAD}"


def _assignments(commands: Iterable[ShellCommand]) -> Iterator[tuple[str, str]]:
    for command in commands:
        declared = command.words[1:] if command.program in _DECLARATIONS else ()
        for name, equals, value in (text.partition("=") for text in (*command.assignments, *declared)):
            if equals:
                yield name, value


def _assigned(commands: Iterable[ShellCommand]) -> set[str]:
    return {name for name, _ in _assignments(commands)}


def _globals(commands: Iterable[ShellCommand]) -> set[str]:
    kept = {name.partition("=")[0] for command in commands if command.program == "local" for name in command.words[1:]}
    return _assigned(commands) - kept


def _certificates(facts: BootstrapFacts) -> Iterator[str]:
    script = _certificate_script(facts)
    texts = [_without_comments(text) for command in script.commands for text in texts_of(command)]
    if not any(word in ("-x509", "-selfsign") for command in script.commands for word in command.words):
        yield "it creates no CA"
    yield from (f"it uses {shown(text)}" for text in dict.fromkeys(texts) if "root-ca.key" in text)
    if not any(_SERVER_USAGE.search(text) and _names_an_address(text) for text in texts):
        yield "it creates no server certificate with extendedKeyUsage=serverAuth and subjectAltName=IP:ADDRESS"
    if not any(_AGENT_USAGE.search(text) for text in texts):
        yield "it creates no agent certificate with extendedKeyUsage=clientAuth"
    yield from _life_faults(facts, script)
    for size in (word for command in script.commands for word in command.words if word.startswith("rsa:")):
        if not re.fullmatch(r"rsa:(2048|3072|4096)", size):
            yield f"its keys are {size}; FIPS needs at least 2048 bits"


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith(("#", ";")))


def _names_an_address(text: str) -> bool:
    found = _SERVER_NAME.search(text)
    return found is not None and (found[1] == "%s" or _is_variable(found[1]) or _family(found[1]) is not None)


def _is_variable(text: str) -> bool:
    return _VARIABLE.match(text) is not None


def _life_faults(facts: BootstrapFacts, script: Script) -> Iterator[str]:
    issuing = [command for command in script.commands if _issues(command)]
    if not issuing:
        yield "it issues no certificate"
    for command in issuing:
        days = command.argument("-days")
        if days is None and command.argument("-enddate") is None:
            yield f"line {command.line}: no -days and no -enddate, so openssl's default lifetime applies"
        elif days is not None and days != "1":
            yield f"line {command.line}: certificates are valid for {days} days, not 1"
    if any(command.argument("-enddate") is not None for command in issuing):
        yield from _hours_faults(facts)


def _issues(command: ShellCommand) -> bool:
    words = command.words
    kind = words[words.index("openssl") + 1 :][:1] if "openssl" in words else ()
    return kind == ("ca",) or (kind == ("x509",) and "-req" in words) or (kind == ("req",) and "-x509" in words)


def _hours_faults(facts: BootstrapFacts) -> Iterator[str]:
    library = facts.library
    calls = library.calls(facts.names.certificate_script) if library else []
    for hours in (call.words[-1] for call in calls):
        if not re.fullmatch(r"[0-9]{1,3}", hours) or not 1 <= int(hours) <= MAX_HOURS:
            yield f"the library requests certificates for {shown(hours)} hours, not 1 to {MAX_HOURS}"


def _stages(facts: BootstrapFacts) -> Iterator[str]:
    library = _library(facts)
    functions = functions_of(facts)
    yield from (f"{name} is not defined" for name in functions if name not in library.functions)
    places = dict(zip(STAGES, (functions[0], functions[0], functions[1], functions[2]), strict=True))
    for stage, function in places.items():
        yield from _stage_faults(library, stage, function)
    if library.calls("envsubst"):
        yield "it calls envsubst, which is not on RHCOS"
    calls = [name for name in functions if facts.names.certificate_script in _programs(library, name)]
    if calls != [functions[0]]:
        yield f"{functions[0]} does not run {facts.names.certificate_script}"
    yield from _cleanup_faults(library, functions[2])


def _programs(library: Script, function: str) -> set[str]:
    return {command.program for command in library.reached_from(function)}


def _stage_faults(library: Script, stage: str, function: str) -> Iterator[str]:
    body = library.functions.get(function, ())
    starts = [command for command in library.calls("record_service_stage_start") if command.words[1:] == (stage,)]
    if len(starts) != 1 or starts[0] not in body:
        yield f"step {stage} is not started exactly once, in {function}"
        return
    guards = [block for block in starts[0].blocks if _guards(block, f"{stage}.done")]
    if not guards:
        yield f"step {stage} is not skipped if {stage}.done exists"
        return
    inside = body[body.index(starts[0]) + 1 :]
    inside = tuple(command for command in inside if guards[0] in command.blocks)
    if not any(command.words == ("touch", f"{stage}.done") for command in inside):
        yield f"step {stage} does not create {stage}.done"
    if not any(command.program == "record_service_stage_success" for command in inside):
        yield f"step {stage} never records success"


def _guards(block: ShellBlock, marker: str) -> bool:
    conditions = [condition.words for condition in block.conditions]
    return block.kind == "then" and conditions == [("[", "!", "-f", marker, "]")]


def _cleanup_faults(library: Script, function: str) -> Iterator[str]:
    commands = library.reached_from(function)
    deletes = [command for command in commands if _is_delete(command)]
    if not deletes:
        yield f"{function} deletes nothing"
    for command in deletes:
        if command.argument("--wait") != "false":
            yield f"line {command.line}: it waits for the deletion (no --wait=false)"
        if command.argument("--ignore-not-found") not in ("true", ""):
            yield f"line {command.line}: the deletion fails if the object does not exist (no --ignore-not-found)"
    if not any(command.program == "rm" and STATIC_POD in command.words for command in commands):
        yield f"{function} does not remove {STATIC_POD}"


def _is_delete(command: ShellCommand) -> bool:
    pairs = zip(command.words, command.words[1:], strict=False)
    return ("oc", "delete") in pairs


def _address_family(facts: BootstrapFacts) -> Iterator[str]:
    families = [network.version for network in facts.cluster.service_networks]
    library = _library(facts)
    commands = library.commands if facts.is_inline else library.reached_from(facts.names.setup_function)
    asked = {6 if "-6" in command.words else 4 for command in commands if command.program == "ip"}
    fixed = {family for text in _fixed_addresses(facts, commands) if (family := _family(text)) is not None}
    if not asked and not fixed:
        yield "the node's address is neither searched nor given"
    for family in sorted(asked - {families[0]}):
        yield f"the cluster's first service network is IPv{families[0]}, but the script searches an IPv{family} address"
    for family in sorted(fixed - {families[0]}):
        text = f"the cluster's first service network is IPv{families[0]}, but the given address is IPv{family}"
        yield Doubt(text) if family in families else text


def _fixed_addresses(facts: BootstrapFacts, commands: Iterable[ShellCommand]) -> Iterator[str]:
    yield facts.agent.flags.values.get("--proxy-server-host", "")
    yield from (value.strip("'\"") for name, value in _assignments(commands) if name == "BOOTSTRAP_NODE_IP")


def _family(text: str) -> int | None:
    try:
        return ipaddress.ip_address(text).version
    except ValueError:
        return None


def _needs_networks(facts: BootstrapFacts) -> str | None:
    return None if facts.cluster.service_networks else "the cluster's service network is not in the file"


def _library(facts: BootstrapFacts) -> Script:
    assert facts.library is not None
    return facts.library


def _certificate_script(facts: BootstrapFacts) -> Script:
    assert facts.certificate_script is not None
    return facts.certificate_script


SCRIPT_RULES: Final[tuple[BootstrapCheck, ...]] = (
    rule(
        "C8",
        "the node fills in every placeholder of the manifests, the image with the tunnel's",
        "a pod with a literal ${…} as image or address, or with another program's image, never starts",
        _FIX,
        _placeholders,
        tunnel,
        files("server_pod", "agent_secret", "agent_daemon_set", "library"),
    ),
    rule(
        "C9",
        "the node creates a CA for one day, a server certificate for its address, and an agent certificate",
        "the cluster's root CA key is not on the node; agents reject a server certificate without the address",
        _FIX,
        _certificates,
        tunnel,
        files("certificate_script", "library"),
    ),
    rule(
        "C10",
        "every bootkube step is recorded, guarded and repeatable, and the cleanup does not wait",
        "systemd restarts bootkube.sh after a failure: an unguarded step runs again, one that waits blocks the end",
        _FIX,
        _stages,
        tunnel,
        functions,
        files("library"),
    ),
    rule(
        "C11",
        "the node's address has the cluster's first IP family",
        "agents in a cluster of one family cannot dial an address of the other",
        "patch again with a --node-ip of the right IP family, or without --node-ip",
        _address_family,
        tunnel,
        files("library", "agent_daemon_set"),
        _needs_networks,
    ),
)
