"""Service records: which stage fails, since when, how often; and files that are cut off or were never records."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.log_bundles import STAGES, Record, good_record

from umbilical.bootstrap.service_record import ServiceRecord, State, parse_record, parse_time


def read(record: Record) -> ServiceRecord:
    return parse_record(record.content())


def test_a_record_that_ends_with_success_ended_well() -> None:
    record = read(good_record())
    assert record.state is State.ENDED_WELL
    assert record.last_failure is None
    assert not record.fault


def test_the_stage_is_read_from_its_own_key() -> None:
    record = parse_record(b'[{"phase": "stage start", "stage": "cb-bootstrap", "string": "not this"}]')
    assert record.open_stage is not None
    assert record.open_stage.stage == "cb-bootstrap"


def test_a_failed_stage_is_named_by_the_entry_before_the_end_of_the_service() -> None:
    record = read(Record().start().done("etcd-bootstrap").fails("konnectivity-certs", "no address"))
    failure = record.last_failure
    assert record.state is State.FAILING
    assert failure is not None
    assert (failure.stage, failure.times) == ("konnectivity-certs", 1)
    assert failure.last.error_message == "no address"
    assert failure.last.error_line == "231 main bootkube.sh"


def test_failures_in_a_row_are_counted_from_the_first_of_them() -> None:
    script = Record().start().fails("cvo-bootstrap").start().done("cvo-bootstrap")
    for _ in range(3):
        script.fails("konnectivity-certs").start()
    failure = read(script).last_failure
    assert failure is not None
    assert (failure.stage, failure.times) == ("konnectivity-certs", 3)
    assert failure.first.timestamp < failure.last.timestamp
    assert failure.first.stage == ""  # the entry that ended the service, not the one of the stage


def test_a_record_that_is_sourced_twice_by_one_run_has_one_run() -> None:
    once = Record().start().start().done(*STAGES).ends_well()
    assert read(once).starts == 1
    again = Record().start().start().fails("cvo-bootstrap").start().start().done("cvo-bootstrap").ends_well()
    assert read(again).starts == 2
    assert read(Record()).starts == 0


def test_a_stage_that_is_tried_again_still_fails() -> None:
    record = read(Record().start().fails("konnectivity-certs").start().enters("konnectivity-certs"))
    assert record.open_stage is not None
    assert record.state is State.FAILING


def test_a_stage_without_an_end_is_what_a_run_hangs_in() -> None:
    record = read(Record().start().done(*STAGES[:6]).enters("cb-bootstrap"))
    assert record.state is State.IN_STAGE
    assert record.open_stage is not None
    assert record.open_stage.stage == "cb-bootstrap"


def test_a_failure_that_a_later_run_overcame_is_forgotten() -> None:
    record = read(Record().start().fails("cvo-bootstrap").start().done("cvo-bootstrap").enters("cb-bootstrap"))
    assert record.last_failure is None
    assert record.state is State.IN_STAGE


def test_a_stage_that_failed_without_ending_the_run_is_passed_over() -> None:
    record = read(Record().start().stumbles("resolve-api-url").enters("cb-bootstrap"))
    assert record.passed_over == ("resolve-api-url",)
    assert record.last_failure is None
    assert record.state is State.IN_STAGE


def test_the_stage_that_ends_a_run_is_not_passed_over() -> None:
    assert read(Record().start().fails("konnectivity-certs")).passed_over == ()


def test_a_run_between_two_stages_says_so() -> None:
    record = read(Record().start().done("cvo-bootstrap"))
    assert record.state is State.BETWEEN_STAGES
    assert record.last_done is not None
    assert record.last_done.stage == "cvo-bootstrap"


def test_a_post_command_that_ends_well_ends_the_service_well() -> None:
    assert read(Record().start().add("post-command end", "success")).ended_well
    assert not read(Record().start().add("pre-command end", "success")).ended_well


def test_a_failure_outside_of_any_stage_has_no_stage() -> None:
    failure = read(Record().start().add("service end", "failure", message="boom")).last_failure
    assert failure is not None
    assert failure.stage == ""


def test_every_prefix_of_a_record_gives_the_entries_that_are_whole() -> None:
    content = good_record().content()
    whole = parse_record(content).entries
    counts = []
    for length in range(len(content)):
        cut = parse_record(content[:length])
        assert cut.entries == whole[: len(cut.entries)]
        counts.append(len(cut.entries))
    assert counts == sorted(counts)
    assert parse_record(content[:-3]).fault


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"null", b"\xff\xfe", b"[" * 100_000, b'[{"a":' * 100_000, b"[1,2", b"[}", b"[" + b"9" * 5000 + b"]"],
)
def test_what_is_no_record_has_a_fault_and_no_entries(content: bytes) -> None:
    record = parse_record(content)
    assert record.entries == ()
    assert record.fault
    assert record.state is State.NOT_STARTED


def test_fields_of_other_types_are_empty() -> None:
    content = json.dumps([{"phase": 7, "stage": ["x"], "timestamp": None, "result": {}}, "text", 5]).encode()
    (entry,) = parse_record(content).entries
    assert (entry.phase, entry.stage, entry.timestamp, entry.result) == ("", "", "", "")


PHASES = st.sampled_from(["service start", "service end", "stage start", "stage end", "post-command end", "odd"])
ENTRY = st.fixed_dictionaries(
    {"phase": PHASES, "result": st.sampled_from(["success", "failure", ""]), "stage": st.sampled_from(["a", "b", ""])},
    optional={"timestamp": st.text(max_size=25), "errorMessage": st.text(max_size=20)},
)


@given(st.lists(ENTRY, max_size=30))
def test_any_order_of_entries_has_a_state(entries: list[dict[str, str]]) -> None:
    record = parse_record(json.dumps(entries).encode())
    assert len(record.entries) == len(entries)
    assert (record.state is State.ENDED_WELL) == record.ended_well
    failure = record.last_failure
    if record.state is State.FAILING:
        assert failure is not None
        assert 1 <= failure.times <= len(entries)
    if record.state is State.IN_STAGE:
        assert record.open_stage is not None
    assert set(record.passed_over) <= {"a", "b"}


@given(st.binary(max_size=300))
def test_no_bytes_raise(content: bytes) -> None:
    record = parse_record(content)
    assert isinstance(record.state, State)


@given(st.text(max_size=40))
def test_no_text_raises_as_a_time(text: str) -> None:
    time = parse_time(text)
    assert time is None or time.utcoffset() is not None


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_time("2026-11-15T14:00:00") == parse_time("2026-11-15T14:00:00Z")
    assert parse_time("0001-01-01T00:00:00+23:59") is None


def test_a_last_stage_that_failed_before_a_good_end_is_passed_over() -> None:
    record = read(Record().start().done("cb-bootstrap").stumbles("konnectivity-cleanup").ends_well())
    assert record.passed_over == ("konnectivity-cleanup",)
    assert record.ended_well
