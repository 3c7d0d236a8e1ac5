"""Checks B: bootkube.sh calls the tunnel's functions at the right places, once, and between its steps."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from umbilical.bootstrap.names import BOOTKUBE, EGRESS_FILE, NATIVE, OWN, RECEIPT, RELEASE_IMAGE, SERVICE_RECORD
from umbilical.bootstrap.patch.config_facts import TunnelState
from umbilical.bootstrap.patch.edits import OVERRIDE_FLAG
from umbilical.bootstrap.patch.patch import undo
from umbilical.bootstrap.patch.receipt import find_receipt
from umbilical.bootstrap.spec import BOOTSTRAP_CONFIGS_ON_HOST
from umbilical.bootstrap.verify.facts import BootstrapCheck, BootstrapFacts, bootkube, functions, rule, tunnel
from umbilical.bootstrap.verify.script_rules import functions_of
from umbilical.bootstrap.verify.shell_script import Script, ShellCommand
from umbilical.checks.check import Doubt
from umbilical.fault import Fault
from umbilical.ignition.document import IgnitionDocument

OPERATOR: Final = "/usr/bin/cluster-kube-apiserver-operator"
KUBE_APISERVER_DONE: Final = "kube-apiserver-bootstrap.done"
_FIX: Final = "patch the installer's original file again: umbilical bootstrap patch FILE"
_ENDS: Final = ("exit", "return", "exec")
_NEEDED: Final = {RELEASE_IMAGE: "image_for", SERVICE_RECORD: "service record"}


def _sourced(facts: BootstrapFacts) -> Iterator[str]:
    script = _script(facts)
    sources = [command for command in script.commands if _sources(command, facts.names.library)]
    if len(sources) != 1 or not sources[0].is_unconditional:
        yield f"{facts.names.library} is not sourced exactly once, on a separate line"
        return
    place = script.place_of(sources[0])
    for library, needed in _NEEDED.items():
        before = [index for index, command in enumerate(script.flow) if _sources(command, library)]
        if not before or place < before[0]:
            yield f"line {sources[0].line} sources it before {library}, whose {needed} it needs"
    for function in functions_of(facts):
        called = script.index_of(function)
        if called is not None and called < place:
            yield f"{function} is called before line {sources[0].line} sources it"


def _sources(command: ShellCommand, path: str) -> bool:
    return command.words in ((".", path), ("source", path))


def _setup_place(facts: BootstrapFacts) -> Iterator[str]:
    names = {
        "touch etcd-bootstrap.done": _place(facts, "touch", "etcd-bootstrap.done"),
        facts.names.setup_function: _place(facts, facts.names.setup_function),
        f"the test of {KUBE_APISERVER_DONE}": _place(facts, "[", "!", "-f", KUBE_APISERVER_DONE, "]"),
    }
    yield from _order_faults(names)


def _manifests_place(facts: BootstrapFacts) -> Iterator[str]:
    names = {
        "step wait-for-etcd": _place(facts, "record_service_stage_start", "wait-for-etcd"),
        facts.names.manifests_function: _place(facts, facts.names.manifests_function),
        "step cb-bootstrap": _place(facts, "record_service_stage_start", "cb-bootstrap"),
    }
    yield from _order_faults(names)


def _cleanup_place(facts: BootstrapFacts) -> Iterator[str]:
    flow = _script(facts).flow
    checks = [index for index, command in enumerate(flow) if command.program == "check_url"]
    cleanup = _place(facts, facts.names.cleanup_function)
    names = {
        "step wait-for-ceo": _place(facts, "record_service_stage_start", "wait-for-ceo"),
        facts.names.cleanup_function: cleanup,
        "touch of .bootkube.done": _place(facts, "touch", "/opt/openshift/.bootkube.done"),
    }
    yield from _order_faults(names)
    if checks and cleanup is not None and cleanup < checks[-1]:
        yield f"{facts.names.cleanup_function} comes before the last check_url"


def _place(facts: BootstrapFacts, *words: str) -> int | None:
    return _script(facts).index_of(*words)


def _order_faults(places: dict[str, int | None]) -> Iterator[str]:
    missing = [name for name, place in places.items() if place is None]
    yield from (f"{name} is missing" for name in missing)
    present = [(name, place) for name, place in places.items() if place is not None]
    for (earlier, first), (later, second) in pairwise(present):
        if first >= second:
            yield f"{later} comes before {earlier}"


def render_commands(script: Script) -> list[ShellCommand]:
    return [command for command in script.main if (OPERATOR, "render") in pairwise(command.words)]


def _override_flag(facts: BootstrapFacts) -> Iterator[str]:
    script = _script(facts)
    renders = render_commands(script)
    if len(renders) != 1:
        yield f"{OPERATOR} render occurs {len(renders)} times, not once"
        return
    flags = [word for command in script.commands for word in command.words if word.startswith(OVERRIDE_FLAG)]
    words = renders[0].words
    given = words[words.index(OPERATOR) + 2 :]
    wanted = f"{OVERRIDE_FLAG}={facts.names.override_in_render_container}"
    if given.count(wanted) != 1:
        yield f"the command at line {renders[0].line} does not have {wanted} exactly once"
    if flags != [wanted]:
        yield f"{OVERRIDE_FLAG} occurs {len(flags)} times, not once: {', '.join(flags)}"


def _egress_copy(facts: BootstrapFacts) -> Iterator[str]:
    script = _script(facts)
    source, target = facts.names.egress, f"{BOOTSTRAP_CONFIGS_ON_HOST}/{EGRESS_FILE}"
    copies = [command for command in script.main if command.words == ("cp", source, target)]
    if len(copies) != 1:
        yield f"cp {source} {target} occurs {len(copies)} times, not once"
        return
    renders, done = render_commands(script), _place(facts, "touch", KUBE_APISERVER_DONE)
    stage = renders[0].blocks if renders else ()
    if not renders or copies[0].blocks[: len(stage)] != stage:
        yield f"line {copies[0].line}: the copy is not in the step that renders kube-apiserver"
    elif copies[0].blocks != stage or copies[0].joined_by:
        yield f"line {copies[0].line}: the copy depends on a condition that rendering does not have"
    if done is None or script.place_of(copies[0]) > done:
        yield f"line {copies[0].line}: the copy comes after the step is marked as done"


def _between_stages(facts: BootstrapFacts) -> Iterator[str]:
    stage = ""
    for command in _script(facts).flow:
        if command.program == "record_service_stage_start":
            stage = " ".join(command.words[1:])
        elif command.program in ("record_service_stage_success", "record_service_stage_failure"):
            stage = ""
        elif command.program in functions_of(facts) and stage:
            yield f"line {command.line}: {command.program} is called inside step {stage}"


def _syntax(facts: BootstrapFacts) -> Iterator[str]:
    assert facts.bash_syntax is not None
    scripts = (facts.names.library, facts.names.certificate_script) if facts.has_tunnel else ()
    for path in dict.fromkeys((BOOTKUBE, *scripts)):
        text = facts.text(path)
        complaint = facts.bash_syntax(text.encode()) if text is not None else None
        if complaint:
            yield f"{path}: {complaint}"


def _needs_bash(facts: BootstrapFacts) -> str | None:
    return None if facts.bash_syntax is not None else "bash is not installed here"


def _calls(facts: BootstrapFacts) -> Iterator[str]:
    script = _script(facts)
    ends = [command for command in script.main if command.program in _ENDS and command.is_unconditional]
    for function in functions_of(facts):
        calls = script.calls(function)
        if len(calls) != 1:
            yield f"{function} is called {len(calls)} times, not once"
        for command in calls:
            if not command.is_unconditional or len(command.words) != 1:
                yield f"line {command.line}: {function} is not called unconditionally on a separate line"
            if ends and command.line > ends[0].line:
                yield f"line {command.line}: {function} comes after line {ends[0].line}, where the script ends"


def _undoable(facts: BootstrapFacts) -> Iterator[str]:
    assert facts.config is not None
    try:
        receipt = find_receipt(facts.config)
        original = undo(IgnitionDocument(facts.content))
    except Fault as fault:
        yield fault.why
        return
    is_script_edited = bool(receipt.script_edits(original.config))
    differences = receipt.differences(original.config, original.content)
    yield from differences if is_script_edited else map(Doubt, differences)


def _needs_patch(facts: BootstrapFacts) -> str | None:
    state = facts.found_state
    return None if state is TunnelState.PATCHED else f"only a patched file has a {RECEIPT} (tunnel state {state.value})"


def _switched_off(facts: BootstrapFacts) -> Iterator[str]:
    text = facts.text(NATIVE.library)
    library = Script(text or "")
    for function in (NATIVE.setup_function, NATIVE.manifests_function, NATIVE.cleanup_function):
        body = library.functions.get(function)
        if body is None or [command.words for command in body] != [(":",)]:
            yield f"{function} of {NATIVE.library} is not empty"
    flags = [word for command in _script(facts).commands for word in command.words if word.startswith(OVERRIDE_FLAG)]
    ours = f"{OVERRIDE_FLAG}={OWN.override_in_render_container}"
    yield from (f"bootkube.sh passes {flag}" for flag in flags if flag != ours)


def _needs_native_off(facts: BootstrapFacts) -> str | None:
    state = facts.found_state
    is_beside = state is TunnelState.PATCHED and facts.text(NATIVE.library) is not None
    if state is TunnelState.NATIVE_OFF or is_beside:
        return None
    return f"the installer has no tunnel that is switched off (tunnel state {state.value})"


def _script(facts: BootstrapFacts) -> Script:
    assert facts.bootkube is not None
    return facts.bootkube


ORDER: Final[tuple[BootstrapCheck, ...]] = (
    rule(
        "B1",
        "bootkube.sh sources the library after the libraries it needs and before any call",
        "else the first call fails with 'command not found', every five seconds",
        _FIX,
        _sourced,
        tunnel,
        functions,
        bootkube,
    ),
    rule(
        "B2",
        "the server is set up after etcd is rendered and before kube-apiserver is",
        "else kube-apiserver is rendered before the server and its certificates exist",
        _FIX,
        _setup_place,
        tunnel,
        functions,
        bootkube,
    ),
    rule(
        "B3",
        "the operator's render command has the override flag, once",
        "without it kube-apiserver does not use the tunnel; outside the command the line runs as a separate command",
        _FIX,
        _override_flag,
        tunnel,
        bootkube,
    ),
    rule(
        "B4",
        "the egress selector is copied next to kube-apiserver's configuration, in the same step",
        "kube-apiserver exits at the start if the file is missing",
        _FIX,
        _egress_copy,
        tunnel,
        bootkube,
    ),
    rule(
        "B5",
        "the agents' manifests are written between wait-for-etcd and cluster-bootstrap",
        "earlier the renderers and the machine config server would read them, later nothing creates them",
        _FIX,
        _manifests_place,
        tunnel,
        functions,
        bootkube,
    ),
    rule(
        "B6",
        "the cleanup comes after wait-for-ceo and the URL checks, before .bootkube.done",
        "earlier it removes the tunnel while webhooks need it, later the machine may no longer exist",
        _FIX,
        _cleanup_place,
        tunnel,
        functions,
        bootkube,
    ),
    rule(
        "B7",
        "no call is inside another bootkube step",
        "the service record ends the script if a step starts inside another one, every five seconds",
        _FIX,
        _between_stages,
        tunnel,
        functions,
        bootkube,
    ),
    rule(
        "B8",
        "bash accepts the scripts",
        "a script with a syntax error stops at that line or does not run at all",
        _FIX,
        _syntax,
        bootkube,
        _needs_bash,
    ),
    rule(
        "B9",
        "each function of the library is called once, unconditionally",
        "a second call repeats a step, a conditional call may not run, a call after `||` hides its failure",
        _FIX,
        _calls,
        tunnel,
        functions,
        bootkube,
    ),
    rule(
        "B10",
        "undo restores the original byte for byte",
        "undo keeps edits of the installer's lines, and refuses if a line of the patch itself was edited",
        "take the edit back, or create the file again: openshift-install create ignition-configs",
        _undoable,
        bootkube,
        _needs_patch,
    ),
    rule(
        "B11",
        "the installer's own tunnel is off: empty functions and no flag",
        "with an incomplete tunnel, or two on the same port and socket, kube-apiserver cannot reach webhooks",
        "create the file again, with the installer's feature gates all on or all off",
        _switched_off,
        bootkube,
        _needs_native_off,
    ),
)
