"""``torch_ext.replace(model)``: a torch model runs on xgemm's operators, in place and reversibly."""

from collections.abc import Iterable

import torch

from torch_ext.replace.forward import catch
from torch_ext.replace.functions import PLAIN as _PLAIN  # noqa: F401  (torch_ext.distributed adds DTensor)
from torch_ext.replace.modules import swap
from torch_ext.replace.operators import OPERATORS
from torch_ext.replace.replacement import Replacement

__all__ = ["OPERATORS", "Replacement", "replace"]


def replace(
    model: torch.nn.Module, *, include: Iterable[str] | str | None = None, exclude: Iterable[str] | str = ()
) -> Replacement:
    """Swaps a model's operators for xgemm's, in place.

    - Modules: every ``nn.Linear``, ``nn.Softmax``, ``nn.LogSoftmax`` and ``nn.MultiheadAttention`` in the model
      (exactly these classes: a subclass has a forward of its own). Parameters, hooks, names and state_dict stay as they
      are.
    - Functions: what the forwards of the other modules call, themselves or in whatever library, in every spelling:
      ``F.linear``; ``matmul``, ``@``, ``mm``, ``bmm``, ``mv``, ``dot``, ``inner``, ``addmm``, ``addmv``, ``baddbmm``
      and an ``einsum`` that is one product; ``softmax``, ``log_softmax``, ``logsumexp``, ``F.cross_entropy``;
      ``sum``, ``mean``, ``amax``, ``amin``, ``argmax``, ``argmin``; ``F.scaled_dot_product_attention``. That covers
      "sdpa" and "eager" attention of Hugging Face transformers.

    A call that xgemm does not serve goes to torch as before and is counted with the reason: an input that requires grad
    in grad mode (which also warns, once) or has a forward-mode tangent, dropout in training, a dtype or layout that
    xgemm does not take, a head size over 576 (float32 and float64: 256). Where xgemm has no tensor-core kernels for
    the GPU and the dtype, products and attention stay on torch too, except float32 products in "highest" and
    float32 attention where fp16 parts gain, unless `include` names them.
    Products and attention that xgemm has no operator for are counted as "torch: not covered".

    Works under torch.compile and torch.export (swap first, then compile) and in every thread. The swapped model can be
    copied and pickled.

    Args:
        model: any module.
        include: operators to swap on every GPU: some of :data:`OPERATORS`, or "all". By default all that suit the GPU.
        exclude: operators to leave to torch.

    Returns:
        The report; its :meth:`Replacement.undo` reverts the swap.

    Raises:
        TypeError: model is not a module.
        ValueError: model has been swapped already; an unknown operator.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"xgemm.replace: expected a torch.nn.Module, got {type(model).__name__}")
    if any("_xgemm_report" in module.__dict__ for module in model.modules()):
        raise ValueError("xgemm.replace: this model runs on xgemm already; call undo() of its report first")
    chosen = set(OPERATORS) if include is None else _operators("include", include)
    report = Replacement(model, chosen - _operators("exclude", exclude), forced=include is not None)
    for module in model.modules():
        swap(module, report)
    catch(model, report)
    return report


def _operators(argument: str, names: Iterable[str] | str) -> set[str]:
    if names == "all":
        return set(OPERATORS)
    names = {names} if isinstance(names, str) else set(names)
    if unknown := names - set(OPERATORS):
        raise ValueError(
            f"xgemm.replace: expected {argument} to be of {', '.join(OPERATORS)}, got {', '.join(sorted(unknown))}"
        )
    return names
