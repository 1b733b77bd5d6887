"""The flash backend of torch's scaled_dot_product_attention on xgemm's kernels, by torch's own registry.

import torch_ext.integrations.sdpa  # registers "XGEMM", and changes nothing

torch.nn.attention.activate_flash_attention_impl("XGEMM")
torch.nn.attention.restore_flash_attention_impl()

While it is active, ``aten::_scaled_dot_product_flash_attention`` and ``aten::_flash_attention_forward`` compute the
output and the log-sum-exp here, and torch's own backward reads them. What is not served goes to the kernel that was
registered before: dropout, ALiBi, the debug mask, pages, arguments that a newer torch adds, what torch refuses, and
GPUs where xgemm has no tensor-core kernels.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import torch

from torch_ext import _registered, _sdpa

try:
    from torch.nn.attention import register_flash_attention_impl
except ImportError:
    raise ImportError(
        f"xgemm.integrations.sdpa: needs torch.nn.attention.register_flash_attention_impl, torch {torch.__version__} "
        "has none; use torch_ext.replace or torch_ext.attention"
    ) from None

NAME = "XGEMM"
OPERATORS = ("_scaled_dot_product_flash_attention", "_flash_attention_forward")


def _replacement(name: str, key: str) -> Callable:
    """What is registered for an operator of aten: our forward, and the kernel before for what that does not serve."""
    forward, before = _sdpa.forward(name), torch.library.get_kernel(f"aten::{name}", key)

    def kernel(keys: torch.DispatchKeySet, *args, **kwargs) -> tuple:
        results = forward(*args, **kwargs)
        return before.call_boxed(keys, *args, **kwargs) if results is None else results

    return kernel


def activate(key: str = "CUDA") -> SimpleNamespace:
    """Puts xgemm's forwards before the kernels of a dispatch key. ``activate_flash_attention_impl`` calls it.

    Returns:
        What torch's registry keeps meanwhile; its ``remove()`` undoes this.

    Raises:
        RuntimeError: torch has no such kernels, as one that was built without CUDA.
    """
    library = torch.library.Library("aten", "IMPL")
    try:
        kernels = {name: _replacement(name, key) for name in OPERATORS}
    except RuntimeError:
        raise RuntimeError(
            f"xgemm.integrations.sdpa: torch {torch.__version__} has no flash attention for {key} to stand before"
        ) from None
    with _registered.overriding():
        for name, kernel in kernels.items():
            library.impl(name, kernel, key, with_keyset=True, allow_override=True)
    return SimpleNamespace(remove=partial(_registered.remove, library))


register_flash_attention_impl(NAME, register_fn=activate)
