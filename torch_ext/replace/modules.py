"""torch's modules on xgemm: what :func:`torch_ext.replace` makes of a module by changing its class."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torch_ext import functional as F
from torch_ext import nn
from torch_ext.replace.functions import not_catching, reason

if TYPE_CHECKING:
    from torch_ext.replace.report import Replacement


class _Swapped:
    """What a swapped module has more than xgemm's: it can fall back to torch's forward."""

    _xgemm_report: "Replacement"

    def _get_name(self) -> str:
        return f"xgemm.{type(self).__name__}"

    def _torchs(self, operator: str, why: str, torchs: Callable, *args, **kwargs):
        self._xgemm_report.count(operator, why)
        with not_catching():  # it is counted
            return torchs(self, *args, **kwargs)


class Linear(_Swapped, nn.Linear):
    activation = "none"
    precision = None

    def forward(self, input: Tensor) -> Tensor:
        weight, bias, report = self.weight, self.bias, self._xgemm_report
        with torch._C.DisableTorchFunction():  # under a mode every attribute that is read here costs a microsecond
            why = reason(report, "linear", input, weight, bias)
            if why is None:
                report.count("linear", None)
                return F.linear(input, weight, bias)
        return self._torchs("linear", why, torch.nn.Linear.forward, input)


class Softmax(_Swapped, nn.Softmax):
    def forward(self, input: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            why = "no dim" if self.dim is None else reason(self._xgemm_report, "softmax", input)
            if why is None:
                self._xgemm_report.count("softmax", None)
                return F.softmax(input, self.dim)
        return self._torchs("softmax", why, torch.nn.Softmax.forward, input)


class LogSoftmax(_Swapped, nn.LogSoftmax):
    def forward(self, input: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            why = "no dim" if self.dim is None else reason(self._xgemm_report, "log_softmax", input)
            if why is None:
                self._xgemm_report.count("log_softmax", None)
                return F.log_softmax(input, self.dim)
        return self._torchs("log_softmax", why, torch.nn.LogSoftmax.forward, input)


class MultiheadAttention(_Swapped, nn.MultiheadAttention):
    def forward(self, *args, **kwargs) -> tuple[Tensor, Tensor | None]:
        with torch._C.DisableTorchFunction():
            why = self._reason(args, kwargs)
            if why is None:
                self._xgemm_report.count("multihead_attention", None)
                return nn.MultiheadAttention.forward(self, *args, **kwargs)
        return self._torchs("multihead_attention", why, _torchs_multihead_attention, *args, **kwargs)

    def _reason(self, args: tuple, kwargs: dict) -> str | None:
        if self.training and self.dropout > 0:
            return "dropout"
        weights = (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight, self.in_proj_bias)
        others = (self.bias_k, self.bias_v, self.out_proj.weight, self.out_proj.bias)
        inputs = (x for x in (*args[:3], *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point())
        return reason(self._xgemm_report, "multihead_attention", *inputs, *weights, *others)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """On xgemm, or on torch where the report leaves attention to it: then that part is counted."""
        why = reason(self._xgemm_report, "attention", q, k, v)
        if why is None:
            return nn.MultiheadAttention._attend(self, q, k, v, mask, causal)
        self._xgemm_report.count("attention", why)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)


def _torchs_multihead_attention(module: MultiheadAttention, *args, **kwargs) -> tuple[Tensor, Tensor | None]:
    """torch's forward reads the flag that keep_off_fused_path changed: it gets a look-alike with the first one."""
    original = torch.nn.MultiheadAttention.__new__(torch.nn.MultiheadAttention)
    original.__dict__ = {**module.__dict__, "_qkv_same_embed_dim": module.in_proj_weight is not None}
    return torch.nn.MultiheadAttention.forward(original, *args, **kwargs)


# torch's class, exactly (a subclass has a forward of its own): ours, and the operator that it is.
SWAPPED: dict[type, tuple[type, str]] = {
    torch.nn.Linear: (Linear, "linear"),
    torch.nn.Softmax: (Softmax, "softmax"),
    torch.nn.LogSoftmax: (LogSoftmax, "log_softmax"),
    torch.nn.MultiheadAttention: (MultiheadAttention, "multihead_attention"),
}
_ORIGINAL = {ours: original for original, (ours, _) in SWAPPED.items()}


def swap(module: torch.nn.Module, report: "Replacement") -> bool:
    """Changes the class and nothing else: parameters, hooks and whatever refers to the module stay."""
    original = type(module)
    ours, operator = SWAPPED.get(original, (None, None))
    if ours is None or operator not in report.operators:
        return False
    module.__class__ = ours
    module._xgemm_report = report
    if original is torch.nn.MultiheadAttention:
        nn.keep_off_fused_path(module)
    report.modules[original.__name__] += 1
    return True


def is_swapped(module: torch.nn.Module) -> bool:
    return isinstance(module, _Swapped)


def put_back(module: torch.nn.Module) -> None:
    """Undoes :func:`swap`."""
    if not isinstance(module, _Swapped):
        return
    module.__class__ = _ORIGINAL[type(module)]
    del module._xgemm_report
    if type(module) is torch.nn.MultiheadAttention:
        module._qkv_same_embed_dim = module.in_proj_weight is not None
