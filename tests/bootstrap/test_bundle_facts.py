"""The facts of a bundle: each file gives its own, and broken ones give a note instead of an error."""

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
    BundleBuilder,
    Record,
    good_record,
)

from umbilical.bootstrap import bundle_facts
from umbilical.bootstrap.bundle_facts import BundleFacts, agent_target, gather, service_of, terminating_namespaces
from umbilical.bootstrap.log_bundle import open_bundle
from umbilical.bootstrap.log_signatures import Kind
from umbilical.bootstrap.service_record import State


def facts_of(builder: BundleBuilder, folder: Path) -> BundleFacts:
    return gather(open_bundle(builder.archive(folder)))


def test_records_are_read_by_service(tmp_path: Path) -> None:
    facts = facts_of(BundleBuilder(good_record()), tmp_path)
    assert {name: record.state for name, record in facts.records.items()} == {
        "bootkube": State.ENDED_WELL,
        "release-image": State.ENDED_WELL,
    }
    assert facts.record_paths["bootkube"] == "bootstrap/services/bootkube.json"


def test_a_copy_of_the_records_alone_is_enough(tmp_path: Path) -> None:
    (tmp_path / "bootkube.json").write_bytes(good_record().content())
    (tmp_path / "metadata.json").write_text('{"clusterName": "x"}')
    facts = gather(open_bundle(tmp_path))
    assert list(facts.records) == ["bootkube"]
    assert facts.kinds == {Kind.RECORD}


def test_known_lines_are_counted_over_all_files(tmp_path: Path) -> None:
    builder = (
        BundleBuilder(good_record())
        .log(JOURNAL, "a", "UMB112 no")
        .log("bootstrap/journals/journal.log.gz", "UMB112 no")
    )
    sighting = facts_of(builder, tmp_path).sightings["no address"]
    assert sighting.count == 2
    assert (sighting.first.path, sighting.first.line) == (JOURNAL, 2)


def test_certificates_manifest_and_routes_are_read(tmp_path: Path) -> None:
    builder = BundleBuilder(good_record()).certificates("10.0.0.9").agents("10.0.0.9")
    facts = facts_of(builder.log("bootstrap/network/ip-route.txt", "default via 10.0.0.1"), tmp_path)
    (certificate,) = facts.certificates[f"{OWN_PKI}/server/tls.crt"]
    assert certificate.names == ("10.0.0.9",)
    assert facts.agents is not None
    assert (facts.agents.host, facts.agents.port, facts.agents.evidence.line) == ("10.0.0.9", "8091", 4)
    assert facts.routes.startswith("default")


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
    assert "port closed" in facts.sightings
    assert len(facts.notes) == 3
    assert any("cut off" in note for note in facts.notes)


def test_a_file_past_its_bound_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_facts, "MAX_RECORD_BYTES", 300)
    facts = facts_of(BundleBuilder(good_record()), tmp_path)
    assert facts.bootkube is not None
    assert 0 < len(facts.bootkube.entries) < len(good_record().entries)
    assert any("only the first" in note for note in facts.notes)


@pytest.mark.parametrize(
    ("path", "service"),
    [
        ("bootstrap/services/release-image.json", "release-image"),
        ("bootkube.json", "bootkube"),
        ("var/log/openshift/bootkube.json", "bootkube"),
        ("resources/pods.json", None),
        ("rendered-assets/openshift/umbilical/receipt.json", None),
        ("bootstrap/journals/bootkube.log", None),
    ],
)
def test_a_record_is_known_by_its_place(path: str, service: str | None) -> None:
    assert service_of(path) == service


@pytest.mark.parametrize("host", ["", "null", "fd00::9", "10.0.0.9"])
def test_what_agents_dial_is_read_as_it_stands(host: str) -> None:
    target = agent_target(DAEMON_SET, f"  - --proxy-server-host={host}\n".encode())
    assert target is not None
    assert (target.host, target.port) == (host, "")


def test_a_manifest_without_arguments_gives_no_target() -> None:
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


PATHS = st.sampled_from(
    [
        "bootstrap/services/bootkube.json",
        JOURNAL,
        AGENT_LOG,
        DAEMON_SET,
        "resources/namespaces.json",
        "bootstrap/network/ip-route.txt",
        f"{OWN_PKI}/server/tls.crt",
        "bootstrap/journals/journal.log.gz",
    ]
)


@given(st.dictionaries(PATHS, st.binary(max_size=100), max_size=4))
def test_no_bundle_raises(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    builder = BundleBuilder()
    builder.files = files
    facts = facts_of(builder, tmp_path_factory.mktemp("fuzz"))
    assert facts.files <= len(files)
