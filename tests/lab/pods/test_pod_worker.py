"""Whole pods as real processes: files, identities, probes, restarts, init containers, and the end."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.pod_nodes import Objects, ignore, log_of, make_node, running, shell_pod, until

from umbilical.lab.pods import pod_table
from umbilical.lab.pods import pod_table as pod_worker
from umbilical.lab.pods.manifest import pod
from umbilical.lab.pods.node import RunnerNode
from umbilical.lab.pods.pod_networks import PodNetworks
from umbilical.lab.pods.pod_table import PodTable, PodWorker
from umbilical.lab.pods.spec import LabPod, SourceKind
from umbilical.lab.pods.status import CRASH_LOOP, ContainerRecord, Ended, Idle, Running, phase

pytestmark = pytest.mark.root


async def said(folder: Path, script: str, objects: Objects | None = None, **fields: Any) -> str:
    """Run a script once and return what it printed."""
    node = make_node(folder)
    spec = {"restartPolicy": "Never", **fields.pop("spec", {})}
    async with running(node, shell_pod(script, spec=spec, **fields), objects) as worker:
        await until(lambda: isinstance(record_of(worker).state, Ended))
        return log_of(node, worker)


def record_of(worker: PodWorker) -> ContainerRecord:
    return worker.record.containers[0]


async def test_a_container_sees_its_own_root_and_has_the_usual_capabilities(tmp_path: Path) -> None:
    (tmp_path / "secret-of-the-node").touch()
    output = await said(
        tmp_path, f"ls {tmp_path} 2>&1; touch /etc/x /tmp/y && echo writable; grep CapEff /proc/self/status; id -u"
    )
    assert "No such file" in output
    assert "writable" in output
    assert "CapEff:\t00000000a80425fb\n0\n" in output


async def test_a_read_only_root_is_read_only_but_volumes_are_not(tmp_path: Path) -> None:
    script = "touch /tmp/x || echo no-tmp; touch /x || echo no-root; touch /data/x /dev/shm/x && echo volumes"
    output = await said(
        tmp_path,
        script,
        securityContext={"readOnlyRootFilesystem": True},
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        spec={"volumes": [{"name": "data", "emptyDir": {}}]},
    )
    told = ["no-tmp", "no-root", "volumes"]
    assert [word for word in output.split() if word in told] == told


async def test_identity_capabilities_and_groups_are_what_the_manifest_says(tmp_path: Path) -> None:
    output = await said(
        tmp_path,
        "id -u; id -g; id -G; grep -E 'CapBnd|CapEff|NoNewPrivs' /proc/self/status",
        securityContext={
            "runAsUser": 4711,
            "runAsGroup": 4712,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        spec={"securityContext": {"fsGroup": 4713, "supplementalGroups": [4714]}},
    )
    lines = output.split("\n")
    assert lines[:2] == ["4711", "4712"]
    assert set(lines[2].split()) == {"4712", "4713", "4714"}
    assert {line.split()[1] for line in lines if line.startswith("Cap")} == {"0000000000000000"}
    assert "NoNewPrivs:\t1" in lines


async def test_variables_and_arguments_are_expanded(tmp_path: Path) -> None:
    objects = Objects()
    objects.known[SourceKind.SECRET, "test", "s"] = {"key": b"hidden"}
    output = await said(
        tmp_path,
        'echo "$GREETING|$SECRET|$NODE|$0|$HOSTNAME"',
        objects,
        args=["$(GREETING) $$(GREETING)"],
        env=[
            {"name": "WHO", "value": "world"},
            {"name": "GREETING", "value": "hello $(WHO)"},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
    )
    assert output == "hello world|hidden|node-1|hello world $(GREETING)|node-1\n"


async def test_a_host_path_is_the_nodes_own_directory(tmp_path: Path) -> None:
    place = tmp_path / "shared"
    output = await said(
        tmp_path,
        "echo written > /a/file; touch /b/file || echo refused",
        volumeMounts=[{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b", "readOnly": True}],
        spec={"volumes": [{"name": "v", "hostPath": {"path": str(place), "type": "DirectoryOrCreate"}}]},
    )
    assert (place / "file").read_text() == "written\n"
    assert "refused" in output


async def test_a_pod_waits_for_its_secret_and_sees_its_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umbilical.lab.pods.pod_table.REFRESH_SECONDS", 0.05)
    node, objects = make_node(tmp_path), Objects()
    document = shell_pod(
        "cat /pki/key; while [ $(cat /pki/key) = first ]; do sleep 0.05; done; cat /pki/key; sleep 1000",
        volumeMounts=[{"name": "pki", "mountPath": "/pki", "readOnly": True}],
        spec={"volumes": [{"name": "pki", "secret": {"secretName": "s", "defaultMode": 0o400}}]},
    )

    async with running(node, document, objects) as worker:
        await until(lambda: "secret 's' not found" in worker.record.trouble)
        assert record_of(worker).state == Idle("ContainerCreating")
        objects.known[SourceKind.SECRET, "test", "s"] = {"key": b"first"}
        await until(lambda: log_of(node, worker) == "first")
        objects.known[SourceKind.SECRET, "test", "s"] = {"key": b"second"}
        await until(lambda: log_of(node, worker) == "firstsecond")
        assert worker.record.trouble == ""
    assert list(node.folders.secrets.iterdir()) == []


async def test_init_containers_run_before_and_one_after_the_other(tmp_path: Path) -> None:
    mount = [{"name": "data", "mountPath": "/data"}]
    init = [
        {"name": name, "image": "localhost/shell:test", "command": ["sh", "-c", script], "volumeMounts": mount}
        for name, script in (("one", "echo one > /data/log"), ("two", "echo two >> /data/log"))
    ]
    output = await said(
        tmp_path,
        "cat /data/log",
        volumeMounts=mount,
        spec={"initContainers": init, "volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}]},
    )
    assert output == "one\ntwo\n"


async def test_a_pod_whose_init_container_fails_for_good_never_starts(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    init = [{"name": "one", "image": "localhost/shell:test", "command": ["false"]}]
    document = shell_pod("echo never", spec={"initContainers": init, "restartPolicy": "Never"})
    async with running(node, document) as worker:
        await until(lambda: phase(worker.record) == "Failed")
        assert log_of(node, worker) == ""


async def test_a_container_that_ends_is_started_again_with_a_log_of_its_own(tmp_path: Path) -> None:
    document = shell_pod("echo x; echo -n last words > /dev/termination-log; exit 3")
    async with running(make_node(tmp_path), document) as worker:
        await until(lambda: record_of(worker).restarts >= 3)
        last = record_of(worker).last
        assert last is not None
        assert (last.exit_code, last.message) == (3, "last words")
    logs = tmp_path / "logs" / "test_sample_0123456789abcdef" / "main"
    assert len(list(logs.iterdir())) >= 3
    assert (logs / "0.log").read_text() == "x\n"


async def test_on_failure_means_until_success(tmp_path: Path) -> None:
    script = "echo x >> /data/file; [ $(wc -l < /data/file) -ge 3 ]"
    document = pod_with(tmp_path, script, spec={"restartPolicy": "OnFailure"})
    async with running(make_node(tmp_path), document) as worker:
        await until(lambda: phase(worker.record) == "Succeeded")
        assert record_of(worker).restarts == 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"image": "localhost/unknown:lab"}, "ErrImageNeverPull"),
        ({"command": ["no-such-program"]}, "RunContainerError"),
        ({"securityContext": {"runAsNonRoot": True}}, "CreateContainerConfigError"),
        (
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
            "CreateContainerConfigError",
        ),
    ],
)
async def test_a_container_that_cannot_start_says_why(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    async with running(make_node(tmp_path), shell_pod("true", **fields)) as worker:
        await until(lambda: getattr(record_of(worker).state, "reason", "") == reason)
        assert phase(worker.record) == "Pending"


async def test_the_end_takes_along_whatever_the_container_started(tmp_path: Path) -> None:
    # A session of its own, and orphaned at once: nothing but the container's namespace leads to it.
    document = shell_pod("trap '' TERM; setsid sh -c 'sleep 1000 & echo $!'; while true; do sleep 1; done")
    node = make_node(tmp_path)
    async with running(node, document) as worker:
        await until(lambda: log_of(node, worker).endswith("\n"))
        pids = [int(log_of(node, worker)), record_of(worker).pid]
    assert None not in pids
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe")] == []


async def test_a_program_that_listens_to_sigterm_ends_by_its_own_word(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo ready; while true; do sleep 0.05; done"
    node = make_node(tmp_path)
    async with running(node, shell_pod(script, spec={"terminationGracePeriodSeconds": 30})) as worker:
        await until(lambda: log_of(node, worker) == "ready\n")
    assert log_of(node, worker) == "ready\nbye\n"


async def test_nothing_of_a_pod_is_left_but_its_log(tmp_path: Path) -> None:
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("a", "b")]
    document = shell_pod("sleep 1000", volumeMounts=mounts, spec={"volumes": volumes})
    async with running(make_node(tmp_path), document) as worker:
        await until(lambda: isinstance(record_of(worker).state, Running))
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    left = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert [str(path) for path in left] == ["logs/test_sample_0123456789abcdef/main/0.log"]


QUICK = {"periodSeconds": 1, "timeoutSeconds": 30}
EXISTS = {"exec": {"command": ["test", "-e", "/data/good"]}, **QUICK}


def pod_with(
    folder: Path, script: str = "trap 'exit 0' TERM; while true; do sleep 0.05; done", **fields: Any
) -> dict[str, Any]:
    """A pod that sees a folder of the test's at /data."""
    (folder / "data").mkdir(exist_ok=True)
    spec = {"volumes": [{"name": "data", "hostPath": {"path": str(folder / "data")}}], **fields.pop("spec", {})}
    return shell_pod(script, volumeMounts=[{"name": "data", "mountPath": "/data"}], spec=spec, **fields)


