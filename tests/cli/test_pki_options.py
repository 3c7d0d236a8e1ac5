"""Values of the flags that `pki` commands share, and the signer of a directory."""

from datetime import timedelta
from pathlib import Path

import click
import pytest
from tests.support.tunnel_directories import make_directory

from umbilical.cli.pki_options import at_least, lifetime, signer_pair
from umbilical.pki.errors import PkiError
from umbilical.pki.pem import KeyPair


@pytest.mark.parametrize(
    ("text", "value"), [("24h", timedelta(days=1)), ("10m", timedelta(minutes=10)), ("87600h", timedelta(days=3650))]
)
def test_a_life_is_a_duration(text: str, value: timedelta) -> None:
    assert lifetime(text) == value


@pytest.mark.parametrize("text", ["1m", "0", "-24h", "87601h", "1d", "soon", ""])
def test_a_life_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        lifetime(text)


@pytest.mark.parametrize(
    ("text", "value"), [("0", timedelta()), ("30m", timedelta(minutes=30)), ("2000000h", timedelta(days=3650))]
)
def test_time_left_may_be_any_span(text: str, value: timedelta) -> None:
    assert at_least(text) == value


def test_the_signer_is_the_directorys_own_or_a_given_one(tmp_path: Path) -> None:
    folder, other = make_directory(tmp_path / "pki"), make_directory(tmp_path / "other")

    def options(certificate: Path | None, key: Path | None) -> dict[str, Path | None]:
        return {"folder": folder, "ca_cert": certificate, "ca_key": key}

    def pair(certificate: Path, key: Path) -> KeyPair:
        return KeyPair(certificate.read_bytes(), key.read_bytes())

    assert signer_pair(options(None, None)) == pair(folder / "ca.crt", folder / "ca.key")
    given = signer_pair(options(other / "ca.crt", other / "ca.key"))
    assert given == pair(other / "ca.crt", other / "ca.key")
    (folder / "ca.key").unlink()
    with pytest.raises(click.UsageError, match="--ca-key"):
        signer_pair(options(None, None))
    with pytest.raises(PkiError, match="UMB152"):
        signer_pair(options(None, tmp_path / "none"))
