"""The Prometheus queries of alerts and dashboard."""

from collections.abc import Iterator
from typing import Final

from tests.support.hosted_specs import hosted_spec
from tests.support.promql import selectors

from umbilical.hosted.objects.alerts import hosted_rules, rules
from umbilical.hosted.objects.dashboard import model
from umbilical.hosted.objects.spec import Agents


def _expressions() -> Iterator[str]:
    spec = hosted_spec(agents=Agents(host_network=False))
    for rule in (*rules(spec), *hosted_rules(spec)):
        yield from (entry["expr"] for group in rule["spec"]["groups"] for entry in group["rules"])
    yield from (target["expr"] for panel in model(spec)["panels"] for target in panel.get("targets", ()))


EXPRESSIONS: Final = tuple(_expressions())
SELECTORS: Final = tuple(selector for expression in EXPRESSIONS for selector in selectors(expression))
