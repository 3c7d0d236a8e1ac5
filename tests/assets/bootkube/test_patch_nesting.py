"""Scripts whose blocks are nested as installers nest them are patched, verified and restored like plain ones."""

import subprocess

import pytest
from tests.support.bootkube_nesting import NESTED_VERIFY_URLS, nested
from tests.support.bootkube_script import NATIVE_RELEASES, RELEASES, Native, bootkube_script
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.verify_subjects import Subject, failures

from umbilical.assets.bootkube.patch import patch, undo
from umbilical.assets.names import NATIVE, OWN
from umbilical.assets.spec import Shape, for_shape
from umbilical.ignition.document import Document

SPEC = for_shape(Shape.OPENSHIFT)
VERIFY_URLS = "/usr/local/bin/bootstrap-verify-api-server-urls.sh"


def _nested(release: str, native: Native = "none") -> bytes:
    script = nested(bootkube_script(release, native=native))
    subprocess.run(["bash", "-n"], input=script.encode(), check=True, timeout=30)
    content = bootstrap_config(release, native=native, script=script)
    return Document(content).with_content(VERIFY_URLS, NESTED_VERIFY_URLS.encode()).content


@pytest.mark.parametrize("release", RELEASES)
def test_a_nested_script_is_patched_verified_and_restored(release: str) -> None:
    kinds: list[Native] = ["none", "off"] if release in NATIVE_RELEASES else ["none"]
    for content in (_nested(release, native) for native in kinds):
        patched = patch(Document(content), SPEC).document
        assert not failures(patched.content)
        assert undo(patched).content == content
        assert patch(patched, SPEC).plan.changes_nothing


@pytest.mark.parametrize("release", NATIVE_RELEASES)
def test_a_built_in_tunnel_in_a_nested_script_passes(release: str) -> None:
    assert not failures(_nested(release, "on"))


@pytest.mark.parametrize("is_native", [True, False])
@pytest.mark.parametrize(
    ("function", "before", "check"),
    [
        ("manifests_function", "    if run_cluster_bootstrap", "B9"),
        ("manifests_function", 'if [ "$BOOTSTRAP_INPLACE" = true ]', "B5"),
        ("cleanup_function", '    if [ ! -z "$CLUSTER_ETCD_OPERATOR_IMAGE" ]', "B6"),
        ("cleanup_function", '  if check_url "api"; then', "B6"),
    ],
)
def test_a_call_at_the_wrong_place_of_a_nested_script_is_seen(
    is_native: bool, function: str, before: str, check: str
) -> None:
    content = _nested("5.1", "on") if is_native else patch(Document(_nested("5.1")), SPEC).document.content
    subject = Subject(content, NATIVE if is_native else OWN)
    call = getattr(subject.names, function)
    lines = subject.text("bootkube").split("\n")
    lines.remove(call)
    # The last one: in-place is asked for twice.
    place = len(lines) - 1 - lines[::-1].index(before)
    lines.insert(place, call)
    assert check in failures(subject.with_text("bootkube", "\n".join(lines)).content)
