"""Which way a lab is kept apart, and what is said where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from umbilical.lab import isolation
from umbilical.lab.errors import LabError
from umbilical.lab.isolation import Isolation

CHOOSE = """
from umbilical.lab import isolation
from umbilical.lab.errors import LabError
try: print(isolation.choose().name)
except LabError as fault: print(fault)
"""


def choose_within(*way: str) -> list[str]:
    """Choose in a process that is put somewhere first."""
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    command = [*way, sys.executable, "-c", CHOOSE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=True)
    return done.stdout.splitlines()


@pytest.mark.real("unshare", "nsenter", "nft")
def test_who_is_root_needs_no_user_namespace() -> None:
    assert isolation.choose() is (Isolation.USER_NAMESPACE if os.geteuid() else Isolation.ROOT)


@pytest.mark.real("unshare", "nsenter", "nft")
def test_an_ordinary_user_gets_a_user_namespace() -> None:
    as_user = ["unshare", "--user", "--map-user=1234", "--map-group=1234", "--"]
    assert choose_within(*as_user) == ["USER_NAMESPACE"]


@pytest.mark.real("unshare", "nsenter", "nft", "setpriv")
def test_a_root_without_capabilities_gets_a_user_namespace() -> None:
    # Containers keep SETFCAP, without which nobody may call another user 0: user_namespaces(7).
    powerless = ["setpriv", "--bounding-set=-all,+setfcap", "--inh-caps=-all"]
    as_container = ["unshare", "--user", "--map-root-user", "--", *powerless]
    assert choose_within(*as_container) == ["USER_NAMESPACE"]


@pytest.mark.real("unshare", "nsenter", "nft", "setpriv")
@pytest.mark.parametrize(
    ("identity", "remedy"),
    [
        (["--map-user=1234", "--map-group=1234", "--keep-caps"], "sudo sysctl user.max_user_namespaces=10000"),
        (["--map-root-user"], "give this container CAP_SYS_ADMIN and CAP_NET_ADMIN"),
    ],
)
def test_who_may_make_no_namespaces_is_told_what_would_allow_it(identity: list[str], remedy: str) -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    powerless = ["setpriv", "--ambient-caps=-all", "--inh-caps=-all", "--bounding-set=-all"]
    said = choose_within("unshare", "--user", *identity, "--", "sh", "-c", forbid, "sh", *powerless)
    assert said[0] == "UMB820 no permission to make the lab's namespaces"
    assert said[1].startswith("  why: unshare: unshare failed: ")
    assert said[-1].startswith(f"  next: {remedy}")


@pytest.mark.parametrize("release", ["5.11.22", "4.18.0-553.el8_10.x86_64", "2.6.32", "5.4"])
def test_a_kernel_that_is_too_old_is_told(release: str) -> None:
    with pytest.raises(LabError, match=r"needs 5\.12 or newer") as refused:
        isolation.check_kernel(release)
    assert refused.value.code == "UMB821"
    assert release in refused.value.why


@pytest.mark.parametrize("release", ["5.12.0", "5.15.0-generic", "6.1.0-13-amd64", "10.0", "", "unknown", "6"])
def test_a_kernel_that_is_new_enough_or_says_nothing_is_fine(release: str) -> None:
    isolation.check_kernel(release)


def test_another_system_is_told() -> None:
    isolation.check_system("Linux")
    for system in ("Darwin", "FreeBSD", ""):
        with pytest.raises(LabError) as refused:
            isolation.check_system(system)
        assert refused.value.code == "UMB823"


def test_a_missing_program_is_told_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nsenter", "nft", "ss"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setattr(isolation, "search_path", lambda: str(tmp_path))
    with pytest.raises(LabError) as refused:
        isolation.choose()
    assert refused.value.code == "UMB822"
    assert refused.value.what.endswith("missing: unshare")
    assert "apt install util-linux " in refused.value.remedy
    (tmp_path / "unshare").touch(0o755)
    isolation.check_programs()


def test_programs_are_looked_for_where_administrators_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/opt/only")
    assert isolation.search_path() == "/opt/only:/usr/sbin:/sbin"
    monkeypatch.delenv("PATH")
    assert "/usr/sbin" in isolation.search_path().split(":")


@pytest.mark.real("unshare")
def test_a_trial_that_cannot_be_started_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "find_program", lambda name: "/no/such/program")
    with pytest.raises(LabError) as refused:
        isolation.choose()
    assert refused.value.code == "UMB820"


def test_a_missing_python_package_is_told_with_what_brings_it() -> None:
    isolation.check_libraries(["sys"])
    with pytest.raises(LabError) as caught:
        isolation.check_libraries(["sys", "umbilical_nowhere"])
    assert caught.value.code == "UMB826"
    assert caught.value.what.endswith("missing: umbilical_nowhere")
    assert caught.value.remedy == "pip install 'umbilical[lab]'"
