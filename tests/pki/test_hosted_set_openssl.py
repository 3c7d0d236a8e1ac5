"""Which certificate passes under which authority, said by the real `openssl verify`: all pairs of the table."""

import subprocess
from pathlib import Path

import pytest
from tests.support.hosted_certificates import hosted_set

from umbilical.pki.hosted_table import AGENT, CLIENT, CONTROL_PLANE_AGENT, LEAVES, Leaf, Signers, Trust
from umbilical.pki.profiles import Usage

pytestmark = pytest.mark.real("openssl")
PURPOSES = {
    Trust.CLIENTS: "sslserver",
    Trust.AGENTS: "sslserver",
    Trust.FRONTEND: "sslclient",
    Trust.AGENT_LISTENER: "sslclient",
}


def passes(folder: Path, leaf: Leaf, trust: Trust, layout: Signers = Signers.SEPARATE) -> bool:
    made = hosted_set(layout)
    (folder / "ca.crt").write_bytes(made.trusted_by(trust))
    (folder / "leaf.crt").write_bytes(made.leaves[leaf.id].certificate)
    command = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.crt", "-purpose", PURPOSES[trust], "leaf.crt"]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("trust", list(Trust), ids=lambda trust: trust.value)
@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.id)
def test_a_certificate_passes_where_it_is_meant_to_be_shown_and_nowhere_else(
    leaf: Leaf, trust: Trust, tmp_path: Path
) -> None:
    assert passes(tmp_path, leaf, trust) is (leaf.verified_by is trust)


@pytest.mark.parametrize("agent", [AGENT, CONTROL_PLANE_AGENT], ids=lambda leaf: leaf.id)
def test_an_agents_certificate_is_not_accepted_on_the_frontend(agent: Leaf, tmp_path: Path) -> None:
    assert not passes(tmp_path, agent, Trust.FRONTEND)
    assert passes(tmp_path, CLIENT, Trust.FRONTEND)


def test_a_single_signer_keeps_servers_and_clients_apart_by_their_usage_alone(tmp_path: Path) -> None:
    for leaf in LEAVES:
        for trust in Trust:
            is_right_side = (leaf.usage is Usage.SERVER) == (PURPOSES[trust] == "sslserver")
            assert passes(tmp_path, leaf, trust, Signers.SINGLE) is is_right_side
