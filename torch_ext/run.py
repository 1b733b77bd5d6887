"""Runs a program with aten's kernels replaced: ``python -m torch_ext.run train.py [arguments]``.

``-m package.module`` in place of a file runs a module, ``--report`` prints at the end where the calls went.
XGEMM_ENABLE in the environment chooses: ``0`` runs the program as it is, a comma-separated list replaces these
operators only.
"""

import atexit
import os
import runpy
import sys

from torch_ext._enable import enable


def main(arguments: list[str]) -> int:
    report = arguments[:1] == ["--report"]
    arguments = arguments[report:]
    module = arguments[:1] == ["-m"]
    arguments = arguments[module:]
    if not arguments or arguments[0].startswith("-"):
        print("usage: python -m torch_ext.run [--report] (FILE | -m MODULE) [ARGUMENT ...]", file=sys.stderr)
        return 2
    chosen = os.environ.get("XGEMM_ENABLE", "1")
    if chosen != "0":
        enabled = enable(None if chosen in ("", "1") else [name.strip() for name in chosen.split(",")])
        if report:
            atexit.register(lambda: print(enabled, file=sys.stderr))
    sys.argv = arguments
    if module:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
