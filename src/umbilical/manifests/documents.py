"""One YAML document from bytes, strictly: no aliases, no key twice, no depth or length without end."""

from typing import Any, Final

import yaml

# etcd takes no object above 1.5 MiB; what is longer than this is neither a spec nor a manifest.
MAX_BYTES: Final = 1 << 20
# A pod has a dozen levels.
MAX_DEPTH: Final = 50


class DocumentError(ValueError):
    """Why it cannot be read, in a few words."""


class _Loader(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            # They multiply on the way out, without end if one stands inside its own anchor.
            raise DocumentError("it uses YAML aliases")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise DocumentError(f"it is nested deeper than {MAX_DEPTH} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        # YAML lets the last one win without a word, and so the first is edited in vain.
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                raise DocumentError(f"it has the key {key} twice in one mapping, line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


def read_document(content: bytes) -> Any:
    """Read the one document.

    Raises:
        DocumentError: it is none, or there are several.
    """
    if len(content) > MAX_BYTES:
        raise DocumentError(f"it has {len(content)} bytes")
    try:
        return yaml.load(content, _Loader)
    except DocumentError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DocumentError(f"it is not one YAML document: {_brief(error)}") from None


def _brief(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0] or type(error).__name__
    return f"{problem}, line {mark.line + 1}" if mark is not None else str(problem)
