"""The mode in which a row's bits do not depend on the batch."""

import contextlib

import torch

_ops = torch.ops.xgemm_mode


@torch.compiler.disable  # a compiled function is cut here, so that its parts keep their order
def set_batch_invariant(on: bool) -> bool:
    """Sets the batch-invariant mode of the process (all threads).

    While it is on, a row of any operator's result on CUDA has bits that depend on the row's own data, on N, K (or the
    row's length), dtype, options and GPU alone: not on the number of rows, the batch, the number of batch dims, other
    columns, strides or layout. Without it the same call has the same bits on the same GPU; nothing else is promised. On
    the CPU the bits are ATen's in either mode.

    Kernels look at the mode when they are called: compiled code follows it without being compiled again, and a CUDA
    graph keeps the mode that it was captured in. ``XGEMM_BATCH_INVARIANT=1`` in the environment sets it at the start.

    Returns:
        what was set before.
    """
    return _ops.set_batch_invariant(bool(on))


@torch.compiler.disable
def is_batch_invariant() -> bool:
    """Whether the mode of :func:`set_batch_invariant` is on."""
    return _ops.batch_invariant()


class batch_invariant(contextlib.ContextDecorator):
    """The mode of :func:`set_batch_invariant` within a ``with`` block or a decorated function, the one before after it.

    >>> with torch_ext.batch_invariant():
    ...     logits = model(tokens)
    """

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> "batch_invariant":
        self._before.append(set_batch_invariant(True))
        return self

    def __exit__(self, *_: object) -> None:
        set_batch_invariant(self._before.pop())
