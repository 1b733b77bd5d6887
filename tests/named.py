"""Calls of every operator in many shapes, their tensors by the argument's name, for tests of all operators."""

import torch
from common import randn

CLASSES = 5
REDUCTIONS = ("sum", "mean", "amax", "amin", "logsumexp")
INDICES, SOFTMAXES = ("argmax", "argmin"), ("softmax", "log_softmax")
GATED = {"weight_gate": (4, 3), "weight_up": (4, 3)}
CACHES, PAGES = ({name: shape for name in ("key_cache", "value_cache")} for shape in ((4, 5, 2, 8), (4, 3, 4, 8)))

# op, shapes of its tensors, the other arguments
CASES = [
    *(
        ("matmul", {"a": a, "b": b}, {})
        for a, b in [
            *(((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (2, 3, 4)), ((5, 2, 3), (3, 4))),
            *(((2, 3), (5, 1, 3, 4)), ((2, 1, 2, 3), (5, 3, 4)), ((5, 2, 3), (3,))),
        ]
    ),
    ("addmm", {"input": (4,), "mat1": (2, 3), "mat2": (3, 4)}, {"beta": 0.5, "alpha": 2.0}),
    ("addmm", {"input": (2, 1), "mat1": (2, 3), "mat2": (3, 4)}, {}),
    ("addmm", {"input": (), "mat1": (2, 3), "mat2": (3, 4)}, {"beta": 0}),
    ("linear", {"input": (2, 3), "weight": (4, 3)}, {}),
    ("linear", {"input": (2, 3), "weight": (3,), "residual": (2,)}, {"activation": "relu"}),
    ("linear", {"input": (3,), "weight": (4, 3), "bias": (4,), "residual": (4,)}, {"activation": "gelu"}),
    ("linear", {"input": (5, 2, 3), "weight": (4, 3), "bias": (4,), "residual": (2, 1)}, {"activation": "gelu_tanh"}),
    ("linear", {"input": (2, 3), "weight": (4, 3), "bias": (4,), "residual": (2, 4)}, {"precision": "ieee"}),
    ("linear_prepared", {"input": (2, 3), "weight": (4, 3), "prepared": (0,), "bias": (4,), "residual": (1, 4)},
     {"activation": "silu"}),
    ("gated_linear", {"input": (2, 2, 3), **GATED}, {}),
    ("gated_linear", {"input": (3,), **GATED, "bias_gate": (4,), "bias_up": (4,)}, {"activation": "gelu"}),
    *((op, {"input": (2, 3, 4)}, {"dim": dim, "keepdim": keepdim})
      for op in REDUCTIONS for dim in (None, [], [1], [-1, 0]) for keepdim in (False, True)),
    *((op, {"input": (2, 3, 4)}, {"dim": dim, "keepdim": keepdim})
      for op in INDICES for dim in (None, 1, -1) for keepdim in (False, True)),
    *((op, {"input": ()}, {"dim": d}) for op in REDUCTIONS for d in (None, [0], [-1])),
    *((op, {"input": ()}, {"dim": d, "keepdim": True}) for op in INDICES for d in (None, 0)),
    ("sum", {"input": (2, 3)}, {"dim": [0], "dtype": torch.float64}),
    *((op, {"input": (2, 3)}, {"dim": 1, "dtype": torch.float32}) for op in SOFTMAXES),
    *((op, {"input": (2, 3, 4)}, {"dim": d}) for op in SOFTMAXES for d in (0, 1, -1)),
    *((op, {"input": ()}, {"dim": -1}) for op in SOFTMAXES),
    ("scaled_masked_softmax", {"input": (2, 3, 4), "mask": (3, 1)}, {"scale": 0.5, "dim": 0}),
    ("scaled_masked_softmax", {"input": (2, 3, 4), "mask": (4,)}, {}),
    ("scaled_masked_softmax", {"input": (2, 3)}, {"dim": -1}),
    ("scaled_masked_softmax", {"input": (), "mask": ()}, {"scale": 2.0}),
    ("topk_softmax", {"input": (2, 3, 4)}, {"k": 2, "dim": 1}),
    ("topk_softmax", {"input": (6,)}, {"k": 3, "renormalize": False}),
    ("topk_softmax", {"input": ()}, {"k": 1}),
    *(("cross_entropy", {"input": shape, "target": (*shape[:1], *shape[2:]) if shape[1:] else ()}, options)
      for shape in ((5,), (4, 5), (2, 5, 3))
      for options in ({"reduction": "none"}, {"reduction": "sum", "ignore_index": 1},
                      {"label_smoothing": 0.1, "ignore_index": 1})),
    *((op, shapes, options) for op in ("attention", "attention_lse") for shapes, options in [
        ({"query": (2, 3, 5, 4), "key": (2, 3, 6, 4), "value": (2, 3, 6, 2)}, {"scale": 0.3}),
        ({"query": (4, 5, 4), "key": (2, 6, 4), "value": (2, 6, 4), "attn_mask": (5, 6)}, {"enable_gqa": True}),
        ({"query": (5, 4), "key": (6, 4), "value": (3, 6, 4), "attn_mask": (3, 1, 6)}, {}),
        ({"query": (5, 4), "key": (6, 4), "value": (6, 4)}, {"is_causal": True, "causal_alignment": "bottom_right"}),
        ({"query": (2, 3, 5, 4), "key": (2, 3, 6, 4), "value": (2, 3, 6, 2), "sinks": (3,)},
         {"window": (2, 1), "softcap": 0.5, "precision": "high"}),
        ({"query": (3, 5, 4), "key": (1, 6, 4), "value": (6, 4), "attn_mask": (3, 5, 1), "sinks": ()}, {}),
        ({"query": (2, 4, 5, 8), "key": (1, 2, 6, 8), "value": (1, 2, 6, 8)}, {"is_causal": True, "enable_gqa": True}),
    ]),
    *((op, shapes, options) for op in ("attention_varlen", "attention_varlen_lse") for shapes, options in [
        ({"query": (10, 4, 8), "key": (10, 2, 8), "value": (10, 2, 4), "cu_seq_q": (5,), "cu_seq_k": (5,)},
         {"max_q": 3, "max_k": 3, "is_causal": True}),
        ({"query": (5, 6, 8), "key": (4, 3, 2, 8), "value": (4, 3, 2, 8), "cu_seq_q": (3,), "sinks": (6,),
          "seqused_k": (2,), "block_table": (2, 2)}, {"cu_seq_k": None, "max_q": 3, "max_k": 6}),
    ]),
    *((op, shapes, options) for op in ("attention_with_cache", "attention_with_cache_lse") for shapes, options in [
        ({"query": (4, 2, 4, 8), **CACHES, "cache_seqlens": (4,)}, {}),
        ({"query": (2, 3, 4, 8), **PAGES, "cache_seqlens": (2,), "block_table": (2, 2), "sinks": (4,)}, {"softcap": 2}),
    ]),
]  # fmt: skip
OPERATORS = list(dict.fromkeys(op for op, *_ in CASES))


def cases_of(op: str) -> list[tuple[dict[str, tuple[int, ...]], dict]]:
    return [case[1:] for case in CASES if case[0] == op]


def make(name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """Class indices, a bool mask with a True in every row, a prepared weight's bytes, or signed data of `dtype`.

    Of sequences: two or three rows each, one row in the caches, pages in order.
    """
    if name == "target":
        return torch.randint(0, CLASSES, shape, device=device)
    if name in ("mask", "attn_mask"):
        return (torch.rand(shape, device=device) > 0.3).index_fill_(-1, torch.tensor(0, device=device), True)
    if name in ("cu_seq_q", "cu_seq_k"):
        return (torch.arange(*shape, device=device) * 5 // 2).int()
    if name in ("seqused_k", "cache_seqlens"):
        return torch.ones(shape, dtype=torch.int32, device=device)
    if name == "block_table":
        return torch.arange(shape[0] * shape[1], dtype=torch.int32, device=device).view(shape)
    if name == "prepared":  # unused: neither the CPU nor float64 reads the copy
        return torch.empty(shape, dtype=torch.uint8, device=device)
    return randn(*shape, dtype=dtype, device=device)