async def test_a_failing_liveness_probe_restarts_the_container(tmp_path: Path) -> None:
    document = pod_with(tmp_path, livenessProbe={**EXISTS, "failureThreshold": 2})
    (tmp_path / "data/good").touch()
    async with running(make_node(tmp_path), document) as worker:
        await until(lambda: record_of(worker).is_ready)
        first = record_of(worker).pid
        (tmp_path / "data/good").unlink()
        await until(lambda: record_of(worker).restarts == 1)
        (tmp_path / "data/good").touch()
        await until(lambda: record_of(worker).pid not in (None, first))
        last = record_of(worker).last
        assert last is not None
        assert last.exit_code == 0


async def test_a_frozen_container_is_killed_by_its_liveness_probe(tmp_path: Path) -> None:
    serve = "import http.server as h; h.HTTPServer(('127.0.0.1', PORT), h.SimpleHTTPRequestHandler).serve_forever()"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    document = shell_pod(
        f'exec python3 -c "{serve.replace("PORT", str(port))}"',
        # Asked for its life only once it is up, however long that takes here.
        startupProbe={"httpGet": {"port": port}, "failureThreshold": 100, **QUICK},
        livenessProbe={"httpGet": {"port": port}, "failureThreshold": 1, "periodSeconds": 1, "timeoutSeconds": 4},
        readinessProbe={"httpGet": {"port": port}, **QUICK},
    )
    async with running(make_node(tmp_path), document) as worker:
        await until(lambda: record_of(worker).is_ready)
        pid = record_of(worker).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: record_of(worker).restarts == 1)
        last = record_of(worker).last
        assert last is not None
        assert last.exit_code == -signal.SIGKILL


