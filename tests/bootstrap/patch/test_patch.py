import ipaddress
import json
import subprocess
from typing import Any

import pytest
from tests.support.bootkube_script import bootkube_script
from tests.support.bootstrap_corpus import CORPUS, NATIVE_RELEASES, Case, bootstrap_config

from umbilical.bootstrap.names import BOOTKUBE, OWN, RECEIPT, SERVICE_RECORD
from umbilical.bootstrap.patch.config_facts import TunnelState, tunnel_state_of
from umbilical.bootstrap.patch.patch import patch, undo
from umbilical.bootstrap.patch.receipt import find_receipt
from umbilical.bootstrap.render.render import render
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.fault import IgnitionError, RenderError
from umbilical.ignition.config import Config, faults
from umbilical.ignition.document import IgnitionDocument

SPEC = for_shape(Shape.OPENSHIFT)


def _patched(content: bytes) -> IgnitionDocument:
    return patch(IgnitionDocument(content), SPEC).document


def _script(config: Config) -> str:
    (file,) = config.files_at(BOOTKUBE)
    return file.text()


def _refusal(content: bytes, platform: str | None = None) -> RenderError:
    with pytest.raises(RenderError) as refused:
        patch(IgnitionDocument(content), SPEC, platform)
    return refused.value


@pytest.mark.parametrize("case", CORPUS, ids=str)
def test_a_config_of_the_corpus_is_patched_once_and_undone_and_nothing_else_is_touched(case: Case) -> None:
    before = IgnitionDocument(case.content())
    after = patch(before, SPEC).document
    assert undo(after).content == before.content
    again = patch(after, SPEC)
    assert again.document.content == after.content
    assert (again.plan.changes_nothing, again.plan.changes) == (True, ())
    paths = [file.path for file in before.config.files]
    assert [file.path for file in after.config.files][: len(paths)] == paths
    assert [path for path in paths if path != BOOTKUBE and after.entry_text(path) != before.entry_text(path)] == []
    rest = [key for key in before.config.value if key != "storage"]
    assert all(after.config.value[key] == before.config.value[key] for key in rest)
    assert faults(after.config) == []
    assert (tunnel_state_of(after.config), after.config.version) == (TunnelState.PATCHED, "3.2.0")
    subprocess.run(["bash", "-n"], input=_script(after.config).encode(), check=True, timeout=30)


def test_our_files_have_the_modes_owner_and_form_of_the_installers() -> None:
    entries = {file.path: file.entry for file in _patched(bootstrap_config()).config.files}
    installers = entries["/usr/local/bin/release-image.sh"]
    for asset in render(patch(IgnitionDocument(bootstrap_config()), SPEC).plan.spec):
        entry = entries[asset.path]
        assert list(entry) == list(installers)
        assert entry["user"] == {"name": "root"}
        assert entry["overwrite"] is True
        assert entry["mode"] == (365 if asset.path.endswith(".sh") else 384)
        assert entry["contents"]["source"].startswith("data:text/plain;charset=utf-8;base64,")
    assert entries[RECEIPT]["mode"] == 384


def test_modes_of_what_is_changed_stay() -> None:
    for case in (Case("4.18"), Case("4.19", gzip=True, hashes=True)):
        before, after = IgnitionDocument(case.content()), _patched(case.content())
        old, new = before.config.files_at(BOOTKUBE)[0].entry, after.config.files_at(BOOTKUBE)[0].entry
        assert {**new, "contents": None} == {**old, "contents": None}
        assert new["contents"].keys() == old["contents"].keys()


def test_nothing_of_a_certificate_or_a_key_is_in_the_patch() -> None:
    before = {file.path for file in IgnitionDocument(bootstrap_config()).config.files}
    for file in _patched(bootstrap_config()).config.files:
        if file.path not in before:
            assert not file.path.endswith((".crt", ".key"))
            assert "-----BEGIN" not in file.text()


