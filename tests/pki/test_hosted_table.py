"""The table of a hosted control plane's certificates."""

import pytest

from umbilical.assets.hosted import names
from umbilical.pki import hosted_table
from umbilical.pki.hosted_table import LEAVES, SINGLE_SIGNER, Signers, Trust, signer_ids, signer_of
from umbilical.pki.profiles import Usage


def test_every_side_of_every_listener_has_a_signer_of_its_own() -> None:
    assert len({signer_of(trust, Signers.SEPARATE) for trust in Trust}) == 4
    assert signer_ids(Signers.SEPARATE) == (
        "konnectivity-server-serving-signer",
        "konnectivity-cluster-serving-signer",
        "konnectivity-server-auth-signer",
        "konnectivity-client-auth-signer",
    )


def test_one_signer_signs_all_where_that_is_asked_for() -> None:
    assert signer_ids(Signers.SINGLE) == (SINGLE_SIGNER,) == ("konnectivity-signer",)


def test_agents_and_clients_are_known_by_different_signers() -> None:
    agents = {signer_of(leaf.verified_by, Signers.SEPARATE) for leaf in LEAVES if "agent" in leaf.id}
    assert len(agents) == 1
    assert signer_of(hosted_table.CLIENT.verified_by, Signers.SEPARATE) not in agents


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.id)
def test_servers_are_shown_to_whoever_dials_and_clients_to_listeners(leaf: hosted_table.Leaf) -> None:
    dialled = leaf.verified_by in (Trust.CLIENTS, Trust.AGENTS)
    assert leaf.usage is (Usage.SERVER if dialled else Usage.CLIENT)


def test_the_control_plane_agent_is_somebody_else_than_the_agents_on_nodes() -> None:
    assert hosted_table.CONTROL_PLANE_AGENT.common_name != hosted_table.AGENT.common_name


def test_manifests_know_secrets_and_identities_by_the_same_names() -> None:
    assert [leaf.id for leaf in LEAVES] == [
        names.SECRET_SERVER,
        names.SECRET_CLUSTER,
        names.SECRET_CLIENT,
        names.SECRET_AGENT,
        names.SECRET_CONTROL_PLANE_AGENT,
    ]
    assert hosted_table.CLIENT.common_name == names.CN_CLIENT
    assert hosted_table.AGENT.common_name == names.CN_AGENT
    assert hosted_table.CONTROL_PLANE_AGENT.common_name == names.CN_CONTROL_PLANE_AGENT
