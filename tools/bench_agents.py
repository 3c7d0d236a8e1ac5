"""Runs many of our agents in one process: 200 processes would measure the machine, not the server.

    bench_agents.py COUNT PREFIX FLAG...

The flags are those of `proxy-agent`, in which {id} stands for the agent's id; the ids are PREFIX-0, PREFIX-1 and so on.
Runs until it is killed.
"""

import asyncio
import sys
from collections.abc import Sequence

from umbilical.cli.drop_ins import klog
from umbilical.cli.drop_ins.pflag import FlagSet
from umbilical.cli.drop_ins.proxy_agent import agent_flags, agent_settings
from umbilical.tunnel.agent_process import run_agent
from umbilical.tunnel.descriptors import raise_limit
from umbilical.tunnel.event_loop import new_event_loop
from umbilical.tunnel.settings import AgentSettings


def settings_of(count: int, prefix: str, arguments: Sequence[str]) -> list[AgentSettings]:
    return [settings_for(f"{prefix}-{number}", arguments) for number in range(count)]


def settings_for(agent_id: str, arguments: Sequence[str]) -> AgentSettings:
    flags = [argument.replace("{id}", agent_id) for argument in arguments]
    return agent_settings(_flags([*flags, f"--agent-id={agent_id}"]))


def _flags(arguments: Sequence[str]) -> FlagSet:
    flags = FlagSet("agent", agent_flags(), klog.FLAGS)
    flags.parse(arguments)
    return flags


async def run_all(settings: Sequence[AgentSettings]) -> None:
    async with asyncio.TaskGroup() as agents:
        for one in settings:
            agents.create_task(run_agent(one))


def main(arguments: Sequence[str]) -> None:
    count, prefix, *rest = arguments
    klog.install_klog(_flags(rest), "proxy-agent")
    raise_limit()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run_all(settings_of(int(count), prefix, rest)))


if __name__ == "__main__":
    main(sys.argv[1:])
