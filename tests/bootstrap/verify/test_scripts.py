"""C8 to C11, B1 to B11: what the tunnel's scripts do, and where bootkube.sh calls them; comments are no calls."""

import pytest
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.inline_tunnel import inline_config
from tests.support.verify_subjects import NAMES, Subject, failures, findings, subject, warnings

from umbilical.bootstrap.names import INLINE, RECEIPT, RELEASE_IMAGE, SERVICE_RECORD, STAGES
from umbilical.bootstrap.patch.patch import patch
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.checks.check import Outcome
from umbilical.ignition.document import IgnitionDocument

C = ("C8", "C9", "C10", "C11")
# Without B10: whatever is done to our lines, a patch that was edited cannot be taken back.
B = ("B1", "B2", "B3", "B4", "B5", "B6", "B7", "B9", "B11")
NETWORK = "/opt/openshift/manifests/cluster-network-02-config.yml"
END = "touch /opt/openshift/.bootkube.done"
OFF = Subject(bootstrap_config("5.1", native="off"))
LIBRARY = "/usr/local/bin/konnectivity.sh"
CALLS = {"setup_function": "B2", "manifests_function": "B5", "cleanup_function": "B6"}


def every(changed: Subject, role: str, old: str, new: str) -> Subject:
    text = changed.text(role)
    assert old in text
    return changed.with_text(role, text.replace(old, new))


def line_with(changed: Subject, role: str, words: str) -> str:
    return next(line for line in changed.text(role).split("\n") if words in line)


def with_line(changed: Subject, line: str, *new: str) -> Subject:
    """Put other lines, or none, in the place of one of bootkube.sh."""
    lines = changed.text("bootkube").split("\n")
    assert lines.count(line) == 1, line
    index = lines.index(line)
    return changed.with_text("bootkube", "\n".join([*lines[:index], *new, *lines[index + 1 :]]))


def moved(changed: Subject, line: str, before: str) -> Subject:
    """Put a line of bootkube.sh in front of another one."""
    return with_line(with_line(changed, line), before, line, before)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("role", "old"),
    [
        ("server_pod", "${KONNECTIVITY_IMAGE}"),
        ("agent_daemon_set", "${KONNECTIVITY_IMAGE}"),
        ("agent_daemon_set", "${BOOTSTRAP_NODE_IP}"),
    ],
)
def test_a_placeholder_that_nobody_fills_in_fails(name: str, role: str, old: str) -> None:
    assert failures(every(subject(name), role, old, "${UNKNOWN}").content, *C) == {"C8"}


@pytest.mark.parametrize("name", ["native", "patched", "inline"])
@pytest.mark.parametrize("wrong", ["hyperkube", "'hyperkube'", "apiserver-network-prox"])
def test_the_image_of_another_program_fails(name: str, wrong: str) -> None:
    changed = Subject(inline_config(), INLINE) if name == "inline" else subject(name)
    changed = every(changed, "library", "$(image_for apiserver-network-proxy)", f"$(image_for {wrong})")
    found = findings(changed.content, "C8")["C8"]
    assert found.outcome is Outcome.FAILED
    assert found.evidence.count(f"KONNECTIVITY_IMAGE is image {wrong.strip(chr(39))!r} of the payload") == 1


def test_an_image_that_is_quoted_or_given_by_the_user_passes() -> None:
    for new in ('$(image_for "apiserver-network-proxy")', "'registry.example/own:1'"):
        changed = every(subject("native"), "library", "$(image_for apiserver-network-proxy)", new)
        assert failures(changed.content, *C) == set()


def test_an_expansion_that_is_no_placeholder_fails() -> None:
    for name in ("patched", "native"):
        changed = subject(name)
        commented = changed.with_text("agent_secret", changed.text("agent_secret") + "# ${not closed\n")
        assert failures(commented.content, *C) == {"C8"}


def test_a_substitution_that_is_gone_or_by_slashes_and_a_value_that_is_never_set_fail() -> None:
    for name in ("KONNECTIVITY_IMAGE", "BOOTSTRAP_NODE_IP", "AGENT_CERT", "AGENT_KEY", "CA_CERT"):
        changed = every(subject("patched"), "library", f"s|\\${{{name}}}|", f"s|{name}|")
        assert failures(changed.content, *C) == {"C8"}, name
    # Images and base64 hold slashes, so sed would take the rest of them for flags.
    assert failures(every(subject("native"), "library", "|", "/").content, "C8")
    assert failures(every(subject("patched"), "library", "AGENT_KEY=$(", "OTHER=$(").content) == {"C8"}


