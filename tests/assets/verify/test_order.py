"""B1 to B11: where bootkube.sh calls the tunnel, and that nothing which looks like a call passes for one."""

import pytest
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.verify_subjects import NAMES, Subject, failures, findings, subject, warnings

from umbilical.assets.bootkube.patch import patch
from umbilical.assets.names import RECEIPT, RELEASE_IMAGE, SERVICE_RECORD
from umbilical.assets.spec import Shape, for_shape
from umbilical.assets.verify.order import ORDER
from umbilical.checks.check import Outcome
from umbilical.ignition.document import Document

# Whatever is done to our lines, a patch that was edited cannot be taken back.
UNDO = {"B10"}


def without_line(changed: Subject, line: str) -> Subject:
    lines = changed.text("bootkube").split("\n")
    assert lines.count(line) == 1, line
    lines.remove(line)
    return changed.with_text("bootkube", "\n".join(lines))


def moved(changed: Subject, line: str, before: str) -> Subject:
    """Put a line in front of another one."""
    shorter = without_line(changed, line)
    lines = shorter.text("bootkube").split("\n")
    lines.insert(lines.index(before), line)
    return shorter.with_text("bootkube", "\n".join(lines))


def test_the_checks_are_numbered() -> None:
    assert [check.id for check in ORDER] == [f"B{number}" for number in range(1, 12)]


@pytest.mark.parametrize("name", NAMES)
def test_the_library_must_be_sourced(name: str) -> None:
    changed = subject(name)
    line = f". {changed.names.library}"
    assert failures(without_line(changed, line).content) - UNDO == {"B1"}
    assert failures(changed.replaced("bootkube", line, f"# {line}").content) - UNDO == {"B1"}
    assert failures(changed.replaced("bootkube", line, f"false && {line}").content) - UNDO == {"B1"}
    assert failures(changed.replaced("bootkube", line, f"{line}\n{line}").content) - UNDO == {"B1"}


@pytest.mark.parametrize("name", NAMES)
def test_the_library_must_be_sourced_in_time(name: str) -> None:
    changed = subject(name)
    line = f". {changed.names.library}"
    assert failures(moved(changed, line, f". {RELEASE_IMAGE}").content) - UNDO == {"B1"}
    assert failures(moved(changed, line, "touch /opt/openshift/.bootkube.done").content) - UNDO == {"B1"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("needed", [RELEASE_IMAGE, SERVICE_RECORD])
def test_what_the_library_needs_must_be_sourced_before(name: str, needed: str) -> None:
    changed = subject(name)
    assert failures(without_line(changed, f". {needed}").content) - UNDO == {"B1"}
    assert failures(moved(changed, f". {needed}", "if [ ! -f openshift-manifests.done ]").content) - UNDO == {"B1"}


def test_source_is_another_word_for_a_dot() -> None:
    native = subject("native")
    line = f". {native.names.library}"
    assert not failures(native.replaced("bootkube", line, line.replace(". ", "source ", 1)).content)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("function", "check", "before"),
    [
        ("setup_function", "B2", "if [ ! -f etcd-bootstrap.done ]"),
        ("setup_function", "B2", "if [ ! -f kube-controller-manager-bootstrap.done ]"),
        ("manifests_function", "B5", "if [ ! -f stop-etcd.done ]"),
        ("manifests_function", "B5", 'if [ "$BOOTSTRAP_INPLACE" = false ] && [ ! -f cvo-overrides.done ]'),
        ("cleanup_function", "B6", 'if [ "$BOOTSTRAP_INPLACE" = false ]'),
        ("cleanup_function", "B6", "if [ ! -f api-int-dns-check.done ]"),
    ],
)
def test_a_call_at_the_wrong_place_fails(name: str, function: str, check: str, before: str) -> None:
    changed = subject(name)
    assert failures(moved(changed, getattr(changed.names, function), before).content) - UNDO == {check}


@pytest.mark.parametrize("name", NAMES)
def test_a_cleanup_after_the_end_fails(name: str) -> None:
    changed = subject(name)
    call = changed.names.cleanup_function
    shorter = without_line(changed, call)
    text = shorter.text("bootkube") + f"{call}\n"
    assert failures(shorter.with_text("bootkube", text).content) - UNDO == {"B6"}


