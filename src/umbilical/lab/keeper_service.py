"""The operations of a keeper: run programs on nodes, and change the network between them."""

import asyncio
import re
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from umbilical.fault import LabError
from umbilical.lab import control, node_processes, node_root
from umbilical.lab.control import Message, MessageError
from umbilical.lab.isolation import find_program
from umbilical.lab.network import LabNetwork
from umbilical.lab.node_processes import BackgroundProcess, NodeProgram
from umbilical.lab.state import LabDirectory
from umbilical.lab.topology import Topology

# It is also the name of a log file.
PROCESS_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
QUESTION_SECONDS: Final = 30.0

Operation = Callable[[Mapping[str, Any], bytes], Awaitable[Message]]


class KeeperService:
    """Serves the control socket. Requests run concurrently, network changes one after the other."""

    LINE_LIMIT_BYTES: Final = control.MAX_LINE_BYTES

    def __init__(
        self, directory: LabDirectory, topology: Topology, network: LabNetwork, anchors: Mapping[str, int]
    ) -> None:
        self._directory = directory
        self._topology = topology
        self._network = network
        self._anchors = anchors
        self._nsenter = find_program("nsenter") or "nsenter"
        self._background: dict[tuple[str, str], BackgroundProcess] = {}
        self._network_turn = asyncio.Lock()
        self._operations: Mapping[str, Operation] = {
            "exec": self._exec,
            "start": self._start,
            "stop": self._stop,
            "processes": self._processes,
            "anchors": self._list_anchors,
            "network": self._change_network,
            "describe": self._describe,
            "counted": self._counted,
        }

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: one request, one answer. A client that disconnects cancels its request."""
        try:
            question = await asyncio.wait_for(control.receive(reader), QUESTION_SECONDS)
            answer = await _unless_hung_up(reader, self._result(question))
            if answer is not None:
                writer.write(answer.encode())
                await writer.drain()
        except (MessageError, TimeoutError, ConnectionError):
            pass
        finally:
            writer.close()

    async def stop(self) -> None:
        """Stop every background program; their children end with PID 1."""
        await asyncio.gather(*(process.stop(kill=False) for process in self._background.values()))

    async def _result(self, question: Message) -> Message:
        try:
            operation = self._operations[question.fields["operation"]]
            return await operation(question.fields["arguments"], question.payload)
        except LabError as fault:
            return control.fault_message(fault)
        except Exception as error:
            traceback.print_exc()
            why = f"{type(error).__name__}: {error}"
            return control.fault_message(
                LabError("UMB819", "the keeper failed to run the operation", why, f"read {self._directory.keeper_log}")
            )

    async def _exec(self, arguments: Mapping[str, Any], payload: bytes) -> Message:
        program = self._program(arguments)
        stdin = payload if arguments["has_stdin"] else None
        # Both outputs share one payload.
        limit_bytes = control.MAX_PAYLOAD_BYTES // 2
        output = await node_processes.run(program, stdin, arguments["timeout_seconds"], limit_bytes)
        fields = {"exit_code": output.exit_code, "stdout_bytes": len(output.stdout), "is_whole": output.is_whole}
        return Message(fields, output.stdout + output.stderr)

    async def _start(self, arguments: Mapping[str, Any], _: bytes) -> Message:
        node, name = arguments["node"], arguments["name"]
        program = self._program(arguments)
        if not PROCESS_NAME.fullmatch(name):
            why = "a process name is also a file name: use letters, digits, dots and hyphens"
            raise LabError("UMB817", f"{name!r} is not a valid process name", why, "choose another name")
        present = self._background.get((node, name))
        if present is not None and present.exit_code is None:
            why = f"pid {present.pid} of the lab has this name"
            raise LabError(
                "UMB817", f"{name} is already running on {node}", why, "stop it first, or choose another name"
            )
        process = node_processes.start(program, self._directory.log_file(node, name), restarts=arguments["restarts"])
        self._background[node, name] = process
        return Message({"pid": process.pid})

    async def _stop(self, arguments: Mapping[str, Any], _: bytes) -> Message:
        process = self._background.get((arguments["node"], arguments["name"]))
        return Message({"exit_code": None if process is None else await process.stop(kill=arguments["kill"])})

    async def _processes(self, _: Mapping[str, Any], __: bytes) -> Message:
        items = self._background.items()
        return Message({"processes": [[*key, process.pid, process.exit_code] for key, process in items]})

    async def _list_anchors(self, _: Mapping[str, Any], __: bytes) -> Message:
        return Message({"anchors": dict(self._anchors)})

    async def _change_network(self, arguments: Mapping[str, Any], _: bytes) -> Message:
        """Make a change of LabNetwork, in a thread because it waits for the kernel and `nft`."""
        self._topology.node(arguments["parameters"][0])
        changes: Mapping[str, Callable[..., None]] = {
            "set_link": self._network.set_link,
            "set_default_route": self._network.set_default_route,
            "add_rules": self._network.add_rules,
            "count_port": self._network.count_port,
            "remove_rules": self._network.remove_rules,
        }
        async with self._network_turn:
            await asyncio.to_thread(changes[arguments["change"]], *arguments["parameters"])
        return Message()

    async def _describe(self, _: Mapping[str, Any], __: bytes) -> Message:
        async with self._network_turn:
            return Message({"network": await asyncio.to_thread(self._network.describe)})

    async def _counted(self, arguments: Mapping[str, Any], _: bytes) -> Message:
        counted = self._network.counted_bytes
        async with self._network_turn:
            return Message({"bytes": await asyncio.to_thread(counted, arguments["node"], arguments["name"])})

    def _program(self, arguments: Mapping[str, Any]) -> NodeProgram:
        node = self._topology.node(arguments["node"]).name
        # nsenter execs the program, so both have the same pid.
        enter = [self._nsenter, f"--target={self._anchors[node]}", "--mount", "--uts", "--net", "--"]
        environment = {**node_root.environment(node), **arguments["environment"]}
        return NodeProgram([*enter, *arguments["command"]], environment)


async def _unless_hung_up(reader: asyncio.StreamReader, work: Awaitable[Message]) -> Message | None:
    working = asyncio.ensure_future(work)
    hung_up = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait([working, hung_up], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, hung_up):
            task.cancel()
        await asyncio.gather(working, hung_up, return_exceptions=True)
