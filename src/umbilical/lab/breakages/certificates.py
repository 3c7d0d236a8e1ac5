"""Breakages of the server's certificate: expired, not valid yet, wrong address, wrong CA.

Namespaces share the clock, so a wrong clock is simulated by a certificate that is valid from tomorrow.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import yaml

from umbilical.bootstrap.names import OWN, STATIC_POD
from umbilical.lab.breakages.pods import server_pid, wait_for_another_server
from umbilical.lab.breakages.registry import Breakage, Memory, Speaker
from umbilical.lab.testbed import BOOTSTRAP, Testbed
from umbilical.lab.tunnel_parts import TunnelParts, render_parts
from umbilical.manifests.tree import yaml_bytes
from umbilical.pki.authority import Authority
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType
from umbilical.pki.tunnel_set import DAY, TunnelLeaf, TunnelRole, create_authority

OTHER_ADDRESS: Final = {4: "192.0.2.10", 6: "2001:db8::10"}
"""From the documentation ranges."""
RESTARTED: Final = "umbilical.dev/restarted"
Make = Callable[[Testbed, datetime], KeyPair]


def use_server_files(testbed: Testbed, parts: TunnelParts) -> None:
    """Write the server's certificate, then its manifest; the fingerprint in it makes the runner restart the server."""
    before = server_pid(testbed)
    is_change = testbed.lab.read(BOOTSTRAP, STATIC_POD) != parts.files[STATIC_POD].content
    wanted = [asset for asset in parts.files if asset.path.startswith(f"{OWN.pki_directory}/")]
    for asset in [*wanted, parts.files[STATIC_POD]]:
        testbed.lab.write(BOOTSTRAP, asset.path, asset.content, asset.mode)
    if is_change:
        wait_for_another_server(testbed, before)


def restart_server(testbed: Testbed) -> None:
    """Restart the server by changing an annotation of its static pod."""
    before = server_pid(testbed)
    pod = yaml.safe_load(testbed.lab.read(BOOTSTRAP, STATIC_POD))
    pod["metadata"]["annotations"][RESTARTED] = datetime.now(UTC).isoformat()
    testbed.lab.write(BOOTSTRAP, STATIC_POD, yaml_bytes(pod))
    wait_for_another_server(testbed, before)


def _use(make: Make) -> Callable[[Testbed], Memory]:
    def break_(testbed: Testbed) -> Memory:
        parts = testbed.tunnel
        odd = replace(parts.certificates, server=make(testbed, datetime.now(UTC)))
        address = testbed.lab.topology.bootstrap.address
        use_server_files(testbed, render_parts(testbed.options, address, parts.authority, odd))
        return {}

    return break_


def _use_right_one(testbed: Testbed, memory: Memory) -> None:
    use_server_files(testbed, testbed.tunnel)


def _leaf(testbed: Testbed, *, address: str | None = None) -> TunnelLeaf:
    return TunnelLeaf(TunnelRole.SERVER, KeyType.ECDSA_P256, (address or testbed.lab.topology.bootstrap.address,))


def _expired(testbed: Testbed, now: datetime) -> KeyPair:
    return testbed.tunnel.authority.signer.issue(_leaf(testbed).profile, now - DAY, timedelta(hours=22))


def _for_another_address(testbed: Testbed, now: datetime) -> KeyPair:
    version = testbed.lab.topology.bootstrap.addresses[0].version
    return testbed.tunnel.authority.issue(_leaf(testbed, address=OTHER_ADDRESS[version]), now, DAY)


def _from_another_authority(testbed: Testbed, now: datetime) -> KeyPair:
    """The other CA has the same name, as after creating the certificates twice."""
    return create_authority(Authority, now, DAY, KeyType.ECDSA_P256).issue(_leaf(testbed), now, DAY)


def _breakage(name: str, summary: str, seen: str, code: str, make: Make) -> Breakage:
    return Breakage(name, summary, seen, code, Speaker.AGENTS, _use(make), _use_right_one)


_NO_AGENT: Final = "calls fail with `No agent available`; agents run and cannot connect"
BREAKAGES: Final = (
    _breakage("certificate-expired", "the server's certificate expired two hours ago", _NO_AGENT, "UMB321", _expired),
    _breakage(
        "certificate-from-tomorrow",
        "the server's certificate is valid from tomorrow",
        _NO_AGENT,
        "UMB322",
        lambda testbed, now: testbed.tunnel.authority.signer.issue(_leaf(testbed).profile, now + DAY, DAY),
    ),
    _breakage(
        "wrong-san", "the server's certificate is for another address", _NO_AGENT, "UMB323", _for_another_address
    ),
    _breakage(
        "wrong-ca",
        "the server's certificate is from a CA that agents do not trust",
        _NO_AGENT,
        "UMB324",
        _from_another_authority,
    ),
)
