"""What the patched script leaves behind when it fails is understood by `analyze`: both ends of one protocol."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.support.bootkube_node import RECORD, BootkubeNode
from tests.support.bootstrap_corpus import Case
from tests.support.log_bundles import JOURNAL, BundleBuilder
from tests.support.netns import Namespace, Network
from tests.support.scratch_node import Ended, ScratchNode

from umbilical.bootstrap.analyze.cause_checks import verdict
from umbilical.bootstrap.analyze.diagnosis import diagnose
from umbilical.bootstrap.analyze.facts import BundleFacts, gather
from umbilical.bootstrap.analyze.log_bundle import open_bundle
from umbilical.bootstrap.patch.patch import patch
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.checks.check import Outcome
from umbilical.ignition.document import IgnitionDocument

pytestmark = [pytest.mark.real("openssl", "jq", "ip"), pytest.mark.root, pytest.mark.timeout(300)]

# As the payload's program says it.
NO_IMAGE: Final = "error: Unknown name requested, could not find apiserver-network-proxy in UpdatePayload"


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network("umb-analyze") as network:
        yield network


@pytest.fixture(scope="module")
def host(network: Network) -> Namespace:
    host, neighbour = network.create("host"), network.create("other")
    network.link(host, "10.0.0.5/16", neighbour, "10.0.0.1/16")
    return host


@pytest.fixture(scope="module")
def lonely(network: Network) -> Namespace:
    return network.create("lonely")


def patched_node(folder: Path, namespace: Namespace) -> BootkubeNode:
    content = patch(IgnitionDocument(Case("4.18").content()), for_shape(Shape.OPENSHIFT)).document.content
    return BootkubeNode(ScratchNode(folder / "node", namespace), content)


def gathered(node: BootkubeNode, runs: list[Ended], folder: Path) -> BundleFacts:
    """Make the bundle that the installer would gather of this node: record, journal, and what was rendered."""
    builder = BundleBuilder().log(JOURNAL, *(f"{run.stdout}{run.stderr}" for run in runs))
    builder.files["bootstrap/services/bootkube.json"] = node.node.read(RECORD).encode()
    assets = node.node.path("/opt/openshift")
    for path in sorted(assets.rglob("*")):
        if path.is_file() and path.suffix != ".key" and "secret" not in path.name:
            builder.files[f"rendered-assets/openshift/{path.relative_to(assets)}"] = path.read_bytes()
    # No time of gathering in its name: the record's own times count.
    return gather(open_bundle(builder.archive(folder, "bundle.tar.gz", "bundle")))


def failures(facts: BundleFacts) -> list[str]:
    return [finding.id for finding in diagnose(facts) if finding.outcome is Outcome.FAILED]


def test_a_good_run_has_no_findings(tmp_path: Path, host: Namespace) -> None:
    node = patched_node(tmp_path, host)
    facts = gathered(node, [node.run()], tmp_path)
    assert verdict(facts).is_well
    assert failures(facts) == []
    assert facts.is_patched


def test_a_node_without_an_address_is_understood(tmp_path: Path, lonely: Namespace) -> None:
    node = patched_node(tmp_path, lonely)
    runs = [node.run(), node.run()]
    facts = gathered(node, runs, tmp_path)
    told = verdict(facts)
    assert (told.stage, told.times) == ("konnectivity-certs", 2)
    assert failures(facts) == ["A01", "A03"]


def test_a_payload_without_the_image_is_understood(tmp_path: Path, host: Namespace) -> None:
    node = patched_node(tmp_path, host)
    podman = node.node.read("/usr/local/bin/podman")
    refusing = f'*" image apiserver-network-proxy"*) echo "{NO_IMAGE}" >&2; exit 1 ;;\n    *" image "*)'
    node.node.write("/usr/local/bin/podman", podman.replace('*" image "*)', refusing), 0o555)
    facts = gathered(node, [node.run()], tmp_path)
    assert verdict(facts).stage == "konnectivity-server-bootstrap"
    assert failures(facts) == ["A01", "A05"]


def test_a_cleanup_that_gave_up_is_found_after_a_good_end(tmp_path: Path, host: Namespace) -> None:
    node = patched_node(tmp_path, host)
    oc = node.node.read("/usr/local/bin/oc").replace('*" release', '"delete "*) exit 1 ;;\n    *" release')
    node.node.write("/usr/local/bin/oc", oc, 0o555)
    facts = gathered(node, [node.run()], tmp_path)
    assert verdict(facts).is_well
    assert failures(facts) == ["A20"]


def test_a_stage_that_never_ended_is_named(tmp_path: Path, host: Namespace) -> None:
    node = patched_node(tmp_path, host)
    facts = gathered(node, [node.run_killed_in("konnectivity-agent-manifest", 16)], tmp_path)
    assert verdict(facts).stage == "konnectivity-agent-manifest"
    assert "has not finished it" in verdict(facts).sentence
    assert failures(facts) == ["A01"]


def test_certificates_and_manifest_of_the_node_agree(tmp_path: Path, host: Namespace) -> None:
    node = patched_node(tmp_path, host)
    facts = gathered(node, [node.run_killed_in("cb-bootstrap", 16)], tmp_path)
    assert facts.agents is not None
    assert facts.agents.host == "10.0.0.5"
    told = {finding.id: finding.outcome for finding in diagnose(facts)}
    assert told["A13"] is Outcome.PASSED
    assert told["A14"] is Outcome.PASSED