CALLS = {"setup_function": "B2", "manifests_function": "B5", "cleanup_function": "B6"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("function", CALLS)
def test_a_call_that_is_gone_or_only_a_comment_fails(name: str, function: str) -> None:
    changed = subject(name)
    call = getattr(changed.names, function)
    assert failures(without_line(changed, call).content) - UNDO == {"B9", CALLS[function]}
    lines = [f"# {line}" if line == call else line for line in changed.text("bootkube").split("\n")]
    assert failures(changed.with_text("bootkube", "\n".join(lines)).content) - UNDO == {"B9", CALLS[function]}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("function", CALLS)
@pytest.mark.parametrize(
    "form",
    [
        "{0}\n{0}",
        "false && {0}",
        "true || {0}",
        "{0} || true",
        "{0} &",
        "{0} | cat",
        "if false; then {0}; fi",
        "( {0} )",
        "{0} argument",
        "! {0} && true",
    ],
)
def test_a_call_twice_or_under_a_condition_fails(name: str, function: str, form: str) -> None:
    changed = subject(name)
    call = getattr(changed.names, function)
    lines = [form.format(call) if line == call else line for line in changed.text("bootkube").split("\n")]
    found = failures(changed.with_text("bootkube", "\n".join(lines)).content)
    assert found - UNDO - {CALLS[function]} == {"B9"}


@pytest.mark.parametrize("name", NAMES)
def test_a_call_behind_the_scripts_end_fails(name: str) -> None:
    changed = subject(name)
    call = changed.names.setup_function
    lines = [f"exit 0\n{line}" if line == call else line for line in changed.text("bootkube").split("\n")]
    assert failures(changed.with_text("bootkube", "\n".join(lines)).content) - UNDO == {"B9"}


@pytest.mark.parametrize("name", NAMES)
def test_a_call_in_a_here_document_is_none(name: str) -> None:
    changed = subject(name)
    call = changed.names.manifests_function
    lines = [f"cat <<EOF\n{line}\nEOF" if line == call else line for line in changed.text("bootkube").split("\n")]
    assert failures(changed.with_text("bootkube", "\n".join(lines)).content) - UNDO == {"B5", "B9"}


def flag_line(changed: Subject) -> str:
    wanted = f"--config-override-files={changed.names.override_in_render_container}"
    return next(line for line in changed.text("bootkube").split("\n") if wanted in line)


@pytest.mark.parametrize("name", NAMES)
def test_the_override_flag_must_be_in_the_render_command_once(name: str) -> None:
    changed = subject(name)
    line = flag_line(changed)
    # The installer's own flag is the last one, whose command ends there; ours has a backslash behind it.
    other = line.replace("override.yaml", "other.yaml")
    assert failures(changed.replaced("bootkube", line, other).content) - UNDO - {"B11"} == {"B3"}
    doubled = line.replace("--config", "--config-override-files=/x --config")
    assert failures(changed.replaced("bootkube", line, doubled).content) - UNDO - {"B11"} == {"B3"}
    elsewhere = changed.replaced("bootkube", line, line.replace("--config-override-files", "--other"))
    text = elsewhere.text("bootkube") + line.strip().removesuffix(" \\") + "\n"
    assert failures(elsewhere.with_text("bootkube", text).content) - UNDO == {"B3"}


def test_a_flag_behind_a_lost_backslash_is_outside_of_the_command() -> None:
    patched = subject("patched")
    line = flag_line(patched)
    before = patched.text("bootkube").split("\n")
    index = before.index(line)
    before[index - 1] = before[index - 1].removesuffix(" \\")
    assert "B3" in failures(patched.with_text("bootkube", "\n".join(before)).content)


@pytest.mark.parametrize("name", NAMES)
def test_the_egress_file_must_be_copied_in_its_stage(name: str) -> None:
    changed = subject(name)
    target = "/etc/kubernetes/bootstrap-configs/egress-selector-config.yaml"
    line = next(line for line in changed.text("bootkube").split("\n") if f"cp {changed.names.egress} {target}" in line)
    assert failures(without_line(changed, line).content) - UNDO == {"B4"}
    assert failures(changed.replaced("bootkube", line, f"false && {line.strip()}").content) - UNDO == {"B4"}
    assert failures(moved(changed, line, "touch /opt/openshift/.bootkube.done").content) - UNDO == {"B4"}
    assert failures(moved(changed, line, "if [ ! -f cco-bootstrap.done ]").content) - UNDO == {"B4"}
    renamed = changed.replaced("bootkube", line, line.replace(target, "/etc/kubernetes/bootstrap-configs/e.yaml"))
    assert failures(renamed.content) - UNDO == {"B4", "C2"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["if [ -f on ]; then\n{}\nfi", "[ -f on ] && {}", "while read -r; do\n{}\ndone"])
def test_a_copy_on_a_condition_is_told_from_one_in_another_stage(name: str, form: str) -> None:
    changed = subject(name)
    line = next(line for line in changed.text("bootkube").split("\n") if f"cp {changed.names.egress} " in line)
    on_condition = changed.replaced("bootkube", line, form.format(line.strip()))
    assert "depends on a condition" in findings(on_condition.content)["B4"].evidence
    elsewhere = moved(changed, line, "if [ ! -f cco-bootstrap.done ]")
    assert "not in the stage" in findings(elsewhere.content)["B4"].evidence


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("function", "stage", "check"),
    [
        ("setup_function", "kube-controller-manager-bootstrap", "B2"),
        ("manifests_function", "cb-bootstrap", "B5"),
        ("cleanup_function", "wait-for-ceo", ""),
    ],
)
def test_a_call_inside_an_open_stage_fails(name: str, function: str, stage: str, check: str) -> None:
    changed = subject(name)
    call = getattr(changed.names, function)
    lines = without_line(changed, call).text("bootkube").split("\n")
    lines.insert(lines.index(f'    record_service_stage_start "{stage}"') + 1, call)
    found = failures(changed.with_text("bootkube", "\n".join(lines)).content)
    assert found - UNDO - {check, "B6"} == {"B7", "B9"}