def test_what_the_spec_leaves_open_comes_from_the_config() -> None:
    plan = patch(IgnitionDocument(bootstrap_config(ipv6=True, platform="vsphere")), SPEC).plan
    assert plan.spec.use_ipv6
    assert [str(network) for network in plan.spec.machine_networks] == ["fd2e:6f44:5dd8::/64"]
    assert plan.platform == "vsphere"
    assert patch(IgnitionDocument(bootstrap_config()), SPEC, "none").plan.platform == "none"


def test_a_config_that_was_patched_otherwise_is_brought_to_the_new_spec() -> None:
    content = bootstrap_config()
    other = SPEC.replace(agent_port=9123)
    first = patch(IgnitionDocument(content), other)
    second = patch(first.document, SPEC)
    assert second.document.content == _patched(content).content
    assert second.plan.tunnel_state is TunnelState.PATCHED
    assert {change.sign for change in second.plan.changes} == {"~"}
    assert undo(second.document).content == content


def test_a_file_that_the_new_spec_does_not_need_goes() -> None:
    seed = for_shape(Shape.SEED)
    plan = patch(_patched(bootstrap_config()), seed).plan
    assert [change.path for change in plan.changes if change.sign == "-"] == [OWN.namespace]


@pytest.mark.parametrize("case", [Case("4.18"), Case("4.19", gzip=True), Case("4.21", percent=True)], ids=str)
@pytest.mark.parametrize("options", [{}, {"indent": 3}, {"sort_keys": True}], ids=["plain", "indented", "sorted"])
def test_undo_of_a_file_that_was_marshalled_anew_leaves_the_rest_as_found(case: Case, options: dict[str, Any]) -> None:
    content = case.content()
    # As `create cluster` and other tools do it: another order of keys, other escapes, other blanks.
    marshalled = json.dumps(json.loads(_patched(content).content), **options)
    undone = undo(IgnitionDocument(marshalled.encode()))
    assert json.loads(undone.content) == json.loads(content)


def test_undo_keeps_what_others_changed_since() -> None:
    patched = _patched(bootstrap_config(gzip=True))
    script = _script(patched.config).replace("#!/usr/bin/env bash\n", "#!/usr/bin/env bash\n# mine\n")
    note = {"path": "/etc/note", "mode": 420, "contents": {"source": "data:,note"}}
    changed = patched.with_content(BOOTKUBE, script.encode()).with_files([note])
    undone = undo(changed)
    assert "\n# mine\n" in _script(undone.config)
    assert "umbilical" not in _script(undone.config)
    assert undone.config.files[-1].path == "/etc/note"
    assert not any("umbilical" in file.path for file in undone.config.files)


INSTALLERS_LINE = 'echo "Starting cluster-bootstrap..."'


def _edited(document: IgnitionDocument, old: str = INSTALLERS_LINE, new: str = "echo mine") -> IgnitionDocument:
    script = _script(document.config)
    assert script.count(old) == 1
    return document.with_content(BOOTKUBE, script.replace(old, new).encode())


def _told(document: IgnitionDocument) -> tuple[str, ...]:
    """What undo says about the differences to the installer's file."""
    undone = undo(document)
    return find_receipt(document.config).differences(undone.config, undone.content)


@pytest.mark.parametrize("case", [Case("4.18"), Case("4.19", gzip=True)], ids=str)
def test_an_edit_of_the_installers_lines_is_told_by_undo_also_after_a_second_patch(case: Case) -> None:
    content = case.content()
    edited = _edited(_patched(content))
    again = patch(edited, SPEC).document
    assert again.content == edited.content
    other = patch(edited, SPEC.replace(agent_port=9123)).document
    for document in (edited, again, other):
        assert _told(document) == ("bootkube.sh has a new or changed line 'echo mine'",)
    assert _told(_edited(other, "echo mine", INSTALLERS_LINE)) == ()
    assert undo(_edited(other, "echo mine", INSTALLERS_LINE)).content == content


