import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.odd_certificates import DAY, OddPki

from umbilical.tunnel import validity
from umbilical.tunnel.validity import Validity


def test_the_dates_of_a_certificate_are_read(tmp_path: Path) -> None:
    odd = OddPki(tmp_path)
    found = validity.of_file(odd.agent(starts=DAY).certificate)
    start, end = odd.now + DAY - timedelta(hours=1), odd.now + 2 * DAY
    assert found == Validity(f"{start:%Y%m%d%H%M%S}", f"{end:%Y%m%d%H%M%S}")
    assert found.span == f"from {start:%Y-%m-%dT%H:%M:%S}Z until {end:%Y-%m-%dT%H:%M:%S}Z"


def test_dates_far_away_have_another_form(tmp_path: Path) -> None:
    odd = OddPki(tmp_path)
    found = validity.of_file(odd.agent(life=timedelta(days=40_000)).certificate)
    assert found is not None
    assert found.not_after == f"{odd.now + timedelta(days=40_000):%Y%m%d%H%M%S}"


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA", b"\xff\xfe".decode("latin-1")]
)
def test_a_file_that_holds_no_certificate_has_no_dates(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    assert validity.of_file(path) is None
    assert validity.of_file(tmp_path / "gone") is None


def test_moments_compare_and_show() -> None:
    assert validity.moment_of(0) == "19700101000000"
    assert validity.shown("19700101000000") == "1970-01-01T00:00:00Z"


@given(st.datetimes(datetime(1950, 1, 1), datetime(9999, 12, 31, 23, 59, 59)))
def test_seconds_are_those_of_the_calendar(moment: datetime) -> None:
    expected = moment.replace(microsecond=0, tzinfo=UTC).timestamp()
    assert validity.seconds_of(f"{moment:%Y%m%d%H%M%S}") == expected


@pytest.mark.parametrize("moment", ["20261301000000", "20260100000000", "20260132000000", "20260101240000"])
def test_a_moment_that_no_calendar_has_is_refused(moment: str) -> None:
    with pytest.raises(ValueError, match="there is no"):
        validity.seconds_of(moment)


def test_a_certificate_holds_from_its_first_second_to_its_last() -> None:
    life = Validity("19700101000010", "19700101000020")
    assert [life.holds_at(second) for second in (9, 10, 20, 21)] == [False, True, True, False]


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_a_value_error(data: bytes) -> None:
    try:
        validity.of_der(data)
    except ValueError:
        return


@given(position=st.integers(0, 400), octet=st.integers(0, 255))
def test_no_change_of_a_real_certificate_does_worse(certificate: bytes, position: int, octet: int) -> None:
    changed = bytearray(certificate)
    changed[position % len(changed)] = octet
    try:
        found = validity.of_der(bytes(changed))
    except ValueError:
        return
    assert len(found.not_before) == len(found.not_after) == 14


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return ssl.PEM_cert_to_DER_cert(OddPki(tmp_path_factory.mktemp("pki")).agent().certificate.read_text())