async def test_readiness_comes_and_goes_without_a_restart(tmp_path: Path) -> None:
    document = pod_with(tmp_path, readinessProbe={**EXISTS, "failureThreshold": 1})
    async with running(make_node(tmp_path), document) as worker:
        await until(lambda: record_of(worker).is_started)
        assert not record_of(worker).is_ready
        (tmp_path / "data/good").touch()
        await until(lambda: record_of(worker).is_ready)
        (tmp_path / "data/good").unlink()
        await until(lambda: not record_of(worker).is_ready)
        assert record_of(worker).restarts == 0


async def test_nothing_else_is_asked_before_the_startup_probe_is_answered(tmp_path: Path) -> None:
    never = {"exec": {"command": ["false"]}, "failureThreshold": 1, **QUICK}
    document = pod_with(tmp_path, startupProbe={**EXISTS, "failureThreshold": 100}, livenessProbe=never)
    async with running(make_node(tmp_path), document) as worker:
        await until(lambda: record_of(worker).pid is not None)
        await asyncio.sleep(1.5)
        assert record_of(worker).restarts == 0
        assert not record_of(worker).is_started
        (tmp_path / "data/good").touch()
        await until(lambda: record_of(worker).restarts > 0)


async def test_a_startup_probe_that_is_never_answered_restarts_the_container(tmp_path: Path) -> None:
    document = pod_with(tmp_path, startupProbe={**EXISTS, "failureThreshold": 1})
    async with running(make_node(tmp_path), document) as worker:
        await until(lambda: record_of(worker).restarts >= 1)


