import os
import time

import bench_processes


def test_the_clocks_of_the_machine_and_of_a_process_run() -> None:
    before, machine = bench_processes.cpu_seconds(os.getpid()), bench_processes.machine_cpu_seconds()
    deadline = time.process_time() + 0.1
    while time.process_time() < deadline:
        pass
    assert bench_processes.cpu_seconds(os.getpid()) > before
    assert bench_processes.machine_cpu_seconds() > machine
    assert bench_processes.bench_cpu_seconds() > 0
    assert bench_processes.resident_bytes(os.getpid()) > 1_000_000
