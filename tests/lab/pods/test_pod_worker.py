"""Whole pods as real processes: files, identities, restarts, init containers, and the end."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.support.pod_nodes import Objects, log_of, make_node, running, shell_pod, until

from umbilical.lab.pods.pod_worker import PodWorker
from umbilical.lab.pods.records import Ended, Idle, Running
from umbilical.lab.pods.spec import Kind
from umbilical.lab.pods.status import phase

pytestmark = pytest.mark.root


def said(folder: Path, script: str, objects: Objects | None = None, **fields: Any) -> str:
    """Run a script once and return what it printed."""
    node = make_node(folder)
    spec = {"restartPolicy": "Never", **fields.pop("spec", {})}

    async def run() -> str:
        async with running(node, shell_pod(script, spec=spec, **fields), objects) as worker:
            await until(lambda: isinstance(worker.record.containers[0].state, Ended))
            return log_of(node, worker)

    return asyncio.run(run())


def test_a_container_sees_its_own_root_and_not_the_nodes(tmp_path: Path) -> None:
    (tmp_path / "secret-of-the-node").touch()
    output = said(tmp_path, f"ls {tmp_path} 2>&1; ls -d /root/* 2>/dev/null; touch /etc/x /tmp/y && echo writable")
    assert "No such file" in output
    assert "writable" in output


def test_a_read_only_root_is_read_only_but_volumes_are_not(tmp_path: Path) -> None:
    script = "touch /tmp/x || echo no-tmp; touch /x || echo no-root; touch /data/x /dev/shm/x && echo volumes"
    output = said(
        tmp_path,
        script,
        securityContext={"readOnlyRootFilesystem": True},
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        spec={"volumes": [{"name": "data", "emptyDir": {}}]},
    )
    assert [word for word in output.split() if word in ("no-tmp", "no-root", "volumes")] == [
        "no-tmp",
        "no-root",
        "volumes",
    ]


def test_identity_capabilities_and_groups_are_what_the_manifest_says(tmp_path: Path) -> None:
    output = said(
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


def test_root_keeps_the_usual_capabilities_and_no_more(tmp_path: Path) -> None:
    output = said(tmp_path, "grep CapEff /proc/self/status; id -u")
    assert output.split() == ["CapEff:", "00000000a80425fb", "0"]


def test_variables_and_arguments_are_expanded(tmp_path: Path) -> None:
    objects = Objects()
    objects.known[Kind.SECRET, "test", "s"] = {"key": b"hidden"}
    output = said(
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


def test_a_host_path_is_the_nodes_own_directory(tmp_path: Path) -> None:
    place = tmp_path / "shared"
    output = said(
        tmp_path,
        "echo written > /a/file; touch /b/file || echo refused",
        volumeMounts=[{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b", "readOnly": True}],
        spec={"volumes": [{"name": "v", "hostPath": {"path": str(place), "type": "DirectoryOrCreate"}}]},
    )
    assert (place / "file").read_text() == "written\n"
    assert "refused" in output


def test_a_pod_waits_for_its_secret_and_sees_the_next_version_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umbilical.lab.pods.pod_worker.REFRESH_SECONDS", 0.05)
    node, objects = make_node(tmp_path), Objects()
    document = shell_pod(
        "cat /pki/key; while [ $(cat /pki/key) = first ]; do sleep 0.05; done; cat /pki/key; sleep 1000",
        volumeMounts=[{"name": "pki", "mountPath": "/pki", "readOnly": True}],
        spec={"volumes": [{"name": "pki", "secret": {"secretName": "s", "defaultMode": 0o400}}]},
    )

    async def run() -> str:
        async with running(node, document, objects) as worker:
            await until(lambda: "secret 's' not found" in worker.record.trouble)
            assert worker.record.containers[0].state == Idle("ContainerCreating")
            objects.known[Kind.SECRET, "test", "s"] = {"key": b"first"}
            await until(lambda: log_of(node, worker) == "first")
            objects.known[Kind.SECRET, "test", "s"] = {"key": b"second"}
            await until(lambda: log_of(node, worker) == "firstsecond")
            return worker.record.trouble

    assert asyncio.run(run()) == ""
    assert list(node.folders.secrets.iterdir()) == []


def test_a_service_account_token_is_a_file(tmp_path: Path) -> None:
    objects = Objects()
    objects.signs = True
    sources = [{"serviceAccountToken": {"path": "token", "audience": "api", "expirationSeconds": 600}}]
    output = said(
        tmp_path,
        "cat /var/run/token",
        objects,
        volumeMounts=[{"name": "t", "mountPath": "/var/run"}],
        spec={"serviceAccountName": "robot", "volumes": [{"name": "t", "projected": {"sources": sources}}]},
    )
    assert output == "token 1 of robot"
    assert objects.tokens == [("api", 600)]


def test_init_containers_run_before_and_one_after_the_other(tmp_path: Path) -> None:
    mount = [{"name": "data", "mountPath": "/data"}]
    init = [
        {"name": name, "image": "localhost/shell:test", "command": ["sh", "-c", script], "volumeMounts": mount}
        for name, script in (("one", "echo one > /data/log"), ("two", "echo two >> /data/log"))
    ]
    output = said(
        tmp_path,
        "cat /data/log",
        volumeMounts=mount,
        spec={"initContainers": init, "volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}]},
    )
    assert output == "one\ntwo\n"


def test_a_pod_whose_init_container_fails_for_good_never_starts(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    init = [{"name": "one", "image": "localhost/shell:test", "command": ["false"]}]
    document = shell_pod("echo never", spec={"initContainers": init, "restartPolicy": "Never"})

    async def run() -> str:
        async with running(node, document) as worker:
            await until(lambda: phase(worker.record) == "Failed")
            return log_of(node, worker)

    assert asyncio.run(run()) == ""


def watch(folder: Path, document: dict[str, Any], see: Callable[[PodWorker], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with running(make_node(folder), document) as worker:
            await see(worker)

    asyncio.run(run())


def test_a_container_that_ends_is_started_again_with_a_log_of_its_own(tmp_path: Path) -> None:
    async def see(worker: PodWorker) -> None:
        record = worker.record.containers[0]
        await until(lambda: record.restarts >= 3)
        assert record.last is not None
        assert record.last.exit_code == 3
        assert record.last.message == "last words"

    document = shell_pod("echo x; echo -n last words > /dev/termination-log; exit 3")
    watch(tmp_path, document, see)
    logs = list((tmp_path / "logs" / "test_sample_0123456789abcdef" / "main").iterdir())
    assert len(logs) >= 3
    assert (tmp_path / "logs" / "test_sample_0123456789abcdef" / "main" / "0.log").read_text() == "x\n"


def test_on_failure_means_until_success(tmp_path: Path) -> None:
    async def see(worker: PodWorker) -> None:
        await until(lambda: phase(worker.record) == "Succeeded")
        assert worker.record.containers[0].restarts == 2

    place = tmp_path / "count"
    document = shell_pod(
        "echo x >> /count/file; [ $(wc -l < /count/file) -ge 3 ]",
        volumeMounts=[{"name": "v", "mountPath": "/count"}],
        spec={"restartPolicy": "OnFailure", "volumes": [{"name": "v", "hostPath": {"path": str(place)}}]},
    )
    watch(tmp_path, document, see)


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
def test_a_container_that_cannot_start_says_why_in_the_kubelets_words(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    async def see(worker: PodWorker) -> None:
        await until(lambda: getattr(worker.record.containers[0].state, "reason", "") == reason)
        assert phase(worker.record) == "Pending"

    watch(tmp_path, shell_pod("true", **fields), see)


def test_the_end_takes_along_whatever_the_container_started(tmp_path: Path) -> None:
    pids: list[int] = []

    async def see(worker: PodWorker) -> None:
        log = tmp_path / "logs" / "test_sample_0123456789abcdef" / "main" / "0.log"
        await until(lambda: log.exists() and len(log.read_text().split()) == 1)
        pids.append(int(log.read_text()))
        assert worker.record.containers[0].pid is not None
        pids.append(worker.record.containers[0].pid)

    # A session of its own, and orphaned at once: nothing but the container's namespace leads to it.
    watch(tmp_path, shell_pod("trap '' TERM; setsid sh -c 'sleep 1000 & echo $!'; while true; do sleep 1; done"), see)
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe")] == []


def test_a_program_that_listens_to_sigterm_ends_by_its_own_word(tmp_path: Path) -> None:
    async def see(worker: PodWorker) -> None:
        log = tmp_path / "logs" / "test_sample_0123456789abcdef" / "main" / "0.log"
        await until(lambda: log.exists() and "ready" in log.read_text())

    script = "trap 'echo bye; exit 0' TERM; echo ready; while true; do sleep 0.05; done"
    watch(tmp_path, shell_pod(script, spec={"terminationGracePeriodSeconds": 30}), see)
    assert (tmp_path / "logs" / "test_sample_0123456789abcdef" / "main" / "0.log").read_text() == "ready\nbye\n"


def test_nothing_of_a_pod_is_left_but_its_log(tmp_path: Path) -> None:
    async def see(worker: PodWorker) -> None:
        await until(lambda: isinstance(worker.record.containers[0].state, Running))

    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("a", "b")]
    mounted = Path("/proc/self/mounts").read_text()
    watch(tmp_path, shell_pod("sleep 1000", volumeMounts=mounts, spec={"volumes": volumes}), see)
    assert Path("/proc/self/mounts").read_text() == mounted
    left = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert [str(path) for path in left] == ["logs/test_sample_0123456789abcdef/main/0.log"]
