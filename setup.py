"""Compile the hot rooms with mypyc where UMBILICAL_COMPILE=1 asks for it; the default build is pure Python.

`tools/compiled.py` says which modules are compiled, and why they form one unit.
"""

import os
import sys
from pathlib import Path

from setuptools import setup

if os.environ.get("UMBILICAL_COMPILE") == "1":
    from mypyc.build import mypycify

    sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
    from compiled import SHARED_LIBRARY, compiled_modules

    extensions = mypycify(
        [*compiled_modules(Path("src")), *os.environ.get("UMBILICAL_COMPILE_ALSO", "").split(), "--strict"],
        opt_level=os.environ.get("UMBILICAL_COMPILE_LEVEL", "2"),
        debug_level="0",
        group_name=SHARED_LIBRARY,
    )
    for extension in extensions:
        # Nothing outside the library calls into it by name: calls within then need no table, and may be inlined.
        extension.extra_compile_args.append("-fvisibility=hidden")
else:
    extensions = []

setup(ext_modules=extensions)