def test_a_manifest_that_nobody_reads_and_a_certificate_script_that_is_never_run_fail() -> None:
    patched = subject("patched")
    for path, check in ((patched.names.agent_daemon_set, "C8"), (patched.names.certificate_script, "C10")):
        line = line_with(patched, "library", path)
        assert failures(patched.replaced("library", line, f"# {line}").content) == {check}


def test_what_envsubst_fills_in_is_filled_in_though_nodes_do_not_have_it() -> None:
    native = subject("native")
    by_sed = 'sed -e "s|\\${KONNECTIVITY_IMAGE}|${KONNECTIVITY_IMAGE}|g" \\\n            '
    by_envsubst = f"envsubst < {native.names.server_pod} >"
    kept = native.replaced("library", f"{by_sed}{native.names.server_pod} >", by_envsubst)
    exported = kept.replaced("library", by_envsubst, f"export KONNECTIVITY_IMAGE\n        {by_envsubst}")
    assert failures(exported.content) == {"C10", "X4"}
    assert failures(kept.content) == {"C8", "C10", "X4"}
    never_set = exported.replaced("server_pod", "${KONNECTIVITY_IMAGE}", "${IMAGE}")
    assert failures(every(never_set, "library", "export KONN", "export IMAGE KONN").content) == {"C8", "C10", "X4"}


def test_a_value_that_the_first_function_leaves_to_the_second_counts() -> None:
    native = subject("native")
    setup, rest = native.text("library").split("konnectivity_manifests() {", 1)
    lines = [line for line in rest.split("\n") if "BOOTSTRAP_NODE_IP=$(" not in line]
    assert not failures(native.with_text("library", setup + "konnectivity_manifests() {" + "\n".join(lines)).content)


def test_certificates_that_the_other_end_would_refuse_fail() -> None:
    for name, old, new in (
        *[(name, "serverAuth", "clientAuth") for name in NAMES],
        *[(name, "clientAuth", "serverAuth") for name in NAMES],
        *[(name, "IP:$", "DNS:$") for name in NAMES],
        *[(name, "rsa:2048", "rsa:1024") for name in NAMES],
        ("patched", " -selfsign", ""),
        ("native", "-x509 ", ""),
        ("native", "-days 1", "-days 2"),
        ("native", "-days 1", "-days 365"),
        ("native", "-days 1", ""),
        ("patched", '-enddate "${end}" ', ""),
    ):
        assert failures(every(subject(name), "certificate_script", old, new).content, *C) == {"C9"}


def test_our_certificates_live_for_a_day_at_most() -> None:
    for hours in ("25", "0", "1000", "${HOURS}"):
        patched = subject("patched")
        line = line_with(patched, "library", patched.names.certificate_script)
        assert failures(patched.replaced("library", line, line.removesuffix("24") + hours).content, *C) == {"C9"}


def test_the_clusters_root_key_must_not_be_used() -> None:
    patched = subject("patched")
    for line, found in (("cp /opt/openshift/tls/root-ca.key x\n", {"C9"}), ("# not root-ca.key\n", set[str]())):
        text = patched.text("certificate_script") + line
        assert failures(patched.with_text("certificate_script", text).content) == found


def test_extensions_may_be_printed_into_a_pipe() -> None:
    text = """#!/usr/bin/env bash
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=signer -keyout ca.key -out ca.crt
openssl x509 -req -days 1 -in s.csr -extfile <(printf "extendedKeyUsage=serverAuth\\nsubjectAltName=IP:%s" "${1}")
openssl x509 -req -days 1 -in a.csr -extfile <(printf "extendedKeyUsage=clientAuth")
"""
    assert not failures(subject("native").with_text("certificate_script", text).content)