def test_lines_that_were_removed_or_added_are_told_and_many_are_counted() -> None:
    patched = _patched(bootstrap_config())
    first = "#!/usr/bin/env bash\n"
    assert _told(_edited(patched, f"{INSTALLERS_LINE}\n", "")) == (
        "bootkube.sh lost 1 of its lines, between 'fi' and 'if [ ! -f cb-bootstrap.done ]'",
    )
    (told_first,) = _told(_edited(patched, first, ""))
    assert told_first.startswith("bootkube.sh lost 1 of its lines, between the beginning and '# Brings a ")
    told = _told(_edited(patched, first, first + "".join(f"echo {number}\n" for number in range(9))))
    assert told[:2] == tuple(f"bootkube.sh has a new or changed line 'echo {number}'" for number in range(2))
    assert told[3:] == ("6 more edits of bootkube.sh",)


def test_a_change_outside_of_bootkube_is_told_as_such() -> None:
    note = {"path": "/etc/note", "mode": 420, "contents": {"source": "data:,note"}}
    (told,) = _told(_patched(bootstrap_config()).with_files([note]))
    assert "other entries or the formatting" in told


def _of_an_older_version(document: IgnitionDocument) -> IgnitionDocument:
    (file,) = document.config.files_at(RECEIPT)
    value = json.loads(file.text())
    del value["scriptLines"]
    return document.with_content(RECEIPT, json.dumps(value, indent=2).encode())


def test_a_receipt_of_an_older_version_undoes_and_is_renewed_by_the_next_patch() -> None:
    content = bootstrap_config()
    older = _of_an_older_version(_patched(content))
    assert undo(older).content == content
    assert patch(older, SPEC).document.content == _patched(content).content
    edited = _edited(older)
    assert _told(edited) == _told(patch(edited, SPEC).document) == ("bootkube.sh was edited after the patch",)


def test_undo_does_not_mind_a_file_of_ours_that_is_gone() -> None:
    content = bootstrap_config()
    assert undo(_patched(content).without_files([OWN.egress])).content == content


def test_undo_of_a_config_that_is_not_patched_is_refused() -> None:
    for native in ("none", "off", "on"):
        with pytest.raises(RenderError, match="UMB128 the config is not patched"):
            undo(IgnitionDocument(Case("5.0", native=native).content()))


def test_undo_without_receipt_or_of_lines_that_were_edited_is_refused() -> None:
    with pytest.raises(RenderError, match=r"UMB129.*\n.*receipt\.json is missing"):
        undo(_patched(bootstrap_config()).without_files([RECEIPT]))
    assert _refusal(_patched(bootstrap_config()).without_files([RECEIPT]).content).code == "UMB129"
    patched = _patched(bootstrap_config())
    script = _script(patched.config).replace("umbilical_cleanup\n", "umbilical_cleanup || true\n")
    with pytest.raises(RenderError, match="UMB129"):
        undo(patched.with_content(BOOTKUBE, script.encode()))


def test_an_installer_whose_own_tunnel_is_off_is_patched_beside_it_and_told_of_the_gates() -> None:
    made = patch(IgnitionDocument(bootstrap_config("5.1", native="off")), SPEC)
    assert made.plan.tunnel_state is TunnelState.NATIVE_OFF
    assert any("CRDCompatibilityRequirementOperator or ClusterAPIMachineManagement" in n for n in made.plan.notes())
    script = _script(made.document.config)
    assert script.index("konnectivity_setup\n") < script.index("umbilical_setup\n")


def test_an_installer_whose_own_tunnel_is_on_is_refused_and_verify_offered() -> None:
    remedy = "no patch needed; check the installer's tunnel: umbilical bootstrap verify FILE"
    for release in NATIVE_RELEASES:
        refused = _refusal(bootstrap_config(release, native="on"))
        assert (refused.code, refused.remedy) == ("UMB124", remedy), release


def _with_file(path: str) -> bytes:
    return bootstrap_config(extra_files=({"path": path, "mode": 420, "contents": {"source": "data:,mine"}},))


