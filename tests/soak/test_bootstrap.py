"""Minutes of the bootstrap integrator: every release line run and killed at random lines, any spec on any config.

UMBILICAL_SOAK_SECONDS sets the length of the second test (120). Seeds are in the failure's text.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.support.bootkube_node import BootkubeNode
from tests.support.bootkube_outcome import assert_finished
from tests.support.bootkube_script import RELEASES
from tests.support.bootstrap_corpus import CORPUS, Case
from tests.support.ignition_validate import validate
from tests.support.netns import Namespace, Network
from tests.support.scratch_node import ScratchNode
from tests.support.tunnel_specs import fitting, tunnel_specs

from umbilical.bootstrap.names import STAGES
from umbilical.bootstrap.patch.patch import patch, undo
from umbilical.bootstrap.spec import Shape, TunnelSpec, for_shape
from umbilical.bootstrap.verify.catalogue import verify
from umbilical.bootstrap.verify.facts import BootstrapFacts
from umbilical.checks.check import Outcome
from umbilical.ignition.document import IgnitionDocument

pytestmark = [pytest.mark.soak, pytest.mark.real("openssl", "jq", "ip", "ignition-validate"), pytest.mark.root]

SECONDS: Final = float(os.environ.get("UMBILICAL_SOAK_SECONDS", "120"))
ADDRESS: Final = "10.0.0.5"
KILLS: Final = 12
# More commands than any of our stages has: some kills fall into the installer's own part behind it.
LAST_OFFSET: Final = 60
MANY: Final = 1_000_000


@pytest.fixture(scope="module")
def bootstrap_host() -> Iterator[Namespace]:
    with Network("umb-soak") as network:
        host, neighbour = network.create("host"), network.create("neighbour")
        network.link(host, f"{ADDRESS}/16", neighbour, "10.0.0.1/16")
        network.route(host, "default", "10.0.0.1")
        yield host


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_line_ends_well_however_often_it_was_killed(
    release: str, tmp_path: Path, bootstrap_host: Namespace
) -> None:
    seed = random.randrange(MANY)
    chance = random.Random(seed)
    config = patch(IgnitionDocument(Case(release).content()), for_shape(Shape.OPENSHIFT)).document.content
    node = BootkubeNode(ScratchNode(tmp_path / "node", bootstrap_host), config)
    for _ in range(KILLS):
        node.run_killed_in(chance.choice(STAGES), chance.randrange(1, LAST_OFFSET))
    ended = node.run()
    assert ended.exit_code == 0, f"seed {seed}: {ended.stderr}"
    assert_finished(node, ADDRESS)


def test_any_spec_on_any_config_verifies_validates_and_is_undone(capsys: pytest.CaptureFixture[str]) -> None:
    deadline, rounds = time.monotonic() + SECONDS, 0

    @settings(
        max_examples=50, database=None, phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck)
    )
    @given(tunnel_specs(Shape.OPENSHIFT, Shape.SEED), st.sampled_from(CORPUS), st.integers())
    def one_round(spec: TunnelSpec, case: Case, _: int) -> None:
        original = IgnitionDocument(case.content())
        made = patch(original, fitting(spec, original.config)).document
        failed = [finding for finding in verify(BootstrapFacts(made.content)) if finding.outcome is Outcome.FAILED]
        assert failed == []
        validate(made.content)
        assert undo(made).content == original.content

    while time.monotonic() < deadline:
        one_round()
        rounds += 1
    with capsys.disabled():
        print(f" {rounds * 50} specs")
