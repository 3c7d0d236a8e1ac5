"""C8 to C11: what the shell library and the certificate script do, whatever their comments say."""

import pytest
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.verify_subjects import NAMES, Subject, failures, findings, subject, warnings

from umbilical.assets.bootkube.patch import patch
from umbilical.assets.names import STAGES
from umbilical.assets.spec import Shape, for_shape
from umbilical.assets.verify.script_rules import SCRIPT_RULES
from umbilical.checks.check import Outcome
from umbilical.ignition.document import Document

NETWORK = "/opt/openshift/manifests/cluster-network-02-config.yml"


def every(changed: Subject, role: str, old: str, new: str) -> Subject:
    text = changed.text(role)
    assert old in text
    return changed.with_text(role, text.replace(old, new))


def test_the_checks_are_numbered() -> None:
    assert [check.id for check in SCRIPT_RULES] == ["C8", "C9", "C10", "C11"]


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
    assert failures(every(subject(name), role, old, "${UNKNOWN}").content) == {"C8"}


@pytest.mark.parametrize("name", ["patched", "native"])
def test_an_expansion_that_is_no_placeholder_fails(name: str) -> None:
    changed = subject(name)
    commented = changed.with_text("agent_secret", changed.text("agent_secret") + "# ${not closed\n")
    assert failures(commented.content) == {"C8"}


@pytest.mark.parametrize("line", ["KONNECTIVITY_IMAGE", "BOOTSTRAP_NODE_IP", "AGENT_CERT", "AGENT_KEY", "CA_CERT"])
def test_a_substitution_that_is_gone_fails(line: str) -> None:
    changed = every(subject("patched"), "library", f"s|\\${{{line}}}|", f"s|{line}|")
    assert failures(changed.content) == {"C8"}


def test_a_substitution_by_slashes_is_none() -> None:
    # Images and base64 hold slashes, so sed would take the rest of them for flags.
    text = subject("native").text("library").replace("|", "/")
    assert "C8" in failures(subject("native").with_text("library", text).content)


def test_a_value_that_is_never_set_fails() -> None:
    changed = every(subject("patched"), "library", "AGENT_KEY=$(", "OTHER=$(")
    assert failures(changed.content) == {"C8"}


def test_a_manifest_that_nobody_reads_fails() -> None:
    patched = subject("patched")
    line = next(line for line in patched.text("library").split("\n") if patched.names.agent_daemon_set in line)
    assert failures(patched.replaced("library", line, f"# {line}").content) == {"C8"}


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
    text = native.text("library")
    setup, rest = text.split("konnectivity_manifests() {", 1)
    lines = [line for line in rest.split("\n") if "BOOTSTRAP_NODE_IP=$(" not in line]
    assert not failures(native.with_text("library", setup + "konnectivity_manifests() {" + "\n".join(lines)).content)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("serverAuth", "clientAuth"),
        ("clientAuth", "serverAuth"),
        ("IP:$", "DNS:$"),
        ("rsa:2048", "rsa:1024"),
    ],
)
def test_certificates_that_the_other_end_would_refuse_fail(name: str, old: str, new: str) -> None:
    assert failures(every(subject(name), "certificate_script", old, new).content) == {"C9"}


def test_the_clusters_root_key_must_not_be_used() -> None:
    patched = subject("patched")
    text = patched.text("certificate_script") + "cp /opt/openshift/tls/root-ca.key x\n"
    assert failures(patched.with_text("certificate_script", text).content) == {"C9"}
    commented = patched.text("certificate_script") + "# not root-ca.key\n"
    assert not failures(patched.with_text("certificate_script", commented).content)


@pytest.mark.parametrize(("name", "old", "new"), [("patched", " -selfsign", ""), ("native", "-x509 ", "")])
def test_an_authority_of_ones_own_is_needed(name: str, old: str, new: str) -> None:
    assert failures(every(subject(name), "certificate_script", old, new).content) == {"C9"}


@pytest.mark.parametrize("days", ["-days 2", "-days 365", ""])
def test_an_installers_certificates_live_for_a_day(days: str) -> None:
    assert failures(every(subject("native"), "certificate_script", "-days 1", days).content) == {"C9"}


@pytest.mark.parametrize("hours", ["25", "0", "1000", "${HOURS}"])
def test_our_certificates_live_for_a_day_at_most(hours: str) -> None:
    patched = subject("patched")
    line = next(line for line in patched.text("library").split("\n") if patched.names.certificate_script in line)
    assert failures(patched.replaced("library", line, line.removesuffix("24") + hours).content) == {"C9"}


def test_certificates_without_an_end_fail() -> None:
    assert failures(every(subject("patched"), "certificate_script", '-enddate "${end}" ', "").content) == {"C9"}


