"""A group of commands whose modules are imported when they are asked for: `--version` must not load everything."""

from collections.abc import Mapping
from importlib import import_module
from keyword import iskeyword
from typing import Any

import click


class LazyGroup(click.Group):
    """Knows its commands by name and module; a module defines a command of that name, hyphens as underscores.

    Where the name is Python's own (`break`, `list`), an underscore follows it, in the module's name too if that could
    not be imported otherwise.
    """

    def __init__(
        self, *arguments: Any, modules: Mapping[str, str], groups: Mapping[str, click.Group] = {}, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._modules = dict(modules)
        self._groups = dict(groups)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._groups:
            return self._groups[cmd_name]
        if cmd_name not in self._modules:
            return None
        path, name = self._modules[cmd_name], cmd_name.replace("-", "_")
        module = import_module(f"{path}_" if iskeyword(name) else path.replace("-", "_"))
        command = getattr(module, f"{name}_" if hasattr(module, f"{name}_") else name)
        assert isinstance(command, click.Command)
        return command
