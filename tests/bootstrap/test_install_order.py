"""What is told about the order of the installer's steps and the day its certificates last."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.install_directories import Directory, certificate, set_time

from umbilical.bootstrap.install_dir import InstallDir

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def warnings(path: Path) -> list[str]:
    return InstallDir(path).warnings(NOW)


def only_warning(path: Path) -> str:
    (warning,) = warnings(path)
    return warning


def test_fresh_configs_alone_give_no_warning(tmp_path: Path) -> None:
    lasting = certificate(NOW, 24 * HOUR)
    Directory(tmp_path).ignition(("/opt/openshift/tls/root-ca.crt", lasting), made=NOW - HOUR)
    assert warnings(tmp_path) == []


@pytest.mark.parametrize("name", ["install-config.yaml", "manifests", "openshift"])
def test_a_parent_that_is_newer_will_discard_the_patch(name: str, tmp_path: Path) -> None:
    Directory(tmp_path).ignition(made=NOW - HOUR)
    path = tmp_path / name if "." in name else tmp_path / name / "a.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("a: 1")
    for item in (path, tmp_path / name):
        set_time(item, NOW)
    (warning,) = warnings(tmp_path)
    assert warning.startswith(f"{name} is newer than bootstrap.ign")
    assert "discard" in warning


def test_patching_does_not_hide_an_edit_that_came_before_it(tmp_path: Path) -> None:
    """Patch renews bootstrap.ign; master.ign still tells when both were made."""
    Directory(tmp_path).install_config().ignition(made=NOW - 2 * HOUR)
    set_time(tmp_path / "install-config.yaml", NOW - HOUR)
    set_time(tmp_path / "bootstrap.ign", NOW)
    assert "newer" in warnings(tmp_path)[0]


def test_an_older_parent_beside_the_configs_is_told_more_gently(tmp_path: Path) -> None:
    Directory(tmp_path).install_config().ignition(made=NOW - HOUR)
    set_time(tmp_path / "install-config.yaml", NOW - 2 * HOUR)
    assert only_warning(tmp_path).startswith("install-config.yaml exists next to bootstrap.ign")


def test_configs_older_than_a_day_are_told(tmp_path: Path) -> None:
    Directory(tmp_path).ignition(made=NOW - 25 * HOUR)
    assert "25 hours old" in only_warning(tmp_path)


def test_a_certificate_that_expired_or_is_about_to_end_is_told(tmp_path: Path) -> None:
    old = certificate(NOW - 25 * HOUR, 24 * HOUR)
    files = (("/opt/openshift/tls/a.crt", old), ("/opt/openshift/tls/b.crt", old))
    Directory(tmp_path).ignition(*files, made=NOW - HOUR)
    assert "a.crt in bootstrap.ign (and 1 more) expired at 2026-11-15 11:00 UTC" in only_warning(tmp_path)
    Directory(tmp_path).ignition(("/tls/a.crt", certificate(NOW, HOUR)), made=NOW - HOUR)
    assert "/tls/a.crt in bootstrap.ign expires at 2026-11-15 13:00 UTC" in only_warning(tmp_path)


def test_what_is_no_certificate_is_left_to_verify(tmp_path: Path) -> None:
    Directory(tmp_path).ignition(("/tls/a.crt", b"no PEM"), ("/tls/a.key", b""), made=NOW - HOUR)
    assert warnings(tmp_path) == []
    (tmp_path / "bootstrap.ign").write_text("no JSON")
    set_time(tmp_path / "bootstrap.ign", NOW - HOUR)
    assert warnings(tmp_path) == []


def test_manifests_without_configs_mean_a_step_is_missing(tmp_path: Path) -> None:
    Directory(tmp_path).install_config()
    assert "`create ignition-configs` has not run" in only_warning(tmp_path)


def test_consumed_configs_are_told(tmp_path: Path) -> None:
    Directory(tmp_path).state(bootstrap_Bootstrap={})
    assert "has deleted bootstrap.ign" in only_warning(tmp_path)
