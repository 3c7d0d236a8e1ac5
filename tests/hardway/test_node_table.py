"""The table of nodes beside a wait: from a real API, while it lasts and when it is over."""

from pathlib import Path

import pytest
from tests.support.api_stock import Stock, node, pod
from tests.support.control_plane import PROGRAMS
from tests.support.live_site import live_site, naps_of
from tests.support.made_up_stages import Lines

from umbilical.hardway import kube
from umbilical.hardway.errors import StageTimeout
from umbilical.hardway.looking import Sight
from umbilical.hardway.node_table import LOOKS_BETWEEN, see_nodes, show
from umbilical.hardway.site import Site
from umbilical.hardway.waiting import NotYet

pytestmark = pytest.mark.real(*PROGRAMS)


def tables(site: Site) -> list[dict[tuple[str, str], str]]:
    assert isinstance(site.reporter, Lines)
    return [dict(one) for one in site.reporter.tables]


def everybody_registered() -> Sight:
    def look(site: Site) -> str:
        if len(kube.nodes(site)) < len(site.cluster.members):
            raise NotYet("some are missing")
        return "all"

    return Sight("x", "all are there", "", "", look)


def test_each_node_is_a_row_that_changes_while_one_waits(site: Site, shelf: Stock) -> None:
    master, worker = site.cluster.members
    shelf.put(node(master.name, str(master.address), Ready="True"))
    shelf.put(pod("one", "kube-system", node_name=master.name))
    shelf.put(pod("two", "kube-system", node_name=master.name, is_ready=False))
    naps_of(site).plans.append(lambda: shelf.put(node(worker.name, str(worker.address), Ready="False")))
    see_nodes(site, 60, everybody_registered())
    before, after = tables(site)
    assert [before["master-0", signal] for signal in ("registered", "ready", "pods")] == ["yes", "yes", "1 of 2"]
    assert [before["worker-0", signal] for signal in ("registered", "ready", "pods")] == ["no", "-", "-"]
    assert [after["worker-0", signal] for signal in ("registered", "ready", "pods")] == ["yes", "no", "0 of 0"]


def test_a_long_wait_does_not_ask_for_it_with_each_look(site: Site) -> None:
    looks = 2 * LOOKS_BETWEEN + 1
    naps_of(site).plans += [lambda: None] * (looks - 1)
    left = iter(range(looks))

    def look(site: Site) -> str:
        if next(left, None) is None:
            return "all"
        raise NotYet("not yet")

    see_nodes(site, 60, Sight("x", "all are there", "", "", look))
    assert len(tables(site)) == 3 + 1


def test_without_an_api_there_is_no_table_and_the_wait_tells_why(tmp_path: Path) -> None:
    site = live_site(tmp_path)
    show(site)
    with pytest.raises(StageTimeout):
        see_nodes(site, 0, everybody_registered())
    assert tables(site) == []
