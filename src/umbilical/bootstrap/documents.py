"""JSON and YAML files of an installer, read with bounds. They hold keys and pull secrets: no error quotes from them."""

import json
import stat
from pathlib import Path
from typing import Any, Final

from umbilical.fault import BootstrapError

Document = dict[str, Any]

# A state file repeats a bootstrap.ign of some megabytes a few times over.
MAX_BYTES: Final = 256 * 1024 * 1024


def read_json(path: Path) -> Document | None:
    """Read one JSON object; None when there is no such file.

    Raises:
        BootstrapError: unreadable, or something else than a JSON object.
    """
    content = read_bytes(path)
    if content is None:
        return None
    try:
        value = json.loads(content)
    except json.JSONDecodeError as error:
        raise broken(path, f"line {error.lineno}: it is no JSON") from None
    except (ValueError, RecursionError):
        raise broken(path, "it is no JSON") from None
    return _object(path, value)


def read_yaml(path: Path) -> Document | None:
    """Read one YAML mapping; None when there is no such file.

    Raises:
        BootstrapError: unreadable, or something else than one YAML mapping.
    """
    content = read_bytes(path)
    return None if content is None else parse_yaml(content, path)


def parse_yaml(content: bytes, origin: Path) -> Document:
    import yaml

    try:
        value = yaml.safe_load(content)
    except yaml.MarkedYAMLError as error:
        # str(error) shows the lines around the fault, and a pull secret may be among them.
        mark = error.problem_mark
        raise broken(origin, "it is no YAML" if mark is None else f"line {mark.line + 1}: it is no YAML") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise broken(origin, "it is no YAML") from None
    return _object(origin, value)


def read_bytes(path: Path) -> bytes | None:
    """Read a regular file; None when there is none. A pipe or a device would have us wait, so they are refused."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise broken(path, "it is no regular file")
        if status.st_size > MAX_BYTES:
            raise broken(path, f"it has {status.st_size} bytes, more than any installer writes")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise broken(path, error.strerror or str(error)) from error


def broken(path: Path, why: str) -> BootstrapError:
    return BootstrapError("UMB171", f"{path} cannot be used", why, f"look at it: ls -l {path}")


def _object(path: Path, value: object) -> Document:
    if not isinstance(value, dict):
        raise broken(path, "it holds something else than keys with values")
    return value
