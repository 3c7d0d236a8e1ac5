"""What was there for a while only goes as the artifact says; what cannot be read or done is told."""

import pytest
from tests.support.api_stock import Stock, finalize, namespace
from tests.support.control_plane import PROGRAMS
from tests.support.live_site import machines_of

from umbilical.assets.hardway.static_pods.removals import PATH, TUNNEL, Removal
from umbilical.assets.tree import Asset
from umbilical.cluster import objects
from umbilical.hardway import kube
from umbilical.hardway.errors import HardwayError
from umbilical.hardway.machines import Done, Power
from umbilical.hardway.removing import removal, remove
from umbilical.hardway.site import Site

pytestmark = pytest.mark.real(*PROGRAMS)
DONE = Done(0, b"", b"")


def test_it_is_read_from_the_artifact_that_the_lint_reads(site: Site) -> None:
    found = removal(site, TUNNEL)
    assert found is not None
    assert found.namespace == "bootstrap-konnectivity"
    assert removal(site, "something-else") is None


def test_an_artifact_that_cannot_be_read_is_told(site: Site) -> None:
    site.assets = {**site.assets, PATH: Asset(PATH, b"{", 0o644)}
    with pytest.raises(HardwayError) as raised:
        removal(site, TUNNEL)
    assert raised.value.code == "UMB760"


def test_namespace_then_files_then_commands_and_twice_is_fine(site: Site, shelf: Stock) -> None:
    shelf.put(namespace("shortlived"))
    machines = machines_of(site)
    machines.powers.update({"bootstrap": Power.OFF, "master-0": Power.ON})
    machines.responders.append(lambda node, command, stdin: DONE)
    files = (("bootstrap", "/etc/a.yaml"), ("master-0", "/etc/b.yaml"))
    step = Removal("it", 16, "", namespace="shortlived", files=files, commands=(("master-0", ("it", "--cleanup")),))
    remove(site, step)
    shelf.call(lambda client: finalize(client, "shortlived"))
    assert kube.get(site, objects.NAMESPACE, "shortlived") is None
    remove(site, step)
    assert machines.calls == ["run master-0 rm -f /etc/b.yaml", "run master-0 it --cleanup"] * 2


def test_a_command_that_fails_is_told_with_its_words(site: Site) -> None:
    with pytest.raises(HardwayError) as raised:
        remove(site, Removal("it", 16, "", commands=(("master-0", ("it", "--cleanup")),)))
    assert (raised.value.code, raised.value.remedy) == ("UMB761", "there: it --cleanup")
