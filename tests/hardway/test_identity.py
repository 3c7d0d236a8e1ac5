"""Drawn once, kept for its owner, and never replaced in silence."""

import re
import uuid
from functools import cache
from pathlib import Path

import bcrypt
import pytest

from umbilical.assets.hardway.inputs import Identity
from umbilical.hardway.errors import HardwayError
from umbilical.hardway.identity import draw_identity, draw_password, forget_identity, keep_identity, read_identity


@cache
def drawn() -> Identity:
    return draw_identity("ocp4")


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    assert read_identity(tmp_path) is None
    identity = drawn()
    path = keep_identity(tmp_path, identity)
    assert read_identity(tmp_path) == identity
    assert path == tmp_path / ".umbilical" / "identity.json"
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_forgotten_is_gone_and_forgetting_twice_is_fine(tmp_path: Path) -> None:
    keep_identity(tmp_path, drawn())
    for _ in range(2):
        forget_identity(tmp_path)
        assert read_identity(tmp_path) is None


def test_each_part_has_its_form() -> None:
    identity = drawn()
    assert uuid.UUID(identity.cluster_id).version == 4
    assert re.fullmatch(r"ocp4-[a-z0-9]{5}", identity.infrastructure_name)
    assert bcrypt.checkpw(identity.kubeadmin_password.encode(), identity.kubeadmin_hash.encode())


def test_a_password_can_be_read_aloud() -> None:
    passwords = {draw_password() for _ in range(200)}
    assert len(passwords) == 200
    for password in passwords:
        assert re.fullmatch(r"([A-Za-z0-9]{5}-){3}[A-Za-z0-9]{5}", password)
        assert not set("01lO") & set(password)


def test_a_long_name_is_cut_to_what_platforms_take() -> None:
    name = draw_identity("a-very-long-name-of-a-c-" + "x" * 30).infrastructure_name
    assert len(name) <= 27
    assert "--" not in name


def test_passwords_stay_out_of_representations() -> None:
    identity = drawn()
    assert identity.kubeadmin_password not in repr(identity)
    assert identity.kubeadmin_hash not in repr(identity)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"cluster_id": 5}', b"\xff", b"[" * 100_000])
def test_a_damaged_one_is_refused_and_not_replaced(tmp_path: Path, content: bytes) -> None:
    path = keep_identity(tmp_path, drawn())
    path.write_bytes(content)
    with pytest.raises(HardwayError) as refused:
        read_identity(tmp_path)
    assert refused.value.code == "UMB713"
    assert path.read_bytes() == content
