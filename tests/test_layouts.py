"""Shape, strides, dtype and device of every operator's result: the fake's are the real ones, however the inputs lie."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from common import tuple_of
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

SIZES = {"b": 2, "h": 3, "m": 5, "n": 4, "k": 8, "v": 6}
REDUCTIONS = ("sum", "mean", "amax", "amin", "logsumexp")
# Of each operator: the dims of its tensors, whose sizes are SIZES', s being b + 1, and the other arguments.
CALLS: dict[str, list[tuple[dict[str, str], dict]]] = {
    "matmul": [({"a": a, "b": b}, {}) for a, b in (("bhmk", "bhkn"), ("hmk", "kn"), ("mk", "bkn"), ("k", "kn"))],
    "addmm": [({"input": input, "mat1": "mk", "mat2": "kn"}, {}) for input in ("n", "mn")],
    "linear": [
        ({"input": "bmk", "weight": "nk", "bias": "n", "residual": "bmn"}, {"activation": "gelu"}),
        ({"input": "bhmk", "weight": "nk"}, {}),
        ({"input": "bmk", "weight": "k"}, {}),
    ],
    "prepare": [({"weight": "nk"}, {})],
    "linear_prepared": [({"input": "bmk", "weight": "nk", "prepared": "", "bias": "n"}, {})],
    "gated_linear": [({"input": "bmk", "weight_gate": "nk", "weight_up": "nk", "bias_up": "n"}, {})],
    **{op: [({"input": "bmnk"}, {"dim": d, "keepdim": k}) for d in (None, [1], [0, -1]) for k in (False, True)]
       for op in REDUCTIONS},
    **{op: [({"input": "bmk"}, {"dim": d, "keepdim": k}) for d in (None, 0, 1) for k in (False, True)]
       for op in ("argmax", "argmin")},
    **{op: [({"input": "bmk"}, {"dim": dim}) for dim in (0, 1, 2)] for op in ("softmax", "log_softmax")},
    "scaled_masked_softmax": [({"input": "bmk", "mask": "mk"}, {"dim": dim}) for dim in (1, -1)],
    "topk_softmax": [({"input": "bmk"}, {"k": 1, "dim": dim}) for dim in (0, 1, -1)],
    "cross_entropy": [({"input": "bkmn", "target": "bmn"}, {"reduction": r}) for r in ("none", "sum", "mean")],
    **{op: [
        ({"query": "bhmk", "key": "bhnk", "value": "bhnv"}, {}),
        ({"query": "bhmk", "key": "hnk", "value": "nv", "attn_mask": "mn", "sinks": "h"}, {}),
        ({"query": "hmk", "key": "bhnk", "value": "bhnv"}, {"is_causal": True}),
        ({"query": "mk", "key": "hnk", "value": "hnv"}, {"softcap": 2.0}),
    ] for op in ("attention", "attention_lse")},
    **{op: [
        ({"query": "mhk", "key": "nhk", "value": "nhv", "cu_seq_q": "s", "cu_seq_k": "s", "sinks": "h"},
         {"max_q": 5, "max_k": 5}),
        ({"query": "mhk", "key": "bnhk", "value": "bnhv", "cu_seq_q": "s", "seqused_k": "b", "block_table": "bm"},
         {"cu_seq_k": None, "max_q": 5, "max_k": 0}),
    ] for op in ("attention_varlen", "attention_varlen_lse")},
    **{op: [
        ({"query": "bmhk", "key_cache": "bnhk", "value_cache": "bnhv", "cache_seqlens": "b"}, {}),
        ({"query": "bmhk", "key_cache": "hnhk", "value_cache": "hnhv", "cache_seqlens": "b", "block_table": "bm"}, {}),
    ] for op in ("attention_with_cache", "attention_with_cache_lse")},
}  # fmt: skip
INDICES = ("cu_seq_q", "cu_seq_k", "seqused_k", "block_table", "cache_seqlens")
DTYPES = {"target": torch.int64, "prepared": torch.uint8, **dict.fromkeys(INDICES, torch.int32)}  # others: float32
Layout = Callable[..., torch.Tensor]


def layouts(rank: int) -> list[Layout]:
    """Functions that make a tensor of a shape.

    Contiguous, with two neighbouring dims swapped in memory, with all reversed, with longer rows, expanded along a dim.
    """
    dims = list(range(rank))
    swapped = [[*dims[:i], i + 1, i, *dims[i + 2 :]] for i in range(rank - 1)]

    def permuted(shape: Sequence, order: list[int], **options: object) -> torch.Tensor:
        lying = torch.zeros([shape[i] for i in order], **options)
        return lying.permute(sorted(dims, key=order.__getitem__))

    def longer(shape: Sequence, **options: object) -> torch.Tensor:
        return torch.zeros([*shape[:-1], shape[-1] + 3], **options).narrow(-1, 0, shape[-1])

    def expanded(shape: Sequence, dim: int, **options: object) -> torch.Tensor:
        return torch.zeros([*shape[:dim], 1, *shape[dim + 1 :]], **options).expand(shape)

    orders = [dims, *swapped, *([dims[::-1]] if rank > 2 else [])]
    by_order = [lambda shape, order=order, **o: permuted(shape, order, **o) for order in orders]
    by_dim = [lambda shape, dim=dim, **o: expanded(shape, dim, **o) for dim in dims]
    return [*by_order, *([longer] if rank else []), *by_dim]


def choices(dims: dict[str, str]) -> Iterator[dict[str, Layout]]:
    """The first tensor in every layout while the others are contiguous; then twice each in one of its own."""
    possible = {name: layouts(1 if name == "prepared" else len(letters)) for name, letters in dims.items()}
    contiguous = {name: made[0] for name, made in possible.items()}
    first = next(iter(dims))
    yield from (contiguous | {first: layout} for layout in possible[first])
    for i in (1, 2):
        yield {name: made[i * (3 + j) % len(made)] if name != "prepared" else made[0]
               for j, (name, made) in enumerate(possible.items())}  # fmt: skip


def tensors(dims: dict[str, str], chosen: dict[str, Layout], sizes: dict) -> dict[str, torch.Tensor]:
    sizes = sizes | {"s": sizes["b"] + 1}
    shapes = {name: [0] if name == "prepared" else [sizes[c] for c in letters] for name, letters in dims.items()}
    return {name: chosen[name](shape, dtype=DTYPES.get(name, torch.float32)) for name, shape in shapes.items()}


def metadata(result: torch.Tensor | tuple[torch.Tensor, ...]) -> list[tuple]:
    return [(t.dtype, t.device.type, tuple(t.shape), t.stride()) for t in tuple_of(result)]


def described(given: dict[str, torch.Tensor], options: dict) -> str:
    return f"{ {name: (tuple(x.shape), x.stride()) for name, x in given.items()} }, {options}"


def real(op: str, given: dict[str, torch.Tensor], options: dict) -> list[tuple] | None:
    """None if the operator refuses: an extremum, or the best, of nothing."""
    try:
        return metadata(getattr(torch.ops.xgemm, op)(**given, **options))
    except RuntimeError as error:
        assert any(0 in x.shape for x in given.values()), error
        return None


@pytest.mark.parametrize("op", CALLS)
def test_sizes_that_are_known(op: str) -> None:
    small = [SIZES, *(SIZES | {letter: size} for letter in SIZES for size in (0, 1)), SIZES | {"h": 1, "m": 1}]
    mode, compared = FakeTensorMode(), 0
    for dims, options in CALLS[op]:
        used = {c for letters in dims.values() for c in letters}
        for sizes in small:
            if any(sizes[c] != SIZES[c] for c in SIZES if c not in used):
                continue
            for chosen in choices(dims):
                given = tensors(dims, chosen, sizes)
                expected = real(op, given, options)
                if expected is None:
                    continue
                with mode:
                    found = metadata(getattr(torch.ops.xgemm, op)(**tensors(dims, chosen, sizes), **options))
                assert found == expected, described(given, options)
                compared += 1
    assert compared > 20


@pytest.mark.parametrize("op", CALLS)
def test_a_size_that_is_not_known(op: str) -> None:
    """Strides of dims of one element, and those of a tensor of none, may differ: no element is found by them."""
    compared = 0
    for unknown, (dims, options) in ((c, call) for c in "bhmnk" for call in CALLS[op]):
        if not any(unknown in letters for letters in dims.values()):
            continue
        mode = FakeTensorMode(shape_env=ShapeEnv())
        with mode:
            size = torch.ones(9).nonzero().shape[0]
        symbol = size.node.expr
        # Each layout with some of the sizes that are not known: every second one, from the first or from the second on.
        for chosen in itertools.islice(choices(dims), "bhmnk".index(unknown) % 2, None, 2):
            with mode:
                fakes = tensors(dims, chosen, SIZES | {unknown: size})
                found = metadata(getattr(torch.ops.xgemm, op)(**fakes, **options))
            for actual in (3, 1, 0):
                given = tensors(dims, chosen, SIZES | {unknown: actual})
                expected = real(op, given, options)
                for ours, theirs in zip(found, expected or (), strict=expected is not None):
                    numbers = [[n if isinstance(n, int) else int(n.node.expr.subs({symbol: actual})) for n in x]
                               for x in ours[2:]]  # fmt: skip
                    assert ours[:2] == theirs[:2] and tuple(numbers[0]) == theirs[2], described(given, options)
                    used = [i for i, n in enumerate(theirs[2]) if n > 1 and 0 not in theirs[2]]
                    assert [numbers[1][i] for i in used] == [theirs[3][i] for i in used], described(fakes, options)
                    compared += 1
    assert compared > 20
