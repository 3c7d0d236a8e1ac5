"""One name for one node: all places where it stands agree in what is rendered."""

from dataclasses import replace

import pytest
from tests.support.hardway_everything import everything, usual
from tests.support.hardway_lint import copied

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.node_names import name_faults


@pytest.mark.parametrize("profile", list(Profile))
def test_all_places_agree(profile: Profile) -> None:
    assert list(name_faults(everything(profile).facts())) == []
    assert list(name_faults(usual(profile).facts())) == []


def test_each_place_is_looked_at() -> None:
    """Another config over the same artifacts: every file that has the name must be named as a fault."""
    tree = copied(everything(Profile.OPENSHIFT))
    nodes = tree.cluster.nodes
    other = replace(nodes[1], name="other.ocp4.example.com")
    tree.cluster = replace(tree.cluster, nodes=(nodes[0], other, *nodes[2:]))
    told = " ".join(name_faults(tree.facts()))
    for place in ("ignition/master-0.ign", "haproxy.final.cfg", "cluster.zone", "reverse.zone", "network.xml"):
        assert place in told
    assert "tls/etcd-peer-master-0.crt is not for other" in told
