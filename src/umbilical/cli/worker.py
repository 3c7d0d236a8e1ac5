"""The worker process of a server with `--workers`: started by the supervisor, never by hand."""

import socket
import sys
from collections.abc import Sequence

from umbilical.cli import log_setup
from umbilical.cli.drop_ins import klog
from umbilical.cli.engines import run_until_done


def install_logs(recipe: Sequence[str]) -> None:
    """Log as the supervisor does."""
    kind, first, *rest = recipe
    if kind == "klog":
        klog.install_recipe(first, rest)
    else:
        log_setup.install_native(first, debug=rest == ["debug"])


def main(arguments: Sequence[str]) -> int:
    """The arguments are the numbers of inherited sockets, in the order of `WorkerSockets`."""
    from umbilical.tunnel.worker import WorkerSockets, read_order, run_worker

    control, agents, clients = (socket.socket(fileno=int(number)) for number in arguments)
    order = read_order(control)
    install_logs(order.logs)
    return run_until_done(run_worker(order, WorkerSockets(control, agents, clients)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
