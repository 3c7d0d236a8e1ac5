import click
import pytest

from umbilical.cli.bootstrap_authority import authority_options, refuse_authority
from umbilical.fault import Fault


def test_without_them_the_other_options_pass() -> None:
    options = {"ca_cert": None, "ca_key": None, "from_install_state": False, "image": "x"}
    assert refuse_authority(options) == {"image": "x"}


@pytest.mark.parametrize(
    ("used", "named"),
    [
        ({"ca_cert": "a", "ca_key": "b"}, "(--ca-cert, --ca-key)"),
        ({"from_install_state": True}, "(--from-install-state)"),
    ],
)
def test_each_that_is_used_is_named_and_the_reason_told(used: dict[str, object], named: str) -> None:
    with pytest.raises(Fault) as refused:
        refuse_authority({**used, "image": "x"})
    assert refused.value.code == "UMB130"
    assert named in refused.value.what


def test_they_are_understood_and_out_of_sight() -> None:
    @click.command()
    @authority_options
    def command(**options: object) -> None:
        """Do nothing."""

    context = command.make_context("command", ["--ca-cert", "a", "--from-install-state"])
    assert context.params == {"ca_cert": "a", "ca_key": None, "from_install_state": True}
    assert "--ca-cert" not in command.get_help(context)
