"""Any spec on any config of the corpus: exact undo, once is enough, nothing else touched; any broken anchor refused."""

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bootkube_script import RELEASES, bootkube_script
from tests.support.bootstrap_corpus import CORPUS, Case, bootstrap_config
from tests.support.tunnel_specs import fitting

from umbilical.assets.bootkube.anchors import PATTERNS, Anchor, find_anchors
from umbilical.assets.bootkube.patch import patch, undo
from umbilical.assets.errors import AssetError
from umbilical.assets.names import BOOTKUBE
from umbilical.assets.spec import PORT_RANGE, RESERVED_PORTS, STRATEGIES, Resources, Shape, TunnelSpec, for_shape
from umbilical.ignition.document import Document

_FREE_PORTS = st.integers(PORT_RANGE.start, PORT_RANGE.stop - 1).filter(lambda port: port not in RESERVED_PORTS)
_ADDRESSES = st.sampled_from(["10.0.0.9", "192.168.126.100", "fd2e:6f44:5dd8::9", "2001:db8::1"]).map(ip_address)
_NETWORKS: st.SearchStrategy[tuple[IPv4Network | IPv6Network, ...]] = st.lists(
    st.sampled_from(["10.0.0.0/16", "192.168.0.0/24", "172.16.0.0/12"]).map(ip_network), max_size=3, unique=True
).map(tuple)


@st.composite
def specs(draw: st.DrawFn) -> TunnelSpec:
    ports = draw(st.lists(_FREE_PORTS, min_size=3, max_size=3, unique=True))
    shape = draw(st.sampled_from([Shape.OPENSHIFT, Shape.SEED]))
    namespace: dict[str, Any] = (
        {} if shape is Shape.SEED else {"namespace": draw(st.from_regex(r"tunnel-[a-z0-9]{1,9}", fullmatch=True))}
    )
    return for_shape(
        shape,
        image=draw(st.none() | st.sampled_from(["registry.example/a/b:v1", "r.example:5000/x@sha256:" + "0" * 64])),
        node_ip=draw(st.none() | _ADDRESSES),
        machine_networks=draw(_NETWORKS),
        agent_port=ports[0],
        health_port=ports[1],
        admin_port=ports[2],
        strategies=tuple(draw(st.permutations(STRATEGIES))[: draw(st.integers(1, 3))]),
        resources=Resources(f"{draw(st.integers(1, 900))}m", f"{draw(st.integers(1, 900))}Mi"),
        certificate_hours=draw(st.integers(1, 24)),
        **namespace,
    )


@given(st.sampled_from(CORPUS), specs(), specs())
def test_any_spec_on_any_config_is_exact_idempotent_and_touches_nothing_else(
    case: Case, spec: TunnelSpec, other: TunnelSpec
) -> None:
    original = Document(case.content())
    spec, other = fitting(spec, original.config), fitting(other, original.config)
    made = patch(original, spec).document
    assert undo(made).content == original.content
    assert patch(made, spec).document.content == made.content
    # From whichever patch one comes, the result is the same.
    assert patch(patch(original, other).document, spec).document.content == made.content
    for file in original.config.files:
        if file.path != BOOTKUBE:
            assert made.entry_text(file.path) == original.entry_text(file.path)


def _missing(lines: list[str], anchor: Anchor) -> list[str]:
    return [line for line in lines if not any(pattern.resembles(line) for pattern in PATTERNS[anchor])]


def _doubled(lines: list[str], anchor: Anchor) -> list[str]:
    index = find_anchors(lines)[anchor].index
    return [*lines[:index], lines[index], *lines[index:]]


def _indented(lines: list[str], anchor: Anchor) -> list[str]:
    index = find_anchors(lines)[anchor].index
    return [*lines[:index], f"\t{lines[index]}", *lines[index + 1 :]]


def _with_blank_at_its_end(lines: list[str], anchor: Anchor) -> list[str]:
    index = find_anchors(lines)[anchor].index
    return [*lines[:index], f"{lines[index]} ", *lines[index + 1 :]]


_MAY_BE_INDENTED = (Anchor.RENDER_COMMAND, Anchor.CONFIG_COPY)
_CORRUPTIONS = [
    (corruption, anchor)
    for corruption in (_missing, _doubled, _indented, _with_blank_at_its_end)
    for anchor in Anchor
    # Their indentation is free, and of the other only the beginning counts.
    if not (corruption is _indented and anchor in _MAY_BE_INDENTED)
    and not (corruption is _with_blank_at_its_end and anchor is Anchor.CLUSTER_BOOTSTRAP)
]


@pytest.mark.parametrize(("corruption", "anchor"), _CORRUPTIONS)
@pytest.mark.parametrize("release", RELEASES)
def test_a_script_with_one_broken_anchor_is_refused_by_its_name(release: str, corruption: Any, anchor: Anchor) -> None:
    lines = corruption(bootkube_script(release).split("\n"), anchor)
    document = Document(bootstrap_config(release, script="\n".join(lines)))
    with pytest.raises(AssetError, match=f"UMB121 bootkube.sh is not recognised: anchor {anchor.value} "):
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
    document = Document(bootstrap_config(script="\n".join(lines)))
    try:
        made = patch(document, for_shape(Shape.OPENSHIFT)).document
    except AssetError:
        return
    assert undo(made).content == document.content