def in_function(script: str) -> str:
    """Begin the last big stage inside a function, as the installers really do."""
    start = '    record_service_stage_start "cb-bootstrap"\n'
    assert script.count(start) == 1
    script = script.replace(start, "    run_cluster_bootstrap\n")
    return script.replace('echo "Starting', f'run_cluster_bootstrap() {{\n{start}}}\necho "Starting', 1)


@pytest.mark.parametrize("release", ["4.12", "4.18", "5.1"])
def test_a_stage_that_begins_inside_a_function_is_seen(release: str) -> None:
    plain = Subject(bootstrap_config(release))
    plain = plain.with_text("bootkube", in_function(plain.text("bootkube")))
    patched = Subject(patch(Document(plain.content), for_shape(Shape.OPENSHIFT)).document.content)
    assert not failures(patched.content)
    call = patched.names.manifests_function
    found = failures(moved(patched, call, 'if [ "$BOOTSTRAP_INPLACE" = false ] && [ ! -f cvo-overrides.done ]').content)
    assert found - UNDO == {"B5"}


@pytest.mark.parametrize("role", ["bootkube", "library", "certificate_script"])
def test_a_syntax_error_fails_and_is_quoted(role: str) -> None:
    patched = subject("patched")
    broken = patched.with_text(role, patched.text(role) + "if then\n").content
    assert "B8" in failures(broken)
    assert "syntax error" in findings(broken)["B8"].evidence


def test_without_bash_the_syntax_is_not_judged() -> None:
    assert findings(subject("patched").content, bash_syntax=None)["B8"].outcome is Outcome.SKIPPED


@pytest.mark.parametrize("name", ["patched", "seed", "beside-native"])
def test_a_patch_without_its_receipt_cannot_be_taken_back(name: str) -> None:
    assert failures(subject(name).without(RECEIPT).content) == {"B10"}
    assert failures(subject(name).with_text(RECEIPT, "{}").content) == {"B10"}


def test_a_script_that_was_edited_since_fails_and_another_file_warns() -> None:
    patched = subject("patched")
    edited = patched.with_text("bootkube", patched.text("bootkube") + "# more\n")
    assert failures(edited.content) == {"B10"}
    other = patched.with_text("/usr/local/bin/empty.sh", "# more\n")
    assert (failures(other.content), warnings(other.content)) == (set(), {"B10"})


@pytest.mark.parametrize("name", ["native"])
def test_only_a_patch_can_be_taken_back(name: str) -> None:
    assert findings(subject(name).content)["B10"].outcome is Outcome.SKIPPED


OFF = Subject(bootstrap_config("5.1", native="off"))
LIBRARY = "/usr/local/bin/konnectivity.sh"


@pytest.mark.parametrize("changed", [OFF, subject("beside-native")], ids=["off", "beside"])
@pytest.mark.parametrize("function", ["konnectivity_setup", "konnectivity_manifests", "konnectivity_cleanup"])
def test_a_switched_off_tunnel_must_do_nothing(changed: Subject, function: str) -> None:
    assert not failures(changed.content)
    busy = changed.replaced(LIBRARY, f"{function}() {{", f"{function}() {{\n    echo x")
    assert failures(busy.content) == {"B11"}
    gone = changed.replaced(LIBRARY, f"{function}() {{", f"{function}_() {{")
    assert failures(gone.content) == {"B11"}


def test_a_switched_off_tunnel_has_no_flag() -> None:
    other = OFF.replaced("bootkube", "--payload-version=$VERSION", "--config-override-files=/x")
    assert failures(other.content) == {"B11"}


def test_a_comment_in_an_empty_function_is_no_command() -> None:
    assert not failures(OFF.replaced(LIBRARY, "konnectivity_setup() {", "konnectivity_setup() {\n# echo x").content)
