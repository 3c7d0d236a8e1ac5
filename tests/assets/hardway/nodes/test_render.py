"""The configs of whole clusters: golden content, the same bytes every time, and Ignition's own word for them."""

import pytest
from tests.support.hardway_nodes import SHAPES, earlier, golden, golden_file, inputs, nodes
from tests.support.ignition_validate import validate

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.nodes.render import render_nodes, size_report
from umbilical.ignition.config import faults, read_config

each_profile = pytest.mark.parametrize("profile", list(Profile), ids=lambda one: one.value)
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


@each_profile
@each_shape
def test_every_node_has_a_sound_config_that_is_roots_alone(profile: Profile, shape: tuple[int, int]) -> None:
    tree = nodes(profile, *shape)
    assert [asset.path for asset in tree] == [layout.ignition(node) for node in inputs(profile, *shape).cluster.nodes]
    for asset in tree:
        assert (asset.mode, faults(read_config(asset.content))) == (0o600, [])


@each_profile
def test_the_same_inputs_give_the_same_bytes(profile: Profile) -> None:
    given = inputs(profile)
    first, second = ({asset.path: asset.content for asset in render_nodes(given, earlier(given))} for _ in range(2))
    assert first == second


@each_profile
def test_the_decoded_content_is_as_recorded(profile: Profile) -> None:
    """After a wanted change: `python -m tests.support.hardway_nodes`, and read the difference."""
    assert golden(profile) == golden_file(profile).read_text()


@each_profile
@each_shape
@pytest.mark.real("ignition-validate")
def test_ignition_itself_takes_every_config(profile: Profile, shape: tuple[int, int]) -> None:
    configs = list(nodes(profile, *shape))
    assert len(configs) == 1 + sum(shape)
    for asset in configs:
        validate(asset.content)


@pytest.mark.real("ignition-validate")
def test_ignition_itself_takes_configs_on_a_rendered_base() -> None:
    for asset in nodes(Profile.OPENSHIFT, is_based=True):
        validate(asset.content)


@each_profile
def test_the_report_of_sizes_begins_with_the_largest_and_leaves_nothing_out(profile: Profile) -> None:
    config = read_config(nodes(profile)["ignition/bootstrap.ign"].content)
    report = list(size_report(config))
    assert {size.path for size in report} == {file.path for file in config.files}
    assert report == sorted(report, key=lambda size: -size.bytes_carried)
    assert sum(size.bytes_carried for size in report) < len(nodes(profile)["ignition/bootstrap.ign"].content) < 200_000