async def test_a_container_that_keeps_ending_waits_longer_and_says_so(tmp_path: Path) -> None:
    node = make_node(tmp_path, back_off_seconds=30.0)

    async with running(node, shell_pod("echo again; exit 1")) as worker:
        await until(lambda: isinstance(record_of(worker).state, Idle) and record_of(worker).last is not None)
        state = record_of(worker).state
        assert isinstance(state, Idle)
        assert state.reason == CRASH_LOOP
        assert "back-off 30s" in state.message
        # The first restart came at once.
        assert log_of(node, worker) == "again\nagain\n"


LOOP = "trap 'echo end >> /data/log; exit 0' TERM; echo begin >> /data/log; while true; do sleep 0.05; done"


def sample(folder: Path, uid: str, name: str = "sample") -> LabPod:
    document = pod_with(folder, LOOP, spec={"terminationGracePeriodSeconds": 10})
    document["metadata"] |= {"uid": uid, "name": name}
    return pod(document)


def maker(node: RunnerNode) -> Callable[[LabPod], PodWorker]:
    networks = PodNetworks(node)
    return lambda wanted: PodWorker(wanted, node, Objects(), networks, ignore)


def log(folder: Path) -> list[str]:
    path = folder / "data/log"
    return path.read_text().split() if path.exists() else []


async def test_a_changed_pod_begins_when_its_older_self_is_gone(tmp_path: Path) -> None:
    make = maker(make_node(tmp_path))
    async with asyncio.TaskGroup() as group:
        table = PodTable(group, ignore)
        table.want("static", {"one": sample(tmp_path, "one")}, make)
        await until(lambda: log(tmp_path) == ["begin"])
        table.want("static", {"two": sample(tmp_path, "two")}, make)
        assert len(table.records()) == 2
        await until(lambda: len(log(tmp_path)) == 3)
        assert log(tmp_path) == ["begin", "end", "begin"]
        table.want("static", {}, make)
        await until(lambda: not table.records())
    assert log(tmp_path) == ["begin", "end", "begin", "end"]


async def test_a_source_answers_for_its_own_pods_alone(tmp_path: Path) -> None:
    make = maker(make_node(tmp_path))
    async with asyncio.TaskGroup() as group:
        table = PodTable(group, ignore)
        table.want("static", {"one": sample(tmp_path, "one", "a")}, make)
        table.want("daemons", {"two": sample(tmp_path, "two", "b")}, make)
        await until(lambda: log(tmp_path) == ["begin"] * 2)
        table.want("static", {}, make)
        await until(lambda: table.record("one") is None)
        assert table.record("two") is not None
        table.stop("two")
        table.stop("two")
        table.stop("unknown")
        await until(lambda: not table.records())


async def test_a_shorter_grace_time_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_worker, "GRACE_CAP_SECONDS", 1000.0)
    make = maker(make_node(tmp_path))
    document = shell_pod("trap '' TERM; while true; do sleep 1; done", spec={"terminationGracePeriodSeconds": 1000})
    async with asyncio.TaskGroup() as group:
        table = PodTable(group, ignore)
        wanted = pod(document)
        table.want("api", {wanted.uid: wanted}, make)
        await until(lambda: any(each.is_ready for each in table.records()))
        table.stop(wanted.uid, grace_seconds=0.1)
        await until(lambda: not table.records())


async def test_a_pod_that_makes_the_runner_stumble_begins_anew_and_hurts_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pod_table, "AGAIN_SECONDS", 0.05)
    node = make_node(tmp_path)
    # A file where the folder of its log should be.
    place = node.folders.logs / "test_sample_one"
    place.touch()
    async with asyncio.TaskGroup() as group:
        table = PodTable(group, ignore)
        table.want("static", {"one": sample(tmp_path, "one")}, maker(node))
        await until(lambda: "unexpected error" in caplog.text)
        place.unlink()
        await until(lambda: log(tmp_path) == ["begin"])
        table.want("static", {}, maker(node))
