"""Where the lines of the tunnel go in bootkube.sh, and how they come out again."""

import subprocess
from itertools import pairwise

import pytest
from tests.support.bootkube_script import NATIVE_RELEASES, RELEASES, Native, bootkube_script

from umbilical.bootstrap.names import OWN
from umbilical.bootstrap.patch.anchors import PATTERNS, Anchor, find_anchors, search
from umbilical.bootstrap.patch.edits import REASONS, insert, insertions, remove
from umbilical.fault import RenderError


def _lines(release: str = "4.18", native: Native = "none") -> list[str]:
    return bootkube_script(release, native=native).split("\n")


def test_every_anchor_is_found_in_every_release_line_in_order_and_has_a_reason_to_show() -> None:
    scripts = [_lines(release) for release in RELEASES] + [_lines(release, "off") for release in NATIVE_RELEASES]
    for lines in scripts:
        found = find_anchors(lines)
        assert list(found) == list(Anchor)
        assert all(earlier.index < later.index for earlier, later in pairwise(found.values()))
    assert set(REASONS) == set(Anchor)


def test_the_indent_of_an_anchor_is_what_stands_before_it() -> None:
    found = find_anchors(_lines("4.14"))
    assert found[Anchor.RENDER_COMMAND].indent == "\t\t"
    assert found[Anchor.CONFIG_COPY].indent == "    "
    assert found[Anchor.END].indent == ""


@pytest.mark.parametrize("anchor", Anchor)
def test_a_missing_anchor_is_named_with_what_was_looked_for_and_a_doubled_one_with_both_lines(anchor: Anchor) -> None:
    lines = [line for line in _lines() if not any(pattern.resembles(line) for pattern in PATTERNS[anchor])]
    with pytest.raises(RenderError, match=f"UMB121.*anchor {anchor.value} occurs 0 times") as refused:
        find_anchors(lines)
    assert PATTERNS[anchor][0].text in refused.value.why.replace("\\\\", "\\")
    lines = _lines()
    index = find_anchors(lines)[anchor].index
    lines.insert(index, lines[index])
    with pytest.raises(RenderError, match=f"anchor {anchor.value} occurs 2 times") as refused:
        find_anchors(lines)
    assert [f"line {number}: " in refused.value.why for number in (index + 1, index + 2)] == [True, True]


def test_an_anchor_inside_a_block_is_refused_and_shown() -> None:
    for anchor in (Anchor.LIBRARIES, Anchor.APISERVER_STAGE, Anchor.CLUSTER_BOOTSTRAP, Anchor.END):
        lines = _lines()
        index = find_anchors(lines)[anchor].index
        lines[index] = f"    {lines[index]}"
        with pytest.raises(RenderError, match=rf"anchor {anchor.value} occurs 0 times.*\n.*line {index + 1}: "):
            find_anchors(lines)


def test_a_line_like_an_anchor_in_a_block_elsewhere_does_not_matter() -> None:
    lines = _lines()
    index = find_anchors(lines)[Anchor.END].index
    lines[5:5] = ["if false", "then", f"    {lines[index]}", "fi"]
    assert find_anchors(lines)[Anchor.END].index == index + 4


@pytest.mark.parametrize("anchor", [Anchor.RENDER_COMMAND, Anchor.CONFIG_COPY])
@pytest.mark.parametrize("indent", ["", "\t", "        "])
def test_an_anchor_that_stands_in_a_block_may_have_any_indentation(anchor: Anchor, indent: str) -> None:
    lines = _lines()
    index = find_anchors(lines)[anchor].index
    lines[index] = indent + lines[index].strip()
    assert find_anchors(lines)[anchor].indent == indent


def test_a_second_spelling_counts_where_the_first_is_not_there() -> None:
    for anchor in (Anchor.LIBRARIES, Anchor.CLUSTER_BOOTSTRAP):
        first, second = PATTERNS[anchor]
        lines = [line for line in _lines() if not first.resembles(line)]
        assert second.matches(find_anchors(lines)[anchor].line)


