"""Rows of flag tables, as one node needs them."""

from tests.support.hardway_pods import seat

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.static_pods.rows import Program, Row, by_profile, on_kubernetes, on_openshift

TABLE = (
    Row("same", "1", "for all", "nothing"),
    Row("node", lambda seat: seat.node.id, "by node", "nothing"),
    Row("profile", by_profile(openshift="o", kubernetes="k"), "by profile", "nothing"),
    Row("only-o", "yes", "there alone", "nothing", on_openshift),
    Row("only-k", "yes", "there alone", "nothing", on_kubernetes),
)
PROGRAM = Program("one", TABLE, "like this", TABLE[1:2])


def test_a_command_line_has_the_rows_that_are_for_the_node() -> None:
    assert PROGRAM.command_line(seat(Profile.OPENSHIFT)) == (
        *("--same=1", "--node=bootstrap", "--profile=o", "--only-o=yes"),
    )
    assert PROGRAM.command_line(seat(Profile.KUBERNETES, "master-1")) == (
        *("--same=1", "--node=master-1", "--profile=k", "--only-k=yes"),
    )


def test_variables_are_rows_too() -> None:
    assert PROGRAM.variables(seat(Profile.OPENSHIFT)) == {"node": "bootstrap"}


def test_a_flag_keeps_its_reason() -> None:
    flag = TABLE[2].flag(seat(Profile.OPENSHIFT))
    assert (str(flag), flag.why, flag.without) == ("--profile=o", "by profile", "nothing")
