"""torch's modules on xgemm: what :func:`torch_ext.replace` makes of a module by changing its class."""

import torch
from torch import Tensor

from torch_ext import functional as F
from torch_ext import nn
from torch_ext.replace.functions import booked_reason, not_catching, reason
from torch_ext.replace.report import Report

_modes_off = torch._C.DisableTorchFunction


class _Swapped:
    """What a swapped module has more than xgemm's: it can fall back to torch's forward."""

    _xgemm_report: Report

    def _get_name(self) -> str:
        return f"xgemm.{type(self).__name__}"

    def __prepare_scriptable__(self) -> None:
        self._xgemm_report.refuse_script()


# Each forward looks at its tensors with modes off: under one, every attribute that is read costs a microsecond.


class Linear(_Swapped, nn.Linear):
    activation = "none"
    precision = None

    def forward(self, input: Tensor) -> Tensor:
        try:  # as self.weight and self.bias, a microsecond sooner
            weight, bias = self._parameters["weight"], self._parameters["bias"]
        except KeyError:  # some libraries make attributes of them
            weight, bias = self.weight, self.bias
        with _modes_off():
            if booked_reason(self._xgemm_report, "linear", input, weight, bias) is None:
                return F.linear(input, weight, bias)
        with not_catching():
            return torch.nn.Linear.forward(self, input)


class Softmax(_Swapped, nn.Softmax):
    def forward(self, input: Tensor) -> Tensor:
        if self.dim is None:
            return torch.nn.Softmax.forward(self, input)
        with _modes_off():
            if booked_reason(self._xgemm_report, "softmax", input) is None:
                return F.softmax(input, self.dim)
        with not_catching():
            return torch.nn.Softmax.forward(self, input)


class LogSoftmax(_Swapped, nn.LogSoftmax):
    def forward(self, input: Tensor) -> Tensor:
        if self.dim is None:
            return torch.nn.LogSoftmax.forward(self, input)
        with _modes_off():
            if booked_reason(self._xgemm_report, "log_softmax", input) is None:
                return F.log_softmax(input, self.dim)
        with not_catching():
            return torch.nn.LogSoftmax.forward(self, input)


class MultiheadAttention(_Swapped, nn.MultiheadAttention):
    def forward(self, *args, **kwargs) -> tuple[Tensor, Tensor | None]:
        with _modes_off():
            if self._is_served(args, kwargs):
                return nn.MultiheadAttention.forward(self, *args, **kwargs)
        with not_catching():
            return _torchs_multihead_attention(self, *args, **kwargs)

    def _is_served(self, args: tuple, kwargs: dict) -> bool:
        if self.training and self.dropout > 0:
            self._xgemm_report.count("multihead_attention", "dropout")
            return False
        weights = (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight, self.in_proj_bias)
        others = (self.bias_k, self.bias_v, self.out_proj.weight, self.out_proj.bias)
        inputs = (x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point())
        return booked_reason(self._xgemm_report, "multihead_attention", *inputs, *weights, *others) is None

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """On torch where the report leaves attention to it. That part is counted on its own."""
        if (why := reason(self._xgemm_report, "attention", (q, k, v))) is None:
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


def swap(module: torch.nn.Module, report: Report) -> bool:
    """Changes the class and nothing else: parameters, hooks and whatever refers to the module stay.

    A module with a forward of its own, as accelerate's hooks leave it, would not call that of another class.
    """
    original = type(module)
    ours, operator = SWAPPED.get(original, (None, None))
    if ours is None or operator not in report.operators or "forward" in module.__dict__:
        return False
    module.__class__ = ours
    module._xgemm_report = report
    if original is torch.nn.MultiheadAttention:
        nn.keep_off_fused_path(module)
    report.modules[original.__name__] += 1
    return True


def is_swapped(module: torch.nn.Module) -> bool:
    return isinstance(module, _Swapped)


def changed(module: torch.nn.Module) -> str | None:
    """What something has given the swapped module since: a class derived from ours, or a forward of its own."""
    if not isinstance(module, _Swapped):
        return None
    if type(module) not in _ORIGINAL:
        return type(module).__name__
    return "a forward of its own" if "forward" in module.__dict__ else None


def put_back(module: torch.nn.Module) -> None:
    """Undoes :func:`swap`."""
    if not isinstance(module, _Swapped):
        return
    module.__class__ = _ORIGINAL[type(module)]
    del module._xgemm_report
    if type(module) is torch.nn.MultiheadAttention:
        module._qkv_same_embed_dim = module.in_proj_weight is not None
