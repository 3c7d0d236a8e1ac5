"""The memory that a process may use: the machine's, or the smallest limit of the cgroups that it is in."""

from pathlib import Path

import pytest

from umbilical.tunnel.memory_limit import memory_limit

GIB = 1024**3


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
def test_the_smallest_limit_counts(tmp_path: Path, membership: str, limits: dict[str, str], expected: int) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal:  {8 * GIB // 1024} kB\nMemFree:  1 kB\n")
    (proc / "self" / "cgroup").write_text(membership)
    for name, text in limits.items():
        file = cgroups / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert memory_limit(proc, cgroups) == expected


def test_nothing_is_known_without_proc(tmp_path: Path) -> None:
    assert memory_limit(tmp_path, tmp_path) == 0


def test_this_machine_has_memory() -> None:
    assert memory_limit() > 64 * 1024 * 1024
