"""Whether the data plane that these tests load is the compiled one."""

from umbilical.tunnel import loop


def is_compiled() -> bool:
    return not str(loop.__file__).endswith(".py")