OVERRIDE = "--config-override-files=/assets/x.yaml \\\n--asset-input"


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (bootstrap_config(pointer=True), "UMB122", ""),
        (bootstrap_config(in_place=True), "UMB123", "BOOTSTRAP_INPLACE=true"),
        (bootstrap_config(script=bootkube_script("4.18").replace("--asset-input", OVERRIDE)), "UMB125", ""),
        (_with_file(OWN.library), "UMB125", OWN.library),
        (_with_file(OWN.egress), "UMB125", OWN.egress),
        (_with_file("relative"), "UMB127", "even without the patch"),
    ],
    ids=["pointer", "in place", "another override", "our library", "our egress file", "not for Ignition"],
)
def test_a_config_that_is_no_installers_or_in_our_way_is_refused(content: bytes, code: str, words: str) -> None:
    refused = _refusal(content)
    assert refused.code == code
    assert words in refused.what + refused.why


def test_every_stable_version_is_taken_and_stays_and_others_are_refused() -> None:
    for version in ("3.0.0", "3.1.0", "3.3.0", "3.4.0", "3.5.0"):
        content = bootstrap_config(version=version)
        made = _patched(content)
        assert (made.config.version, undo(made).content) == (version, content)
    for version in ("2.2.0", "3.6.0", "3.6.0-experimental", "3", "4.0.0"):
        with pytest.raises(IgnitionError, match=r"UMB141"):
            patch(IgnitionDocument(bootstrap_config(version=version)), SPEC)


def test_a_config_without_a_bootkube_of_its_own_is_refused() -> None:
    plain = IgnitionDocument(bootstrap_config())
    entry = plain.config.files_at(BOOTKUBE)[0].entry
    without = plain.without_files([BOOTKUBE])
    fetched = {**entry, "contents": {"source": "https://storage.example/bootkube.sh"}}
    for document, why in (
        (without, "0 files with that path"),
        (IgnitionDocument(bootstrap_config(extra_files=(entry,))), "2 files with that path"),
        (without.with_files([fetched]), "not in the config itself"),
        (without.with_files([{**entry, "contents": {}}]), "not in the config itself"),
    ):
        refused = _refusal(document.content)
        assert refused.code == "UMB120"
        assert why in refused.why


def test_a_script_without_a_service_record_is_refused() -> None:
    script = bootkube_script("4.18")
    assert script.count(f". {SERVICE_RECORD}\n") == 1
    for other in ("", f"# . {SERVICE_RECORD}\n"):
        refused = _refusal(bootstrap_config(script=script.replace(f". {SERVICE_RECORD}\n", other)))
        assert refused.code == "UMB121"
        assert SERVICE_RECORD in refused.why
    assert _patched(bootstrap_config(script=script.replace(f". {SERVICE_RECORD}", f"source {SERVICE_RECORD}")))


def test_growth_past_what_a_secret_holds_is_warned_of_and_refused_but_fine_in_a_bucket() -> None:
    content = bootstrap_config(platform="vsphere", padding_bytes=750_000)
    assert len(content) < 1_040_000
    assert _refusal(content).code == "UMB126"
    assert _refusal(bootstrap_config(platform="gcp", padding_bytes=750_000), "aws").code == "UMB126"
    plan = patch(IgnitionDocument(bootstrap_config(platform="vsphere", padding_bytes=700_000)), SPEC).plan
    assert any("limit on vsphere" in note for note in plan.notes())
    content = bootstrap_config(platform="gcp", padding_bytes=3_700_000)
    assert undo(_patched(content)).content == content


def test_the_shape_for_plain_kubernetes_is_refused() -> None:
    spec = for_shape(Shape.KUBERNETES, image="registry.example/x:1")
    with pytest.raises(RenderError, match="UMB131"):
        patch(IgnitionDocument(bootstrap_config()), spec)


def test_an_address_of_a_family_that_the_cluster_lacks_is_refused() -> None:
    for ipv6, changes in (
        (False, {"node_ip": ipaddress.ip_address("fd00::9")}),
        (True, {"node_ip": ipaddress.ip_address("10.0.0.9")}),
        (False, {"use_ipv6": True, "machine_networks": (ipaddress.ip_network("fd00::/48"),)}),
    ):
        with pytest.raises(RenderError) as refused:
            patch(IgnitionDocument(bootstrap_config("4.18", ipv6=ipv6)), for_shape(Shape.OPENSHIFT, **changes))
        assert refused.value.code == "UMB133"
        assert "service network" in refused.value.why
