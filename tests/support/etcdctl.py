"""A simulated etcd with a list of members; answers etcdctl's command lines as the real one."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from umbilical.hardway.machines.interface import Done


@dataclass(frozen=True)
class Row:
    number: int
    name: str
    peer_url: str
    is_learner: bool = False


@dataclass
class Etcdctl:
    """A responder of recording machines."""

    rows: list[Row] = field(default_factory=list)
    leader: int = 1
    unhealthy: dict[str, str] = field(default_factory=dict)
    """By endpoint."""
    terms: dict[str, int] = field(default_factory=dict)
    """By endpoint, where it is not 2."""
    snapshots: dict[str, bytes] = field(default_factory=dict)
    promotions_refused: int = 0
    is_down: bool = False

    def __call__(self, node_id: str, command: tuple[str, ...], stdin: bytes) -> Done | None:
        if command[0] != "etcdctl":
            return None
        if self.is_down:
            return Done(1, b"", b"Error: context deadline exceeded\n")
        words = tuple(word for word in command[1:] if not word.startswith("--"))
        endpoints = next(word for word in command if word.startswith("--endpoints=")).partition("=")[2].split(",")
        return self._answer(words, endpoints, command)

    def _answer(self, words: tuple[str, ...], endpoints: list[str], command: tuple[str, ...]) -> Done:
        match words:
            case ("member", "list"):
                return _printed({"header": {"raft_term": 2}, "members": [_member(row) for row in self.rows]})
            case ("member", "add", name):
                url = next(word for word in command if word.startswith("--peer-urls=")).partition("=")[2]
                # The name is known once the member has started.
                self.rows.append(Row(len(self.rows) + 11, "", url, "--learner" in command))
                return Done(0, f"Member added, {name}\n".encode(), b"")
            case ("member", "promote", number):
                return self._promote(int(number, 16))
            case ("member", "remove", number):
                self.rows = [row for row in self.rows if row.number != int(number, 16)]
                return Done(0, b"Member removed\n", b"")
            case ("move-leader", number):
                self.leader = int(number, 16)
                return Done(0, b"Leadership transferred\n", b"")
            case ("snapshot", "save", path):
                self.snapshots[path] = b"snapshot"
                return Done(0, b"Snapshot saved\n", b"")
            case ("endpoint", "health"):
                return self._health(endpoints)
            case ("endpoint", "status"):
                return _printed([self._status(one) for one in endpoints])
        return Done(2, b"", f"Error: unknown command {words}".encode())

    def _promote(self, number: int) -> Done:
        if self.promotions_refused:
            self.promotions_refused -= 1
            why = "etcdserver: can only promote a learner member which is in sync with leader"
            return Done(1, b"", f"Error: {why}\n".encode())
        self.rows = [replace(row, is_learner=False) if row.number == number else row for row in self.rows]
        return Done(0, b"Member promoted\n", b"")

    def _health(self, endpoints: list[str]) -> Done:
        rows = [
            {"endpoint": one, "health": one not in self.unhealthy, "took": "3ms"}
            | ({"error": self.unhealthy[one]} if one in self.unhealthy else {})
            for one in endpoints
        ]
        return _printed(rows, 1 if any(one in self.unhealthy for one in endpoints) else 0)

    def _status(self, endpoint: str) -> dict[str, Any]:
        host = endpoint.rpartition(":")[0]
        number = next((row.number for row in self.rows if row.peer_url.rpartition(":")[0] == host), 0)
        header = {"cluster_id": 7, "member_id": number, "revision": 5, "raft_term": self.terms.get(endpoint, 2)}
        status = {"header": header, "version": "3.6.1", "leader": self.leader, "raftIndex": 40, "raftTerm": 2}
        return {"Endpoint": endpoint, "Status": status}


def _member(row: Row) -> dict[str, Any]:
    shown: dict[str, Any] = {"ID": row.number, "peerURLs": [row.peer_url]}
    if row.name:
        shown |= {"name": row.name, "clientURLs": [row.peer_url.replace(":2380", ":2379")]}
    return shown | ({"isLearner": True} if row.is_learner else {})


def _printed(value: Any, exit_code: int = 0) -> Done:
    return Done(exit_code, json.dumps(value).encode(), b"")