def test_anchors_in_another_order_or_with_line_ends_of_another_system_are_refused() -> None:
    lines = _lines()
    index = find_anchors(lines)[Anchor.CLUSTER_BOOTSTRAP].index
    lines.insert(1, lines.pop(index))
    with pytest.raises(RenderError, match="anchor A5 comes before A4"):
        find_anchors(lines)
    lines = bootkube_script("4.18").replace("\n", "\r\n").split("\n")
    with pytest.raises(RenderError, match="UMB121"):
        find_anchors(lines)


def test_a_search_tells_what_it_saw_even_where_nothing_can_be_used() -> None:
    seen = search(["echo nothing here", "\ttouch /opt/openshift/.bootkube.done"])
    assert [len(one.matches) for one in seen] == [0] * len(Anchor)
    assert seen[-1].lookalikes == (1,)


def _patched(script: str) -> str:
    return insert(script, insertions(script))


def _added_lines(script: str) -> list[tuple[str, str]]:
    """The line before each of ours, and ours."""
    ours = {line for planned in insertions(script) for line in planned.text.split("\n") if line}
    lines = _patched(script).split("\n")
    return [(lines[index - 1], line) for index, line in enumerate(lines) if line in ours]


@pytest.mark.parametrize("release", RELEASES)
def test_bash_takes_the_script_with_our_lines_and_they_come_out_again(release: str) -> None:
    kinds: list[Native] = ["none", "off"] if release in NATIVE_RELEASES else ["none"]
    for script in (bootkube_script(release, native=native) for native in kinds):
        patched = _patched(script)
        subprocess.run(["bash", "-n"], input=patched.encode(), check=True, timeout=30)
        assert remove(patched, [planned.text for planned in insertions(script)]) == script


def test_each_edit_stands_where_it_must() -> None:
    assert _added_lines(bootkube_script("4.18")) == [
        (". /usr/local/bin/bootstrap-verify-api-server-urls.sh", ". /usr/local/bin/umbilical-konnectivity.sh"),
        ("", "umbilical_setup"),
        (
            "\t\t/usr/bin/cluster-kube-apiserver-operator render \\",
            "\t\t--config-override-files=/assets/umbilical/konnectivity-config-override.yaml \\",
        ),
        (
            "\tcp kube-apiserver-bootstrap/config /etc/kubernetes/bootstrap-configs/kube-apiserver-config.yaml",
            f"\tcp {OWN.egress} /etc/kubernetes/bootstrap-configs/egress-selector-config.yaml",
        ),
        ("", "umbilical_manifests"),
        ("", "umbilical_cleanup"),
    ]


def test_the_cleanup_stands_above_the_last_line_and_its_comment() -> None:
    script = bootkube_script("4.18")
    lines = _patched(script).split("\n")
    below = lines[lines.index("umbilical_cleanup") + 1 :]
    assert [line[:1] for line in below] == ["", "#", "#", "t", ""]
    bare = "\n".join(line for line in script.split("\n") if not line.startswith("# "))
    assert _patched(bare).endswith("umbilical_cleanup\n\ntouch /opt/openshift/.bootkube.done\n")


def test_our_lines_are_found_wherever_they_stand_and_the_end_of_a_script_stays_as_it_was() -> None:
    script = bootkube_script("4.18")
    patched = _patched(script).replace("#!/usr/bin/env bash\n", "#!/usr/bin/env bash\n# a line of somebody else\n")
    taken_out = remove(patched, [planned.text for planned in insertions(script)])
    assert taken_out == script.replace("#!/usr/bin/env bash\n", "#!/usr/bin/env bash\n# a line of somebody else\n")
    script = bootkube_script("4.18").removesuffix("\n")
    patched = _patched(script)
    assert patched.endswith(".bootkube.done")
    assert remove(patched, [planned.text for planned in insertions(script)]) == script


def test_a_line_of_ours_that_is_not_there_once_is_not_taken_out_nor_one_that_only_ends_like_it() -> None:
    for times in (0, 2):
        script = bootkube_script("4.18")
        patched = _patched(script).replace("umbilical_setup\n\n", "umbilical_setup\n\n" * times)
        with pytest.raises(RenderError, match=f"UMB129.*\n.*'umbilical_setup' with the blank line.* {times} times"):
            remove(patched, [planned.text for planned in insertions(script)])
    assert remove("echo umbilical_setup\n\numbilical_setup\n\n", ["umbilical_setup\n\n"]) == "echo umbilical_setup\n\n"
