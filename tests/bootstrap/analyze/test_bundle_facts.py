"""The facts of a bundle and its service records: broken files give a note instead of an error."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.log_bundles import (
    AGENT_LOG,
    DAEMON_SET,
    JOURNAL,
    OWN_PKI,
    STAGES,
    BundleBuilder,
    Record,
    good_record,
)

from umbilical.bootstrap.analyze import facts as bundle_facts
from umbilical.bootstrap.analyze.facts import (
    BundleFacts,
    agent_target,
    gather,
    networks,
    service_of,
    terminating_namespaces,
)
from umbilical.bootstrap.analyze.log_bundle import open_bundle
from umbilical.bootstrap.analyze.service_record import ServiceRecord, ServiceState, parse_record, parse_time
from umbilical.bootstrap.analyze.signatures import FileKind


def facts_of(builder: BundleBuilder, folder: Path) -> BundleFacts:
    return gather(open_bundle(builder.archive(folder)))


def test_records_are_read_by_service(tmp_path: Path) -> None:
    facts = facts_of(BundleBuilder(good_record()), tmp_path)
    states = {name: record.state for name, record in facts.records.items()}
    assert states == dict.fromkeys(("bootkube", "release-image"), ServiceState.ENDED_WELL)
    assert facts.record_paths["bootkube"] == "bootstrap/services/bootkube.json"


def test_a_copy_of_the_records_alone_is_enough(tmp_path: Path) -> None:
    (tmp_path / "bootkube.json").write_bytes(good_record().content())
    (tmp_path / "metadata.json").write_text('{"clusterName": "x"}')
    facts = gather(open_bundle(tmp_path))
    assert list(facts.records) == ["bootkube"]
    assert facts.kinds == {FileKind.RECORD}


def test_known_lines_are_counted_over_all_files(tmp_path: Path) -> None:
    builder = (
        BundleBuilder(good_record())
        .log(JOURNAL, "a", "UMB112 no")
        .log("bootstrap/journals/journal.log.gz", "UMB112 no")
    )
    found = facts_of(builder, tmp_path).matches["no address"]
    assert found.count == 2
    assert (found.first.path, found.first.line) == (JOURNAL, 2)


def test_certificates_manifest_and_routes_are_read(tmp_path: Path) -> None:
    builder = BundleBuilder(good_record()).certificates("10.0.0.9").agents("10.0.0.9")
    facts = facts_of(builder.log("bootstrap/network/ip-route.txt", "default via 10.0.0.1"), tmp_path)
    (certificate,) = facts.certificates[f"{OWN_PKI}/server/tls.crt"]
    assert certificate.names == ("10.0.0.9",)
    assert facts.agents is not None
    assert (facts.agents.host, facts.agents.port, facts.agents.evidence.line) == ("10.0.0.9", "8091", 4)
    assert facts.routes.startswith("default")
    facts = facts_of(builder.networks("fd01::/48", "172.30.0.0/16"), tmp_path)
    assert [str(network) for network in facts.cluster_networks] == ["fd01::/48", "172.30.0.0/16"]


def test_a_receipt_shows_that_the_config_was_patched(tmp_path: Path) -> None:
    builder = BundleBuilder(good_record())
    assert not facts_of(builder, tmp_path).is_patched
    builder.files["rendered-assets/openshift/umbilical/receipt.json"] = b"{}"
    assert facts_of(builder, tmp_path).is_patched


def test_the_end_is_the_gathering_or_else_the_last_entry(tmp_path: Path) -> None:
    builder = BundleBuilder(Record().start().fails("konnectivity-certs"))
    assert facts_of(builder, tmp_path).end == datetime(2026, 11, 15, 15, 0, tzinfo=UTC)
    unnamed = gather(open_bundle(builder.archive(tmp_path, "x.tar.gz", "x")))
    assert unnamed.end == datetime(2026, 11, 15, 14, 0, 3, tzinfo=UTC)
    assert BundleFacts("empty").end is None


def test_broken_files_leave_notes_and_the_rest_is_read(tmp_path: Path) -> None:
    builder = BundleBuilder(good_record()).log(AGENT_LOG, "cannot connect once i/o timeout")
    builder.files[f"{OWN_PKI}/server/tls.crt"] = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    builder.files["bootstrap/services/bootkube.json"] = good_record().content()[:-40]
    builder.files["bootstrap/journals/journal.log.gz"] = b"\x1f\x8bnot gzip at all"
    facts = facts_of(builder, tmp_path)
    assert "port closed" in facts.matches
    assert len(facts.notes) == 3
    assert any("truncated" in note for note in facts.notes)


def test_a_file_past_its_bound_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_facts, "MAX_RECORD_BYTES", 300)
    facts = facts_of(BundleBuilder(good_record()), tmp_path)
    assert facts.bootkube is not None
    assert 0 < len(facts.bootkube.entries) < len(good_record().entries)
    assert any("only the first" in note for note in facts.notes)


def test_a_record_is_known_by_its_place() -> None:
    for path, service in (
        ("bootstrap/services/release-image.json", "release-image"),
        ("bootkube.json", "bootkube"),
        ("var/log/openshift/bootkube.json", "bootkube"),
        ("resources/pods.json", None),
        ("rendered-assets/openshift/umbilical/receipt.json", None),
        ("bootstrap/journals/bootkube.log", None),
    ):
        assert service_of(path) == service


def test_what_agents_dial_is_read_as_it_stands() -> None:
    for host in ("", "null", "fd00::9", "10.0.0.9"):
        target = agent_target(DAEMON_SET, f"  - --proxy-server-host={host}\n".encode())
        assert target is not None
        assert (target.host, target.port) == (host, "")
    assert agent_target(DAEMON_SET, b"kind: DaemonSet\n") is None


NAMESPACE: dict[str, Any] = {
    "metadata": {"name": "openshift-bootstrap-konnectivity", "deletionTimestamp": "2026-11-15T14:40:00Z"},
    "status": {
        "phase": "Terminating",
        "conditions": [
            {"type": "NamespaceDeletionContentFailure", "status": "True", "message": "conversion webhook failed"},
            {"type": "NamespaceContentRemaining", "status": "False", "message": "none"},
        ],
    },
}


def test_a_namespace_that_does_not_go_is_found_with_what_holds_it() -> None:
    active = {"metadata": {"name": "openshift-bootstrap-konnectivity"}, "status": {"phase": "Active"}}
    other = {"metadata": {"name": "other"}, "status": {"phase": "Terminating"}}
    labelled = {
        "metadata": {"name": "own-name", "labels": {"openshift.io/bootstrap-only": "true"}},
        "status": {"phase": "Terminating"},
    }
    found = terminating_namespaces(json.dumps({"items": [NAMESPACE, active, other, labelled]}).encode())
    assert [one.name for one in found] == ["openshift-bootstrap-konnectivity", "own-name"]
    assert found[0].reasons == ("NamespaceDeletionContentFailure: conversion webhook failed",)
    assert found[0].since == "2026-11-15T14:40:00Z"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("Terminating"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["items", "metadata", "status", "name", "labels", "phase", "conditions"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_no_list_of_namespaces_raises(value: object) -> None:
    content = json.dumps({"items": value}).encode()
    assert isinstance(terminating_namespaces(content), list)


@given(st.binary(max_size=200))
def test_no_bytes_raise_as_namespaces_or_manifest(content: bytes) -> None:
    assert terminating_namespaces(content) == []
    agent_target(DAEMON_SET, content)
    assert networks(content.decode("latin-1")) == [] or b"/" in content


PATHS = st.sampled_from(
    [
        *("bootstrap/services/bootkube.json", "resources/namespaces.json", "bootstrap/network/ip-route.txt"),
        *(JOURNAL, AGENT_LOG, DAEMON_SET, f"{OWN_PKI}/server/tls.crt", "bootstrap/journals/journal.log.gz"),
    ]
)


@given(st.dictionaries(PATHS, st.binary(max_size=100), max_size=4))
def test_no_bundle_raises(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    builder = BundleBuilder()
    builder.files = files
    facts = facts_of(builder, tmp_path_factory.mktemp("fuzz"))
    assert facts.files <= len(files)


def read(record: Record) -> ServiceRecord:
    return parse_record(record.content())


def test_a_record_that_ends_with_success_ended_well() -> None:
    record = read(good_record())
    assert (record.state, record.last_failure, record.fault) == (ServiceState.ENDED_WELL, None, "")
    assert read(Record().start().add("post-command end", "success")).ended_well
    assert not read(Record().start().add("pre-command end", "success")).ended_well


def test_a_failed_stage_is_named_by_the_entry_before_the_end_of_the_service() -> None:
    record = read(Record().start().done("etcd-bootstrap").fails("konnectivity-certs", "no address"))
    failure = record.last_failure
    assert (record.state, record.passed_over) == (ServiceState.FAILING, ())
    assert failure is not None
    assert (failure.stage, failure.times) == ("konnectivity-certs", 1)
    assert (failure.last.error_message, failure.last.error_line) == ("no address", "231 main bootkube.sh")
    outside = read(Record().start().add("service end", "failure", message="boom")).last_failure
    assert outside is not None
    assert outside.stage == ""


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
    again = Record().start().start().fails("cvo-bootstrap").start().start().done("cvo-bootstrap").ends_well()
    assert [read(record).starts for record in (once, again, Record())] == [1, 2, 0]


def test_the_state_of_a_run_that_has_not_ended_is_told_by_its_last_entries() -> None:
    def begun() -> Record:
        return Record().start()

    for script, state, stage in (
        (
            begun().fails("konnectivity-certs").start().enters("konnectivity-certs"),
            ServiceState.FAILING,
            "konnectivity-certs",
        ),
        (begun().done(*STAGES[:6]).enters("cb-bootstrap"), ServiceState.IN_STAGE, "cb-bootstrap"),
        # A failure that a later run overcame is forgotten.
        (begun().fails("etcd").start().done("etcd").enters("cb-bootstrap"), ServiceState.IN_STAGE, "cb-bootstrap"),
        (begun().stumbles("resolve-api-url").enters("cb-bootstrap"), ServiceState.IN_STAGE, "cb-bootstrap"),
        (begun().done("cvo-bootstrap"), ServiceState.BETWEEN_STAGES, None),
    ):
        record = read(script)
        assert record.state is state
        assert (record.open_stage.stage if record.open_stage else None) == stage
        assert (record.last_failure is not None) is (state is ServiceState.FAILING)
    assert record.last_done is not None
    assert record.last_done.stage == "cvo-bootstrap"


def test_a_stage_is_read_from_its_own_key_and_passed_over_where_it_did_not_end_the_run() -> None:
    assert read(Record().start().stumbles("resolve-api-url").enters("cb-bootstrap")).passed_over == ("resolve-api-url",)
    last = read(Record().start().done("cb-bootstrap").stumbles("konnectivity-cleanup").ends_well())
    assert (last.passed_over, last.ended_well) == (("konnectivity-cleanup",), True)
    record = parse_record(b'[{"phase": "stage start", "stage": "cb-bootstrap", "string": "not this"}]')
    assert record.open_stage is not None
    assert record.open_stage.stage == "cb-bootstrap"


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


def test_what_is_no_record_has_a_fault_and_no_entries() -> None:
    long, deep = b"[" + b"9" * 5000 + b"]", (b"[" * 100_000, b'[{"a":' * 100_000)
    for content in (b"", b"{}", b"null", b"\xff\xfe", b"[1,2", b"[}", long, *deep):
        record = parse_record(content)
        assert record.entries == ()
        assert record.fault
        assert record.state is ServiceState.NOT_STARTED


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
    assert (record.state is ServiceState.ENDED_WELL) == record.ended_well
    failure = record.last_failure
    if record.state is ServiceState.FAILING:
        assert failure is not None
        assert 1 <= failure.times <= len(entries)
    if record.state is ServiceState.IN_STAGE:
        assert record.open_stage is not None
    assert set(record.passed_over) <= {"a", "b"}


@given(st.binary(max_size=300))
def test_no_bytes_raise(content: bytes) -> None:
    record = parse_record(content)
    assert isinstance(record.state, ServiceState)


@given(st.text(max_size=40))
def test_no_text_raises_as_a_time(text: str) -> None:
    time = parse_time(text)
    assert time is None or time.utcoffset() is not None


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_time("2026-11-15T14:00:00") == parse_time("2026-11-15T14:00:00Z")
    assert parse_time("0001-01-01T00:00:00+23:59") is None