@pytest.mark.parametrize("name", ["patched", "native"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('record_service_stage_start "{}"', ":"),
        ('record_service_stage_start "{}"', '# record_service_stage_start "{}"'),
        ('record_service_stage_start "{}"', 'record_service_stage_start "other"'),
        ("touch {}.done", ":"),
        ("if [ ! -f {}.done ]", "if true"),
        ("if [ ! -f {}.done ]", "if [ -f {}.done ]"),
    ],
)
def test_a_stage_that_is_not_recorded_or_not_guarded_fails(name: str, old: str, new: str) -> None:
    changed = subject(name)
    for stage in STAGES:
        lines = changed.text("library").split("\n")
        # Whatever looks at a marker before the stages is no guard; the stage's own line is the last one.
        index = max(index for index, line in enumerate(lines) if old.format(stage) in line)
        lines[index] = lines[index].replace(old.format(stage), new.format(stage))
        assert failures(changed.with_text("library", "\n".join(lines)).content, *C) == {"C10"}, stage


@pytest.mark.parametrize("name", NAMES)
def test_a_cleanup_that_waits_stumbles_or_leaves_the_server_fails(name: str) -> None:
    changed = subject(name)
    lines = changed.text("library").split("\n")
    removal = next(line for line in lines if line.strip().startswith("rm ") and "manifests" in line)
    for old, new in (
        ("record_service_stage_success", ":"),
        ("--wait=false", "--wait=true"),
        ("--wait=false", ""),
        ("--ignore-not-found=true", ""),
        ("oc delete", "oc get"),
        (removal, "        :"),
    ):
        assert failures(every(changed, "library", old, new).content, *C) == {"C10"}, (old, new)


def test_a_function_of_another_name_and_envsubst_fail() -> None:
    patched = subject("patched")
    for function in CALLS:
        name = getattr(patched.names, function)
        assert failures(every(patched, "library", f"{name}() {{", f"{name}_2() {{").content, "C10"), name
    mark = "touch konnectivity-certs.done"
    assert failures(every(subject("patched"), "library", mark, f"envsubst; {mark}").content) == {"C10", "X4"}


def test_the_family_that_is_looked_for_is_the_clusters_where_that_is_known() -> None:
    for ipv6 in (False, True):
        content = patch(
            IgnitionDocument(bootstrap_config("4.18", ipv6=ipv6)), for_shape(Shape.OPENSHIFT)
        ).document.content
        assert not failures(content)
        old, new = ("fd02::/112", "172.30.0.0/16") if ipv6 else ("172.30.0.0/16", "fd02::/112")
        assert failures(Subject(content).replaced(NETWORK, old, new).content) == {"C11"}
    assert failures(every(subject("native"), "library", "ip -j", "ip -6 -j").content) == {"C11"}
    changed = subject("patched").without(NETWORK).without("/opt/openshift/manifests/cluster-config.yaml")
    assert findings(changed.content, "C11")["C11"].outcome is Outcome.SKIPPED


def fixed(address: str, *networks: str) -> bytes:
    """The installer's tunnel, told its address, in a cluster of these service networks."""
    native = subject("native")
    lines = [
        f"        BOOTSTRAP_NODE_IP='{address}'" if "BOOTSTRAP_NODE_IP=$(" in line else line
        for line in native.text("library").split("\n")
    ]
    changed = native.with_text("library", "\n".join(lines))
    return changed.replaced(NETWORK, "  - 172.30.0.0/16", "\n".join(f"  - {network}" for network in networks)).content


def test_a_fixed_address_must_be_of_a_family_that_the_cluster_has() -> None:
    assert not failures(fixed("10.0.0.9", "172.30.0.0/16"))
    assert failures(fixed("fd00::9", "172.30.0.0/16")) == {"C11"}
    assert failures(fixed("nonsense", "172.30.0.0/16")) == {"C11"}
    dual = fixed("fd00::9", "172.30.0.0/16", "fd02::/112")
    assert (failures(dual), warnings(dual)) == (set(), {"C11"})


@pytest.mark.parametrize("name", NAMES)
def test_the_library_must_be_sourced_once_and_in_time(name: str) -> None:
    changed = subject(name)
    line = f". {changed.names.library}"
    for new in ([], [f"# {line}"], [f"false && {line}"], [line, line]):
        assert failures(with_line(changed, line, *new).content, *B) == {"B1"}, new
    for before in (f". {RELEASE_IMAGE}", END):
        assert failures(moved(changed, line, before).content, *B) == {"B1"}, before
    for needed in (f". {RELEASE_IMAGE}", f". {SERVICE_RECORD}"):
        assert failures(with_line(changed, needed).content, *B) == {"B1"}
        assert failures(moved(changed, needed, "if [ ! -f openshift-manifests.done ]").content, *B) == {"B1"}