def test_extensions_may_be_printed_into_a_pipe() -> None:
    native = subject("native")
    text = """#!/usr/bin/env bash
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=signer -keyout ca.key -out ca.crt
openssl x509 -req -days 1 -in s.csr -extfile <(printf "extendedKeyUsage=serverAuth\\nsubjectAltName=IP:%s" "${1}")
openssl x509 -req -days 1 -in a.csr -extfile <(printf "extendedKeyUsage=clientAuth")
"""
    assert not failures(native.with_text("certificate_script", text).content)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stage", STAGES)
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
def test_a_stage_that_is_not_recorded_or_not_guarded_fails(name: str, stage: str, old: str, new: str) -> None:
    changed = subject(name)
    lines = changed.text("library").split("\n")
    # Whatever looks at a marker before the stages is no guard; the stage's own line is the last one.
    index = max(index for index, line in enumerate(lines) if old.format(stage) in line)
    lines[index] = lines[index].replace(old.format(stage), new.format(stage))
    assert failures(changed.with_text("library", "\n".join(lines)).content) == {"C10"}


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_that_never_succeeds_fails(name: str) -> None:
    assert failures(every(subject(name), "library", "record_service_stage_success", ":").content) == {"C10"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--wait=false", "--wait=true"),
        ("--wait=false", ""),
        ("--ignore-not-found=true", ""),
        ("oc delete", "oc get"),
    ],
)
def test_a_cleanup_that_waits_or_stumbles_fails(name: str, old: str, new: str) -> None:
    assert failures(every(subject(name), "library", old, new).content) == {"C10"}


@pytest.mark.parametrize("name", NAMES)
def test_a_cleanup_that_leaves_the_server_fails(name: str) -> None:
    changed = subject(name)
    line = next(
        line for line in changed.text("library").split("\n") if line.strip().startswith("rm ") and "manifests" in line
    )
    assert failures(changed.replaced("library", line, "        :").content) == {"C10"}


@pytest.mark.parametrize("function", ["setup_function", "manifests_function", "cleanup_function"])
def test_a_function_of_another_name_fails(function: str) -> None:
    patched = subject("patched")
    name = getattr(patched.names, function)
    assert "C10" in failures(every(patched, "library", f"{name}() {{", f"{name}_2() {{").content)


def test_a_certificate_script_that_is_never_run_fails() -> None:
    patched = subject("patched")
    line = next(line for line in patched.text("library").split("\n") if patched.names.certificate_script in line)
    assert failures(patched.replaced("library", line, f"        # {line.strip()}").content) == {"C10"}


def test_envsubst_fails() -> None:
    changed = every(
        subject("patched"), "library", "touch konnectivity-certs.done", "envsubst; touch konnectivity-certs.done"
    )
    assert failures(changed.content) == {"C10", "X4"}


@pytest.mark.parametrize("ipv6", [False, True])
def test_the_family_that_is_looked_for_is_the_clusters(ipv6: bool) -> None:
    content = patch(Document(bootstrap_config("4.18", ipv6=ipv6)), for_shape(Shape.OPENSHIFT)).document.content
    assert not failures(content)
    old, new = ("fd02::/112", "172.30.0.0/16") if ipv6 else ("172.30.0.0/16", "fd02::/112")
    assert failures(Subject(content).replaced(NETWORK, old, new).content) == {"C11"}


def test_an_installers_address_of_the_wrong_family_fails() -> None:
    assert failures(every(subject("native"), "library", "ip -j", "ip -6 -j").content) == {"C11"}


def fixed(address: str, *networks: str) -> bytes:
    """The installer's tunnel, told its address, in a cluster of these service networks."""
    lines = [
        f"        BOOTSTRAP_NODE_IP='{address}'" if "BOOTSTRAP_NODE_IP=$(" in line else line
        for line in subject("native").text("library").split("\n")
    ]
    changed = subject("native").with_text("library", "\n".join(lines))
    return changed.replaced(NETWORK, "  - 172.30.0.0/16", "\n".join(f"  - {network}" for network in networks)).content


def test_a_fixed_address_must_be_of_a_family_that_the_cluster_has() -> None:
    assert not failures(fixed("10.0.0.9", "172.30.0.0/16"))
    assert failures(fixed("fd00::9", "172.30.0.0/16")) == {"C11"}
    assert failures(fixed("nonsense", "172.30.0.0/16")) == {"C11"}


def test_a_fixed_address_of_a_second_family_is_worth_a_warning() -> None:
    dual = fixed("fd00::9", "172.30.0.0/16", "fd02::/112")
    assert (failures(dual), warnings(dual)) == (set(), {"C11"})


def test_without_a_network_in_the_file_the_family_cannot_be_judged() -> None:
    changed = subject("patched").without(NETWORK).without("/opt/openshift/manifests/cluster-config.yaml")
    assert findings(changed.content)["C11"].outcome is Outcome.SKIPPED
