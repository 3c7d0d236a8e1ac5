from itertools import pairwise

import pytest
from tests.support.bootkube_script import NATIVE_RELEASES, RELEASES, Native, bootkube_script

from umbilical.assets.bootkube.anchors import PATTERNS, Anchor, find_anchors, search
from umbilical.assets.errors import AssetError


def _lines(release: str = "4.18", native: Native = "none") -> list[str]:
    return bootkube_script(release, native=native).split("\n")


@pytest.mark.parametrize("release", RELEASES)
def test_every_anchor_is_found_in_every_release_line_and_in_order(release: str) -> None:
    found = find_anchors(_lines(release))
    assert list(found) == list(Anchor)
    assert all(earlier.index < later.index for earlier, later in pairwise(found.values()))


@pytest.mark.parametrize("release", NATIVE_RELEASES)
def test_anchors_are_found_where_the_built_in_tunnel_is_off(release: str) -> None:
    assert len(find_anchors(_lines(release, "off"))) == len(Anchor)


def test_the_indent_of_an_anchor_is_what_stands_before_it() -> None:
    found = find_anchors(_lines("4.14"))
    assert found[Anchor.RENDER_COMMAND].indent == "\t\t"
    assert found[Anchor.CONFIG_COPY].indent == "    "
    assert found[Anchor.END].indent == ""


@pytest.mark.parametrize("anchor", Anchor)
def test_a_missing_anchor_is_named_with_what_was_looked_for(anchor: Anchor) -> None:
    lines = [line for line in _lines() if not any(pattern.resembles(line) for pattern in PATTERNS[anchor])]
    with pytest.raises(AssetError) as refused:
        find_anchors(lines)
    assert refused.value.code == "UMB121"
    assert f"anchor {anchor.value} is there 0 times" in refused.value.what
    assert PATTERNS[anchor][0].text in refused.value.why.replace("\\\\", "\\")


@pytest.mark.parametrize("anchor", Anchor)
def test_a_doubled_anchor_is_named_with_both_lines(anchor: Anchor) -> None:
    lines = _lines()
    index = find_anchors(lines)[anchor].index
    lines.insert(index, lines[index])
    with pytest.raises(AssetError) as refused:
        find_anchors(lines)
    assert f"anchor {anchor.value} is there 2 times" in refused.value.what
    assert f"line {index + 1}: " in refused.value.why
    assert f"line {index + 2}: " in refused.value.why


@pytest.mark.parametrize("anchor", [Anchor.LIBRARIES, Anchor.APISERVER_STAGE, Anchor.CLUSTER_BOOTSTRAP, Anchor.END])
def test_an_anchor_inside_a_block_is_refused_and_shown(anchor: Anchor) -> None:
    lines = _lines()
    index = find_anchors(lines)[anchor].index
    lines[index] = f"    {lines[index]}"
    with pytest.raises(AssetError, match=rf"anchor {anchor.value} is there 0 times.*\n.*line {index + 1}: "):
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


@pytest.mark.parametrize("anchor", [Anchor.LIBRARIES, Anchor.CLUSTER_BOOTSTRAP])
def test_a_second_spelling_counts_where_the_first_is_not_there(anchor: Anchor) -> None:
    first, second = PATTERNS[anchor]
    lines = [line for line in _lines() if not first.resembles(line)]
    assert second.matches(find_anchors(lines)[anchor].line)


def test_anchors_in_another_order_are_refused() -> None:
    lines = _lines()
    index = find_anchors(lines)[Anchor.CLUSTER_BOOTSTRAP].index
    lines.insert(1, lines.pop(index))
    with pytest.raises(AssetError, match="anchor A5 stands before A4"):
        find_anchors(lines)


def test_line_ends_of_another_system_are_refused() -> None:
    lines = bootkube_script("4.18").replace("\n", "\r\n").split("\n")
    with pytest.raises(AssetError, match="UMB121"):
        find_anchors(lines)


def test_a_search_tells_what_it_saw_even_where_nothing_can_be_used() -> None:
    seen = search(["echo nothing here", "\ttouch /opt/openshift/.bootkube.done"])
    assert [len(one.matches) for one in seen] == [0] * len(Anchor)
    assert seen[-1].lookalikes == (1,)
