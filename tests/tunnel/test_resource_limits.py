"""The memory and cores that a process may use: the machine's, or the smallest limit of the cgroups that it is in."""

import os
from pathlib import Path

import pytest

from umbilical.tunnel.resource_limits import MOST_WORKERS, memory_limit, parse_workers, usable_cores

GIB = 1024**3
ALL = len(os.sched_getaffinity(0))


def machine(place: Path, membership: str, limits: dict[str, str]) -> tuple[Path, Path]:
    """Write a machine of 8 GiB, and return its /proc and its cgroups."""
    proc, cgroups = place / "proc", place / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal:  {8 * GIB // 1024} kB\nMemFree:  1 kB\n")
    (proc / "self" / "cgroup").write_text(membership)
    for name, text in limits.items():
        file = cgroups / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return proc, cgroups


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        pytest.param("0::/\n", {}, 8 * GIB, id="no cgroup limits it"),
        pytest.param("0::/\n", {"memory.max": "max\n"}, 8 * GIB, id="the cgroup has no limit"),
        pytest.param("0::/\n", {"memory.max": f"{GIB}\n"}, GIB, id="a container that sees its cgroup as the root"),
        pytest.param(
            "0::/kubepods/pod\n",
            {"kubepods/memory.max": f"{2 * GIB}\n", "kubepods/pod/memory.max": "max\n"},
            2 * GIB,
            id="a cgroup above ours limits it",
        ),
        pytest.param(
            "4:cpu,cpuacct:/x\n3:memory:/pod\n0::/pod\n",
            {"memory/pod/memory.limit_in_bytes": f"{GIB}\n", "memory/memory.limit_in_bytes": "9223372036854771712\n"},
            GIB,
            id="version 1",
        ),
        pytest.param("", {}, 8 * GIB, id="a kernel without cgroups"),
    ],
)
def test_the_smallest_limit_of_memory_counts(
    tmp_path: Path, membership: str, limits: dict[str, str], expected: int
) -> None:
    assert memory_limit(*machine(tmp_path, membership, limits)) == expected


def test_nothing_is_known_without_proc(tmp_path: Path) -> None:
    assert memory_limit(tmp_path, tmp_path) == 0
    assert usable_cores(tmp_path, tmp_path) == ALL


def test_this_machine_has_memory() -> None:
    assert memory_limit() > 64 * 1024 * 1024


@pytest.mark.parametrize(
    ("quotas", "cores"),
    [
        ({"pod/cpu.max": "max 100000"}, ALL),
        ({"pod/cpu.max": "50000 100000"}, 1),
        ({"pod/cpu.max": "100000 100000"}, 1),
        ({"pod/cpu.max": "9900000 100000"}, ALL),
        ({"pod/cpu.max": "max 100000", "cpu.max": "100000 100000"}, 1),
        ({"pod/cpu.max": ""}, ALL),
        ({"pod/cpu.max": "1 0"}, ALL),
        ({}, ALL),
    ],
)
def test_the_smallest_quota_of_cores_counts(tmp_path: Path, quotas: dict[str, str], cores: int) -> None:
    assert usable_cores(*machine(tmp_path, "0::/pod\n", quotas)) == cores


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("16", 16), ("256", 256)])
def test_a_number_of_workers_is_taken(text: str, count: int) -> None:
    assert parse_workers(text) == count


def test_auto_is_at_least_one_worker_and_no_more_than_the_machine_has_cores() -> None:
    assert 1 <= parse_workers("auto") <= min(ALL, MOST_WORKERS)


@pytest.mark.parametrize("text", ["", "0", "-1", "257", "two", "1.5", "٣", "99999999999999"])
def test_anything_else_is_not_a_number_of_workers(text: str) -> None:
    with pytest.raises(ValueError, match="must be auto or a number from 1 to 256"):
        parse_workers(text)