def test_source_is_another_word_for_a_dot() -> None:
    native = subject("native")
    assert not failures(with_line(native, f". {native.names.library}", f"source {native.names.library}").content)


@pytest.mark.parametrize("name", ["patched", "native"])
@pytest.mark.parametrize(
    ("function", "before"),
    [
        ("setup_function", "if [ ! -f etcd-bootstrap.done ]"),
        ("setup_function", "if [ ! -f kube-controller-manager-bootstrap.done ]"),
        ("manifests_function", "if [ ! -f stop-etcd.done ]"),
        ("manifests_function", 'if [ "$BOOTSTRAP_INPLACE" = false ] && [ ! -f cvo-overrides.done ]'),
        ("cleanup_function", 'if [ "$BOOTSTRAP_INPLACE" = false ]'),
        ("cleanup_function", "if [ ! -f api-int-dns-check.done ]"),
    ],
)
def test_a_call_at_the_wrong_place_fails(name: str, function: str, before: str) -> None:
    changed = subject(name)
    found = failures(moved(changed, getattr(changed.names, function), before).content, *B)
    assert found == {CALLS[function]}


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_is_gone_or_only_looks_like_one_fails(name: str) -> None:
    changed = subject(name)
    for function, check in CALLS.items():
        call = getattr(changed.names, function)
        for new in ([], [f"# {call}"], ["cat <<EOF", call, "EOF"]):
            assert failures(with_line(changed, call, *new).content, *B) == {"B9", check}, new
    setup, cleanup = changed.names.setup_function, changed.names.cleanup_function
    assert failures(with_line(changed, setup, "exit 0", setup).content, *B) == {"B9"}
    late = with_line(changed, cleanup)
    assert failures(late.with_text("bootkube", late.text("bootkube") + f"{cleanup}\n").content, *B) == {"B6"}


@pytest.mark.parametrize("function", CALLS)
def test_a_call_twice_or_under_a_condition_fails(function: str) -> None:
    changed = subject("patched")
    call = getattr(changed.names, function)
    for form in (
        *("{0}\n{0}", "false && {0}", "true || {0}", "{0} || true", "{0} &", "{0} | cat", "( {0} )", "{0} argument"),
        *("if false; then {0}; fi", "! {0} && true"),
    ):
        assert failures(with_line(changed, call, form.format(call)).content, *B) - {CALLS[function]} == {"B9"}, form


def flag_line(changed: Subject) -> str:
    return line_with(changed, "bootkube", f"--config-override-files={changed.names.override_in_render_container}")


@pytest.mark.parametrize("name", NAMES)
def test_the_override_flag_must_be_in_the_render_command_once(name: str) -> None:
    changed = subject(name)
    line = flag_line(changed)
    # The installer's own flag is the last one, whose command ends there; ours has a backslash behind it.
    other = line.replace("override.yaml", "other.yaml")
    assert failures(with_line(changed, line, other).content, *B) - {"B11"} == {"B3"}
    doubled = line.replace("--config", "--config-override-files=/x --config")
    assert failures(with_line(changed, line, doubled).content, *B) - {"B11"} == {"B3"}
    elsewhere = with_line(changed, line, line.replace("--config-override-files", "--other"))
    text = elsewhere.text("bootkube") + line.strip().removesuffix(" \\") + "\n"
    assert failures(elsewhere.with_text("bootkube", text).content, *B) == {"B3"}


def test_a_flag_behind_a_lost_backslash_is_outside_of_the_command() -> None:
    patched = subject("patched")
    before = patched.text("bootkube").split("\n")
    index = before.index(flag_line(patched))
    before[index - 1] = before[index - 1].removesuffix(" \\")
    assert failures(patched.with_text("bootkube", "\n".join(before)).content, "B3")


