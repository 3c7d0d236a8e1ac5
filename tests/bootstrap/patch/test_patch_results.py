"""Whatever patch writes: Ignition and verify take it, and undo gives the original back."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.bootkube_nesting import NESTED_VERIFY_URLS, nested
from tests.support.bootkube_script import NATIVE_RELEASES, RELEASES, Native, bootkube_script
from tests.support.bootstrap_corpus import CORPUS, Case, bootstrap_config
from tests.support.ignition_validate import validate
from tests.support.tunnel_specs import fitting, tunnel_specs
from tests.support.verify_subjects import Subject, failures

from umbilical.bootstrap.names import BOOTKUBE, NATIVE, OWN
from umbilical.bootstrap.patch.anchors import PATTERNS, Anchor, find_anchors
from umbilical.bootstrap.patch.patch import patch, undo
from umbilical.bootstrap.spec import Shape, TunnelSpec, for_shape
from umbilical.fault import RenderError
from umbilical.ignition.document import IgnitionDocument


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(CORPUS), tunnel_specs(), tunnel_specs())
def test_any_spec_on_any_config_is_exact_idempotent_and_contained(
    case: Case, spec: TunnelSpec, other: TunnelSpec
) -> None:
    original = IgnitionDocument(case.content())
    spec, other = fitting(spec, original.config), fitting(other, original.config)
    made = patch(original, spec).document
    assert undo(made).content == original.content
    assert patch(made, spec).document.content == made.content
    # From whichever patch one comes, the result is the same.
    assert patch(patch(original, other).document, spec).document.content == made.content
    for file in original.config.files:
        if file.path != BOOTKUBE:
            assert made.entry_text(file.path) == original.entry_text(file.path)


def _at_anchor(lines: list[str], anchor: Anchor, form: str) -> list[str]:
    """Write the anchor's line in another form."""
    index = find_anchors(lines)[anchor].index
    return [*lines[:index], *form.format(lines[index]).split("\n"), *lines[index + 1 :]]


@pytest.mark.parametrize("release", RELEASES)
def test_a_script_with_one_broken_anchor_is_refused_by_its_name(release: str) -> None:
    lines = bootkube_script(release).split("\n")
    for anchor in Anchor:
        missing = [line for line in lines if not any(pattern.resembles(line) for pattern in PATTERNS[anchor])]
        broken = [missing, _at_anchor(lines, anchor, "{0}\n{0}")]
        # The indentation of two is free, and of another one only the beginning counts.
        if anchor not in (Anchor.RENDER_COMMAND, Anchor.CONFIG_COPY):
            broken.append(_at_anchor(lines, anchor, "\t{0}"))
        if anchor is not Anchor.CLUSTER_BOOTSTRAP:
            broken.append(_at_anchor(lines, anchor, "{0} "))
        for script in broken:
            document = IgnitionDocument(bootstrap_config(release, script="\n".join(script)))
            with pytest.raises(RenderError, match=f"UMB121 bootkube.sh was not recognised: anchor {anchor.value} "):
                patch(document, for_shape(Shape.OPENSHIFT))


@given(st.integers(0, 399), st.sampled_from(["drop", "double", "swap"]))
def test_any_line_changed_is_patched_and_undone_or_refused(number: int, change: str) -> None:
    lines = bootkube_script("4.18").split("\n")
    number %= len(lines) - 1
    if change == "drop":
        del lines[number]
    elif change == "double":
        lines.insert(number, lines[number])
    else:
        lines[number], lines[number + 1] = lines[number + 1], lines[number]
    document = IgnitionDocument(bootstrap_config(script="\n".join(lines)))
    try:
        made = patch(document, for_shape(Shape.OPENSHIFT)).document
    except RenderError:
        return
    assert undo(made).content == document.content


SPEC = for_shape(Shape.OPENSHIFT)
VERIFY_URLS = "/usr/local/bin/bootstrap-verify-api-server-urls.sh"


def _nested(release: str, native: Native = "none") -> bytes:
    script = nested(bootkube_script(release, native=native))
    subprocess.run(["bash", "-n"], input=script.encode(), check=True, timeout=30)
    content = bootstrap_config(release, native=native, script=script)
    return IgnitionDocument(content).with_content(VERIFY_URLS, NESTED_VERIFY_URLS.encode()).content


def test_a_nested_script_is_patched_verified_and_restored_and_passes_with_a_built_in_tunnel() -> None:
    for content in [*map(_nested, RELEASES), *(_nested(release, "off") for release in NATIVE_RELEASES)]:
        patched = patch(IgnitionDocument(content), SPEC).document
        assert not failures(patched.content)
        assert undo(patched).content == content
        assert patch(patched, SPEC).plan.changes_nothing
    assert [release for release in NATIVE_RELEASES if failures(_nested(release, "on"))] == []


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
def test_a_misplaced_call_in_a_nested_script_is_seen(is_native: bool, function: str, before: str, check: str) -> None:
    content = _nested("5.1", "on") if is_native else patch(IgnitionDocument(_nested("5.1")), SPEC).document.content
    subject = Subject(content, NATIVE if is_native else OWN)
    call = getattr(subject.names, function)
    lines = subject.text("bootkube").split("\n")
    lines.remove(call)
    # The last one: in-place is asked for twice.
    place = len(lines) - 1 - lines[::-1].index(before)
    lines.insert(place, call)
    assert failures(subject.with_text("bootkube", "\n".join(lines)).content, check)


@pytest.mark.real("ignition-validate")
@pytest.mark.parametrize("shape", [Shape.OPENSHIFT, Shape.SEED])
def test_ignition_takes_the_config_before_with_and_after_the_patch(shape: Shape) -> None:
    for case in CORPUS:
        original = IgnitionDocument(case.content())
        patched = patch(original, for_shape(shape)).document
        for content in {original.content, patched.content, undo(patched).content}:
            validate(content)
