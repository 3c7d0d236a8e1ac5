"""The dashboard as Grafana would read it."""

import itertools
import json
import re
from typing import Any

from tests.support.hosted_specs import hosted_spec
from tests.support.promql import grouping_labels, selectors

from umbilical.assets.hosted.dashboard import FILE, dashboard, model
from umbilical.assets.hosted.spec import Monitoring

PANELS: list[dict[str, Any]] = model(hosted_spec())["panels"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel.get("targets", ())]


def test_it_is_a_config_map_that_grafana_s_sidecar_finds() -> None:
    (config_map,) = dashboard(hosted_spec())
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert config_map["metadata"]["namespace"] == "clusters-guest"
    assert json.loads(config_map["data"][FILE]) == model(hosted_spec())


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    cells = [
        cell
        for place in (panel["gridPos"] for panel in PANELS)
        for cell in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24


def test_every_query_asks_the_chosen_control_planes_alone() -> None:
    for title, target in TARGETS:
        scoped = [one for one in selectors(target["expr"]) if one.matchers]
        assert scoped, title
        assert all(
            ("namespace", "=~", "$namespace") in [(m.label, m.operator, m.value) for m in s.matchers] for s in scoped
        )


def test_a_legend_names_only_labels_that_the_result_has() -> None:
    for title, target in TARGETS:
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        if "sum by" in target["expr"]:
            assert named <= grouping_labels(target["expr"]), title
        else:
            assert named <= {"pod", "container", "role", "file"}, title


def test_rates_leave_the_interval_to_grafana() -> None:
    for title, target in TARGETS:
        assert re.findall(r"\[([^\]]*)\]", target["expr"]) in ([], ["$__rate_interval"]), title


def test_the_control_plane_of_the_spec_is_chosen_first() -> None:
    namespaces = model(hosted_spec())["templating"]["list"][1]
    assert namespaces["current"]["value"] == "clusters-guest"


def test_without_monitoring_there_is_no_dashboard() -> None:
    assert dashboard(hosted_spec(monitoring=Monitoring(enabled=False))) == []
