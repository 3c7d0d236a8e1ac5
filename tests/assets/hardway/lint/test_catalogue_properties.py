"""Whatever cluster makes sense, its artifacts are clean: names, networks of both families, counts and switches."""

import hypothesis
from hypothesis import strategies
from tests.support.hardway_drawing import clusters
from tests.support.hardway_everything import inputs, rendered

from umbilical.assets.hardway.cluster import Cluster, Profile
from umbilical.assets.hardway.lint.catalogue import judge
from umbilical.checks.check import Outcome

# Each renders and judges a whole cluster, with keys of its own.
EXAMPLES = 12


def _told(cluster: Cluster) -> dict[str, str]:
    findings = judge(rendered(inputs(cluster, is_based=False)).facts())
    return {one.id: one.evidence for one in findings if one.outcome in (Outcome.FAILED, Outcome.WARNED)}


@hypothesis.settings(max_examples=EXAMPLES)
@hypothesis.given(strategies.sampled_from(Profile).flatmap(clusters))
def test_a_cluster_that_makes_sense_renders_clean(cluster: Cluster) -> None:
    assert _told(cluster) == {}
