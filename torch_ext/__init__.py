"""xgemm: hand-written CUDA kernels as ``torch.ops.xgemm.*``.

Importing this package loads ``libxgemm.so``, which registers the operators. Beside them:

- documented functions of the same names, here and in :mod:`torch_ext.functional`,
- modules in :mod:`torch_ext.nn`,
- :func:`torch_ext.enable`, which runs aten's operators on these kernels in a program that never names them,
- :func:`torch_ext.replace`, which swaps the operators of a torch model for these.
"""

from typing import TYPE_CHECKING

from torch_ext import _lazy, _load

if TYPE_CHECKING:
    from torch_ext._enable import enable
    from torch_ext._mode import batch_invariant, is_batch_invariant, set_batch_invariant

__version__ = "0.1.0"  # the one source: pyproject.toml and CMakeLists.txt read it here

try:
    _load.load()
except ImportError as error:
    _load.report_if_asked(error)
    raise

from torch_ext import autocast, autograd, fake, functional, nn, vmap  # noqa: F401  (they register with the dispatcher)
from torch_ext.functional import *  # noqa: F403  (the operators, by their names)
from torch_ext.replace import replace


def __getattr__(name: str) -> object:
    """What costs time to import, on its first use: the batch-invariant mode asks for torch.compile."""
    if name in ("batch_invariant", "is_batch_invariant", "set_batch_invariant"):
        from torch_ext import _mode as module
    elif name == "enable":
        from torch_ext import _enable as module
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(module, name))


_lazy.after_import("torch.distributed.tensor", "torch_ext.distributed")
_lazy.after_import("torch.utils.flop_counter", "torch_ext.flops")

__all__ = ["batch_invariant", "enable", "is_batch_invariant", "nn", "replace", "set_batch_invariant"]
__all__ += functional.__all__
