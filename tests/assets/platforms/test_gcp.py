"""Google Cloud: tags of each era of installers."""

from umbilical.assets.platforms.gcp import commands, rules
from umbilical.assets.platforms.request import Release, Request


def test_terraform_installers_tagged_the_control_plane_otherwise() -> None:
    rule = rules(Request("ci", release=Release(4, 16)))[0]
    assert [place.value for place in rule.sources] == ["ci-worker", "ci-master"]
    assert rule.target.value == "ci-master"


def test_opening_and_closing_name_the_same_rule() -> None:
    made = commands(Request("ci"))
    assert made.open[0].words[4] == made.close[0].words[4] == "ci-bootstrap-in-konnectivity"
