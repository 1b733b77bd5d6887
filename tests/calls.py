"""One small call of every operator, for tests that treat all of them alike."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from common import randn

import torch_ext


@dataclass(frozen=True)
class Call:
    """Arguments for torch.ops.xgemm.<op>, and the torch function that does the same."""

    op: str
    args: Callable[[torch.device, torch.dtype], tuple]
    torch_op: Callable[..., torch.Tensor]
    kwargs: dict = field(default_factory=dict)

    @property
    def raw(self) -> torch._ops.OpOverload:
        return getattr(torch.ops.xgemm, self.op).default

    @property
    def function(self) -> Callable:
        """The documented one, with the same results."""
        public = getattr(torch_ext, self.op.removesuffix("_lse"))
        return partial(public, return_lse=True) if self.op.endswith("_lse") else public


def _tensors(*shapes: tuple[int, ...]) -> Callable[[torch.device, torch.dtype], tuple]:
    return lambda device, dtype: tuple(randn(*s, dtype=dtype, device=device) for s in shapes)


def _then(first: Callable, *rest: object) -> Callable[[torch.device, torch.dtype], tuple]:
    return lambda device, dtype: (*first(device, dtype), *rest)


def _logsumexp(x: torch.Tensor, dim: list[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    return torch.logsumexp(x, tuple(range(x.dim())) if dim is None else dim, keepdim)


def _attention_lse(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **kwargs) -> tuple[torch.Tensor, torch.Tensor]:
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    keys = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = q.to(wide) @ keys.to(wide).mT * q.shape[-1] ** -0.5
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, **kwargs), scores.logsumexp(-1)


def _logits(device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return randn(3, 5, 7, dtype=dtype, device=device), torch.randint(0, 5, (3, 7), device=device)


def _topk_softmax(x: torch.Tensor, k: int, dim: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = x.sort(dim=dim, descending=True, stable=True)
    return torch.softmax(values.narrow(dim, 0, k), dim), indices.narrow(dim, 0, k)


def _gated_linear(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, *biases: torch.Tensor) -> torch.Tensor:
    linear = torch.nn.functional.linear
    return torch.nn.functional.silu(linear(x, gate, *biases[:1])) * linear(x, up, *biases[1:])


def _packed(device: torch.device, dtype: torch.dtype) -> tuple:
    """Sequences of 3, 0 and 2 queries, and 4, 1 and 2 keys."""
    ends = [torch.tensor(n, dtype=torch.int32, device=device) for n in ([0, 3, 3, 5], [0, 4, 5, 7])]
    return *_tensors((5, 4, 8), (7, 2, 8), (7, 2, 4))(device, dtype), *ends, 3, 4


def _cached(device: torch.device, dtype: torch.dtype) -> tuple:
    lengths = torch.tensor([6, 3], dtype=torch.int32, device=device)
    return *_tensors((2, 2, 4, 8), (2, 6, 2, 8), (2, 6, 2, 4))(device, dtype), lengths


def _varlen_lse(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [(slice(0, 3), slice(0, 4)), (slice(3, 5), slice(5, 7))]
    results = [_with_cache_lse(q[None, i], k[None, j], v[None, j], torch.tensor([j.stop - j.start])) for i, j in rows]
    return torch.cat([o[0] for o, _ in results]), torch.cat([lse[0] for _, lse in results], 1)


def _with_cache_lse(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> tuple:
    one = [_attention_lse(*(t[i : i + 1].transpose(1, 2) for t in (q, k[:, :n], v[:, :n])), enable_gqa=True)
           for i, n in enumerate(lengths.tolist())]  # fmt: skip
    return torch.cat([o for o, _ in one]).transpose(1, 2), torch.cat([lse for _, lse in one])


_matrix, _cube, _heads = _tensors((5, 7)), _tensors((3, 5, 7)), _tensors((2, 3, 5, 8), (2, 3, 6, 8), (2, 3, 6, 4))
sdpa = torch.nn.functional.scaled_dot_product_attention

CALLS = [
    Call("matmul", _tensors((2, 5, 7), (7, 3)), torch.matmul),
    Call("addmm", _tensors((3,), (5, 7), (7, 3)), torch.addmm, {"beta": 0.5, "alpha": 2.0}),
    Call("linear", _tensors((2, 5, 7), (3, 7), (3,)), torch.nn.functional.linear),
    Call("gated_linear", _tensors((2, 5, 7), (3, 7), (3, 7), (3,), (3,)), _gated_linear),
    Call("sum", _then(_cube, [0, 2]), torch.sum),
    Call("mean", _then(_cube, [1], True), torch.mean),
    Call("amax", _then(_cube, [-1]), torch.amax),
    Call("amin", _then(_cube, [0, 1]), torch.amin),
    Call("argmax", _then(_cube, 1), torch.argmax),
    Call("argmin", _cube, torch.argmin),
    Call("logsumexp", _then(_cube, [1]), _logsumexp),
    Call("cross_entropy", _logits, torch.nn.functional.cross_entropy, {"ignore_index": 2, "label_smoothing": 0.1}),
    Call("softmax", _then(_cube, 1), torch.softmax),
    Call("log_softmax", _then(_cube, -1), torch.log_softmax),
    Call("scaled_masked_softmax", _tensors((3, 5, 7), (5, 7)), lambda x, mask: torch.softmax(x + mask, -1)),
    Call("topk_softmax", _then(_cube, 2, 1), _topk_softmax),
    Call("attention", _heads, sdpa),
    Call("attention_lse", _heads, _attention_lse),
    Call("attention_varlen", _packed, lambda *args: _varlen_lse(*args)[0]),
    Call("attention_varlen_lse", _packed, _varlen_lse),
    Call("attention_with_cache", _cached, lambda *args: _with_cache_lse(*args)[0]),
    Call("attention_with_cache_lse", _cached, _with_cache_lse),
]
DIFFERENTIABLE = [c for c in CALLS if not c.op.startswith("arg")]


def name(call: Call) -> str:
    return call.op
