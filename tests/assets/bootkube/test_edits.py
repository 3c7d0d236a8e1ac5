import subprocess

import pytest
from tests.support.bootkube_script import NATIVE_RELEASES, RELEASES, bootkube_script

from umbilical.assets.bootkube.anchors import Anchor
from umbilical.assets.bootkube.edits import REASONS, insert, insertions, remove
from umbilical.assets.errors import AssetError
from umbilical.assets.names import OWN


def _patched(script: str) -> str:
    return insert(script, insertions(script))


def _added_lines(script: str) -> list[tuple[str, str]]:
    """The line before each of ours, and ours."""
    ours = {line for planned in insertions(script) for line in planned.text.split("\n") if line}
    lines = _patched(script).split("\n")
    return [(lines[index - 1], line) for index, line in enumerate(lines) if line in ours]


@pytest.mark.parametrize("release", RELEASES)
def test_bash_takes_the_script_with_our_lines_and_they_come_out_again(release: str) -> None:
    script = bootkube_script(release)
    patched = _patched(script)
    subprocess.run(["bash", "-n"], input=patched.encode(), check=True, timeout=30)
    assert remove(patched, [planned.text for planned in insertions(script)]) == script


@pytest.mark.parametrize("release", NATIVE_RELEASES)
def test_the_flag_stays_inside_a_command_that_ends_in_a_backslash_and_an_empty_line(release: str) -> None:
    script = bootkube_script(release, native="off")
    assert " \\\n\n" in script
    subprocess.run(["bash", "-n"], input=_patched(script).encode(), check=True, timeout=30)


def test_each_edit_stands_where_it_must() -> None:
    assert _added_lines(bootkube_script("4.18")) == [
        (". /usr/local/bin/bootstrap-verify-api-server-urls.sh", ". /usr/local/bin/umbilical-konnectivity.sh"),
        ("", "umbilical_setup"),
        (
            "\t\t/usr/bin/cluster-kube-apiserver-operator render \\",
            "\t\t--config-override-files=/assets/umbilical/konnectivity-config-override.yaml \\",
        ),
        (
            "\tcp kube-apiserver-bootstrap/config /etc/kubernetes/bootstrap-configs/kube-apiserver-config.yaml",
            f"\tcp {OWN.egress} /etc/kubernetes/bootstrap-configs/egress-selector-config.yaml",
        ),
        ("", "umbilical_manifests"),
        ("", "umbilical_cleanup"),
    ]


def test_the_cleanup_stands_above_the_comment_of_the_last_line() -> None:
    lines = _patched(bootkube_script("4.18")).split("\n")
    below = lines[lines.index("umbilical_cleanup") + 1 :]
    assert below[0] == ""
    assert [line[:1] for line in below[1:]] == ["#", "#", "t", ""]


def test_the_cleanup_stands_right_above_a_last_line_without_comment() -> None:
    script = "\n".join(line for line in bootkube_script("4.18").split("\n") if not line.startswith("# "))
    assert _patched(script).endswith("umbilical_cleanup\n\ntouch /opt/openshift/.bootkube.done\n")


def test_a_script_without_line_break_at_its_end_keeps_it_so() -> None:
    script = bootkube_script("4.18").removesuffix("\n")
    patched = _patched(script)
    assert patched.endswith(".bootkube.done")
    assert remove(patched, [planned.text for planned in insertions(script)]) == script


def test_our_lines_are_found_wherever_they_stand_now() -> None:
    script = bootkube_script("4.18")
    patched = _patched(script).replace("#!/usr/bin/env bash\n", "#!/usr/bin/env bash\n# a line of somebody else\n")
    taken_out = remove(patched, [planned.text for planned in insertions(script)])
    assert taken_out == script.replace("#!/usr/bin/env bash\n", "#!/usr/bin/env bash\n# a line of somebody else\n")


@pytest.mark.parametrize("times", [0, 2])
def test_a_line_of_ours_that_is_not_there_once_is_not_taken_out(times: int) -> None:
    script = bootkube_script("4.18")
    patched = _patched(script).replace("umbilical_setup\n\n", "umbilical_setup\n\n" * times)
    with pytest.raises(AssetError, match=f"UMB129.*\n.*'umbilical_setup' is there {times} times"):
        remove(patched, [planned.text for planned in insertions(script)])


def test_a_line_that_only_ends_like_ours_is_left_alone() -> None:
    assert remove("echo umbilical_setup\n\numbilical_setup\n\n", ["umbilical_setup\n\n"]) == "echo umbilical_setup\n\n"


def test_every_edit_has_a_reason_to_show() -> None:
    assert set(REASONS) == set(Anchor)
