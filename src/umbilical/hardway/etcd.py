"""etcd members, with etcdctl on a node that has the certificates: no key leaves its machine."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from umbilical.fault import HardwayError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.static_pods.etcd import client_url, peer_url
from umbilical.hardway.config.cluster import ClusterNode, NodeRole
from umbilical.hardway.machines.interface import Done, Machines

__all__ = ["BOOTSTRAP_MEMBER", "Etcd", "EtcdMember", "EtcdStatus", "client_url", "command", "in_container", "peer_url"]

COMMAND_SECONDS: Final = 60.0
_IN_CONTAINER: Final = 'exec crictl exec "$(crictl ps --name "^etcd$" --quiet | head -n 1)" etcdctl "$@"'
BOOTSTRAP_MEMBER: Final = "etcd-bootstrap"
"""OpenShift's etcd operator requires exactly this name."""


@dataclass(frozen=True)
class EtcdMember:
    id: str
    """Hexadecimal, as etcdctl expects it."""
    name: str
    """Empty until it has started once."""
    peer_urls: tuple[str, ...]
    is_learner: bool


@dataclass(frozen=True)
class EtcdStatus:
    endpoint: str
    member_id: str
    leader_id: str
    raft_term: int
    is_learner: bool
    version: str


class Etcd:
    """etcdctl on one node, against the etcd of that node unless other endpoints are given.

    `in_container`: run etcdctl in etcd's container, for systems without it such as RHCOS.
    """

    def __init__(self, machines: Machines, node: ClusterNode, *, in_container: bool = False) -> None:
        self._machines = machines
        self._node = node
        self._in_container = in_container

    def members(self) -> list[EtcdMember]:
        """List all members. Raises HardwayError: UMB743, etcdctl failed."""
        answer = self._json("member", "list")
        return [_member(one) for one in answer.get("members", [])]

    def status(self, endpoints: Sequence[str]) -> list[EtcdStatus]:
        rows = self._json("endpoint", "status", f"--endpoints={','.join(endpoints)}")
        return [_status(one) for one in rows]

    def unhealthy(self, endpoints: Sequence[str]) -> dict[str, str]:
        """Return the endpoints that cannot commit, with the reason."""
        done = self._run("endpoint", "health", f"--endpoints={','.join(endpoints)}", "--write-out=json")
        try:
            rows = json.loads(done.stdout or b"[]")
        except ValueError:
            raise self._failed("endpoint health", done) from None
        if not rows and done.exit_code != 0:
            raise self._failed("endpoint health", done)
        return {str(one["endpoint"]): str(one.get("error", "")) for one in rows if not one.get("health")}

    def add_learner(self, name: str, peer_url: str) -> None:
        self._text("member", "add", name, "--learner", f"--peer-urls={peer_url}")

    def promote(self, member_id: str) -> None:
        self._text("member", "promote", member_id)

    def remove(self, member_id: str) -> None:
        self._text("member", "remove", member_id)

    def move_leader(self, endpoint: str, member_id: str) -> None:
        """Move leadership to a member; `endpoint` must be the current leader."""
        self._text("move-leader", member_id, f"--endpoints={endpoint}")

    def save_snapshot(self, path: str) -> None:
        """Save a snapshot to a file on the node; a container can write below the data directory only."""
        self._text("snapshot", "save", path)

    def _json(self, *words: str) -> Any:
        done = self._run(*words, "--write-out=json")
        try:
            if done.exit_code == 0:
                return json.loads(done.stdout)
        except ValueError:
            pass
        raise self._failed(" ".join(words[:2]), done)

    def _text(self, *words: str) -> str:
        done = self._run(*words)
        if done.exit_code != 0:
            raise self._failed(" ".join(words[:2]), done)
        return done.text

    def _run(self, *words: str) -> Done:
        return self._machines.run(self._node.id, self._command(*words), timeout_seconds=COMMAND_SECONDS)

    def _command(self, *words: str) -> list[str]:
        return in_container(self._node, *words) if self._in_container else command(self._node, *words)

    def _failed(self, what: str, done: Done) -> HardwayError:
        shown = shlex.join(self._command(*what.split()))
        return HardwayError(
            "UMB743", f"etcdctl {what} failed on {self._node.id}", done.complaint, f"on {self._node.id}: {shown}"
        )


def command(node: ClusterNode, *words: str) -> list[str]:
    """Return an etcdctl command line with the certificates of a node; the caller's flags come last and win."""
    secrets = layout.NODE_SECRETS if node.role is NodeRole.BOOTSTRAP else layout.MASTER_SECRETS
    return ["etcdctl", *_arguments(node, secrets, words)]


def in_container(node: ClusterNode, *words: str) -> list[str]:
    """Return the same for etcd's container, with the paths of secrets in pods."""
    return ["sh", "-c", _IN_CONTAINER, "sh", *_arguments(node, layout.POD_SECRETS, words)]


def _arguments(node: ClusterNode, secrets: str, words: Sequence[str]) -> list[str]:
    return [
        f"--cacert={secrets}/etcd-ca-bundle.crt",
        f"--cert={secrets}/etcd-client.crt",
        f"--key={secrets}/etcd-client.key",
        *(() if any(word.startswith("--endpoints=") for word in words) else (f"--endpoints={client_url(node)}",)),
        *words,
    ]


def _member(row: dict[str, Any]) -> EtcdMember:
    return EtcdMember(
        id=f"{int(row['ID']):x}",
        name=str(row.get("name", "")),
        peer_urls=tuple(row.get("peerURLs", ())),
        is_learner=bool(row.get("isLearner", False)),
    )


def _status(row: dict[str, Any]) -> EtcdStatus:
    status = row["Status"]
    header = status["header"]
    return EtcdStatus(
        endpoint=str(row["Endpoint"]),
        member_id=f"{int(header['member_id']):x}",
        leader_id=f"{int(status.get('leader', 0)):x}",
        raft_term=int(header.get("raft_term", 0)),
        is_learner=bool(status.get("isLearner", False)),
        version=str(status.get("version", "")),
    )