@pytest.mark.parametrize("name", NAMES)
def test_the_egress_file_must_be_copied_in_its_stage(name: str) -> None:
    changed = subject(name)
    target = "/etc/kubernetes/bootstrap-configs/egress-selector-config.yaml"
    line = line_with(changed, "bootkube", f"cp {changed.names.egress} {target}")
    gone, conditional = with_line(changed, line), with_line(changed, line, f"false && {line.strip()}")
    for wrong in (gone, conditional, moved(changed, line, END)):
        assert failures(wrong.content, *B) == {"B4"}
    renamed = with_line(changed, line, line.replace(target, "/etc/kubernetes/bootstrap-configs/e.yaml"))
    assert failures(renamed.content, "C2", *B) == {"B4", "C2"}
    elsewhere = moved(changed, line, "if [ ! -f cco-bootstrap.done ]").content
    assert failures(elsewhere, *B) == {"B4"}
    assert "not in the step" in findings(elsewhere, "B4")["B4"].evidence
    for form in ("if [ -f on ]; then\n{}\nfi", "[ -f on ] && {}", "while read -r; do\n{}\ndone"):
        on_condition = with_line(changed, line, form.format(line.strip())).content
        assert "depends on a condition" in findings(on_condition, "B4")["B4"].evidence, form


@pytest.mark.parametrize("name", ["patched", "native"])
@pytest.mark.parametrize(
    ("function", "stage", "check"),
    [
        ("setup_function", "kube-controller-manager-bootstrap", "B2"),
        ("manifests_function", "cb-bootstrap", "B5"),
        ("cleanup_function", "wait-for-ceo", ""),
    ],
)
def test_a_call_inside_an_open_stage_fails(name: str, function: str, stage: str, check: str) -> None:
    call = getattr(subject(name).names, function)
    start = f'    record_service_stage_start "{stage}"'
    found = failures(with_line(with_line(subject(name), call), start, start, call).content, *B)
    assert found - {check, "B6"} == {"B7", "B9"}


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
    patched = Subject(patch(IgnitionDocument(plain.content), for_shape(Shape.OPENSHIFT)).document.content)
    assert not failures(patched.content)
    stage = 'if [ "$BOOTSTRAP_INPLACE" = false ] && [ ! -f cvo-overrides.done ]'
    assert failures(moved(patched, patched.names.manifests_function, stage).content, *B) == {"B5"}


def test_a_syntax_error_fails_and_is_quoted_and_without_bash_it_is_not_judged() -> None:
    for role in ("bootkube", "library", "certificate_script"):
        patched = subject("patched")
        found = findings(patched.with_text(role, patched.text(role) + "if then\n").content, "B8")["B8"]
        assert found.outcome is Outcome.FAILED
        assert "syntax error" in found.evidence
    assert findings(subject("patched").content, "B8", bash_syntax=None)["B8"].outcome is Outcome.SKIPPED


def test_a_patch_without_its_receipt_cannot_be_taken_back() -> None:
    for name in ("patched", "seed", "beside-native"):
        assert failures(subject(name).without(RECEIPT).content) == {"B10"}
        assert failures(subject(name).with_text(RECEIPT, "{}").content) == {"B10"}


def test_a_script_that_was_edited_since_fails_and_another_file_warns() -> None:
    patched = subject("patched")
    assert failures(patched.with_text("bootkube", patched.text("bootkube") + "# more\n").content) == {"B10"}
    other = patched.with_text("/usr/local/bin/empty.sh", "# more\n")
    assert (failures(other.content), warnings(other.content)) == (set(), {"B10"})
    assert findings(subject("native").content, "B10")["B10"].outcome is Outcome.SKIPPED


@pytest.mark.parametrize("changed", [OFF, subject("beside-native")], ids=["off", "beside"])
def test_a_switched_off_tunnel_must_do_nothing(changed: Subject) -> None:
    for function in ("konnectivity_setup", "konnectivity_manifests", "konnectivity_cleanup"):
        for new in (f"{function}() {{\n    echo x", f"{function}_() {{"):
            assert failures(changed.replaced(LIBRARY, f"{function}() {{", new).content, *B) == {"B11"}, new


def test_a_switched_off_tunnel_has_no_flag_and_may_have_comments() -> None:
    other = OFF.replaced("bootkube", "--payload-version=$VERSION", "--config-override-files=/x")
    assert failures(other.content) == {"B11"}
    assert not failures(OFF.replaced(LIBRARY, "konnectivity_setup() {", "konnectivity_setup() {\n# echo x").content)
