"""Forward only: an input that requires grad is an error, never a gradient lost in silence.

The operators have no backward. If nothing checked, torch would run them and only warn when backward is called, and the
input would get no gradient.

Dense tensors on the CPU and CUDA are checked by the operators themselves (``csrc/torch/gradient.h``): torch falls
through autograd's keys, which costs nothing. Subclasses, functorch's wrappers and what is traced do not reach an
operator as they were passed, so kernels of the keys that unwrap them check first. Operators that write to their inputs,
other devices, and a torch without the getters that the library looks up have a kernel of the Autograd keys. It is
written in Python, because LibTorch's Stable ABI has no redispatch below autograd, and costs some 7 us a call. Under
``torch.inference_mode()`` nothing is checked. A C++ program without Python has the same check in ``xgemm/xgemm.h``.
"""

from collections.abc import Iterable

import torch
from torch.autograd import forward_ad

from torch_ext import _registered

# argmax and argmin are not here: their results are indices, which have no gradient in torch either.
DIFFERENTIABLE = (
    *("matmul", "addmm", "linear", "linear_prepared", "gated_linear"),
    *("sum", "mean", "amax", "amin", "logsumexp", "cross_entropy"),
    *("softmax", "log_softmax", "topk_softmax", "scaled_masked_softmax"),
    *("attention", "attention_lse", "attention_varlen", "attention_varlen_lse"),
    *("attention_with_cache", "attention_with_cache_lse"),
)

_grad_enabled = torch.is_grad_enabled
_below_autograd = torch._C._after_autograd_keyset
_is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
_AUTOGRAD = torch._C.DispatchKey.AutogradFunctionality
_UNWRAPPING = ("Python", "FuncTorchDynamicLayerBackMode", "Functionalize", "ZeroTensor")
_library = _registered.library(__name__)
_operators_check = torch.ops.xgemm_mode.refuse_gradients(int(_AUTOGRAD))


def check_forward_only(op: torch._ops.OpOverload, inputs: Iterable[object]) -> None:
    """Raises RuntimeError if a gradient, reverse or forward mode, ought to flow through `inputs`."""
    if _grad_enabled():
        for x in inputs:
            if isinstance(x, torch.Tensor) and x.requires_grad:
                raise RuntimeError(
                    f"{op._schema.name}: has no backward, got an input that requires grad; "
                    "call it under torch.no_grad() or torch.inference_mode()"
                )
    if forward_ad._current_level >= 0:
        for x in inputs:
            if isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None:
                raise RuntimeError(
                    f"{op._schema.name}: has no forward-mode derivative, got an input with a tangent; "
                    "pass forward_ad.unpack_dual(input).primal"
                )


def written(*caches: torch.Tensor) -> None:
    """Tells autograd that an op has written to these, as torch's own ops in place do."""
    torch.autograd.graph.increment_version([x for x in caches if not x.is_inference()])


def _register_negated(name: str) -> None:
    """A lazy negation (``z.conj().imag``) is made before the call; torch's fallback can do this for plain ops only."""
    op = getattr(torch.ops.xgemm, name).default

    def negated(*args, **kwargs):
        if kwargs.get("key") is not None and any(cache.is_neg() for cache in args[1:3]):
            raise RuntimeError(f"{op._schema.name}: expected caches to write to, got a lazily negated one")

        def made(value: object) -> object:
            return value.resolve_neg() if isinstance(value, torch.Tensor) else value

        return op(*map(made, args), **{key: made(value) for key, value in kwargs.items()})

    _library.impl(name, negated, "Negative")


def _register(name: str) -> None:
    op = getattr(torch.ops.xgemm, name).default

    def forward_only(keys, *args, **kwargs):
        check_forward_only(op, (*args, *kwargs.values()))
        results = op.redispatch(keys & _below_autograd, *args, **kwargs)
        if op._schema.is_mutable and kwargs.get("key") is not None:
            written(*args[1:3])
        return results

    _library.impl(name, forward_only, "Autograd", with_keyset=True)
    if not op._schema.is_mutable and _operators_check:
        for key in ("AutogradCPU", "AutogradCUDA"):
            _library.impl(name, torch.library.fallthrough_kernel, key)
        for key in _UNWRAPPING:
            _register_unwrapping(op, name, key)


def _register_unwrapping(op: torch._ops.OpOverload, name: str, key: str) -> None:
    """The check in front of torch's kernel for a key at which inputs are replaced by what they wrap."""
    unwrap = torch.library.get_kernel(op, key).call_boxed

    def forward_only(keys, *args, **kwargs):
        if not _is_excluded(_AUTOGRAD):
            check_forward_only(op, (*args, *kwargs.values()))
        return unwrap(keys, *args, **kwargs)

    _library.impl(name, forward_only, key, with_keyset=True)


for _name in DIFFERENTIABLE:
    _register(_name)
for _name in ("attention_with_cache", "attention_with_cache_lse"):
    _register_negated(_name)
