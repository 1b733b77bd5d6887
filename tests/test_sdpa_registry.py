"""torch_ext.integrations.sdpa: results as torch's flash backend has them, what goes to the kernel before, gradients."""

import importlib
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from common import assert_as_good_as, check_replays, randn
from flash_conventions import efficient_logsumexp, flash_logsumexp, reference, strides_of_efficient, strides_of_flash
from sequences import by_sequence, ends, int32
from torch.nn.attention import (
    SDPBackend,
    activate_flash_attention_impl,
    current_flash_attention_impl,
    list_flash_attention_impls,
    restore_flash_attention_impl,
    sdpa_kernel,
)
from torch.utils.checkpoint import checkpoint

import torch_ext
from torch_ext import _sdpa
from torch_ext.integrations import sdpa

SDPA, FORWARD = "_scaled_dot_product_flash_attention", "_flash_attention_forward"
HALF = [torch.float16, torch.bfloat16]


# Orders of the dims of (B, H, S, D) in memory; 3: a query among query, key and value, which a projection packs.
HEADS_FIRST, HEADS_BESIDE, LENGTH_FIRST, PACKED, HEADS_BACKWARDS = LAYOUTS = ["bhsd", "bshd", "sbhd", "bs3hd", "hbsd"]
SIZES = [(2, 4, 4, 17, 17, 16), (1, 6, 2, 33, 33, 24), (3, 2, 1, 1, 40, 8), (1, 1, 1, 5, 9, 64), (2, 3, 3, 21, 6, 8)]


def lay(order: str, *sizes: int, **options) -> torch.Tensor:
    size = dict(zip("bhsd3", (*sizes, 3), strict=True))
    x = randn(*(size[dim] for dim in order), **options)
    if "3" in order:
        x, order = x.select(order.index("3"), 1), order.replace("3", "")
    return x.permute([order.index(dim) for dim in "bhsd"])


def inputs(order: str, sizes: tuple, dtype=torch.bfloat16, device="cpu") -> tuple[torch.Tensor, ...]:
    b, h, hk, sq, sk, d = sizes
    shapes = (b, h, sq, d), (b, hk, sk, d), (b, hk, sk, d)
    return tuple(lay(order, *shape, dtype=dtype, device=device) for shape in shapes)


def arguments(name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False) -> tuple:
    """Positional arguments of an operator of aten for (B, H, S, D)."""
    if name == SDPA:
        return q, k, v, 0.0, causal, False
    return *(t.transpose(1, 2) for t in (q, k, v)), None, None, q.shape[2], k.shape[2], 0.0, causal, False


def served(name: str, args: tuple, **options) -> tuple | None:
    names = [argument.name for argument in getattr(torch.ops.aten, name).default._schema.arguments]
    return _sdpa.FORWARDS[name]({**dict(zip(names, args, strict=False)), **options})


def described(results: tuple) -> list:
    """What a program sees of results but their values; torch's fakes have other strides of dims of size 1."""

    def strides(t: torch.Tensor) -> list[int]:
        return [stride for size, stride in zip(t.shape, t.stride(), strict=True) if size != 1]

    return [(t.shape, strides(t), t.dtype) if isinstance(t, torch.Tensor) else t for t in results]


@pytest.mark.parametrize("order", LAYOUTS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", sdpa.OPERATORS)
def test_results_are_laid_out_as_torchs(name: str, sizes: tuple, order: str) -> None:
    q, k, v = inputs(order, sizes)
    args = arguments(name, q, k, v, causal=True)
    results = served(name, args)
    on_meta = (t.to("meta") if isinstance(t, torch.Tensor) else t for t in args)
    assert described(results) == described(getattr(torch.ops.aten, name)(*on_meta))
    assert results[0].stride() == strides_of_flash(args[0])


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"causal": True}, {"scale": 0.2}, {"window": (3, 2)}, {"window": (4, -1)}),
        *({"causal": True, "window": (4, 9)}, {"window": (None, 1)}),
    ],
    ids=str,
)
@pytest.mark.parametrize(("sizes", "order"), list(zip(SIZES, LAYOUTS, strict=True)))
def test_values(sizes: tuple, order: str, options: dict) -> None:
    q, k, v = inputs(order, sizes)
    causal, scale, window = options.get("causal", False), options.get("scale"), options.get("window", (-1, -1))
    plain = tuple(-1 if size is None else size for size in window)
    output, logsumexp = reference(q, k, v, scale=scale, causal=causal, window=plain)
    windows = {"window_size_left": window[0], "window_size_right": window[1]}
    results = served(FORWARD, arguments(FORWARD, q, k, v, causal), scale=scale, **windows)
    torch.testing.assert_close(results[0].transpose(1, 2).double(), output, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(results[1], flash_logsumexp(logsumexp), rtol=1e-4, atol=1e-4)
    if "window" not in options:
        others = served(SDPA, arguments(SDPA, q, k, v, causal), scale=scale)
        torch.testing.assert_close((others[0], others[1]), (results[0].transpose(1, 2), results[1]), rtol=0, atol=0)


@pytest.mark.parametrize(
    "extra",
    [
        *({"dropout_p": 0.1}, {"return_debug_mask": True}, {"alibi_slopes": torch.ones(4)}),
        *({"seqused_k": torch.ones(2, dtype=torch.int32)}, {"cum_seq_q": torch.zeros(3, dtype=torch.int32)}),
        *({"an_argument_of_a_newer_torch": torch.zeros(2, 2)}, {"another": 3}),
    ],
    ids=lambda extra: next(iter(extra)),
)
def test_calls_that_are_not_served(extra: dict) -> None:
    q, k, v = inputs(HEADS_FIRST, SIZES[0])
    for name in sdpa.OPERATORS:
        assert served(name, arguments(name, q, k, v)) is not None
        assert served(name, arguments(name, q, k, v), **extra) is None
        nothing = {key: None if isinstance(value, torch.Tensor) else type(value)() for key, value in extra.items()}
        assert served(name, arguments(name, q, k, v), **nothing) is not None


@pytest.mark.parametrize("name", sdpa.OPERATORS)
def test_tensors_that_are_not_served(name: str) -> None:
    q, k, v = inputs(HEADS_FIRST, SIZES[0])
    assert served(name, arguments(name, q, k, v)) is not None
    for tensors in (
        *((q.float(), k.float(), v.float()), (q, k.half(), v), (q, k, v[..., :8]), (q[:1], k, v)),
        *((q, k[:, :3], v[:, :3]), (q[:0], k[:0], v[:0]), (q, k[:, :, :0], v[:, :, :0])),
        *((q, k, v.mT.contiguous().mT), (q, k, v.to("meta"))),
        *(inputs(HEADS_FIRST, (2, 4, 4, 17, 17, size)) for size in (12, 264)),
    ):
        assert served(name, arguments(name, *tensors)) is None, [(t.shape, t.stride(), t.dtype) for t in tensors]
    packed = tuple(t[0].transpose(0, 1) for t in (q, k, v))
    assert _sdpa.FORWARDS[FORWARD](dict(zip(("query", "key", "value"), packed, strict=True))) is None


LENGTHS = ([3, 0, 17, 4], [5, 2, 9, 0])


def packed_reference(q, k, v, lengths: tuple = LENGTHS, **options) -> tuple[torch.Tensor, torch.Tensor]:
    """(T, H, D) and (H, T) in float64, differentiable."""
    parts = list(zip(k.split(lengths[1]), v.split(lengths[1]), strict=True))
    output, logsumexp = by_sequence(q.split(lengths[0]), parts, **options)
    return torch.cat(output), torch.cat(logsumexp, 1)


@pytest.mark.parametrize(
    "make", [lambda *shape: randn(*shape).bfloat16(), lambda t, h, d: randn(h, t, d).bfloat16().transpose(0, 1)]
)
@pytest.mark.parametrize(
    ("causal", "window", "scale"), [(False, (None, None), None), (True, (-1, -1), 0.2), (False, (4, 1), None)]
)
def test_packed_sequences(make: Callable, causal: bool, window: tuple, scale: float | None) -> None:
    q, k, v = make(24, 4, 16), make(16, 2, 16), make(16, 2, 16)
    args = (q, k, v, *(ends(n, "cpu") for n in LENGTHS), 17, 9, 0.0, causal, False)
    options = {"scale": scale, "window_size_left": window[0], "window_size_right": window[1]}
    results = served(FORWARD, args, **options)
    plain = tuple(-1 if size is None else size for size in window)
    output, logsumexp = packed_reference(q, k, v, is_causal=causal, window=plain, scale=scale)
    torch.testing.assert_close(results[0].double(), output, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(results[1], flash_logsumexp(logsumexp), rtol=1e-4, atol=1e-4)
    on_meta = (t.to("meta") if isinstance(t, torch.Tensor) else t for t in args)
    assert described(results) == described(torch.ops.aten._flash_attention_forward(*on_meta, **options))
    used = served(FORWARD, args, **options, seqused_k=int32([4, 0, 9, 0], "cpu"))
    fewer = (q, k[ROWS], v[ROWS], (LENGTHS[0], [4, 0, 9, 0]))
    output, _ = packed_reference(*fewer, is_causal=causal, window=plain, scale=scale)
    torch.testing.assert_close(used[0].double(), output, rtol=2e-2, atol=2e-2)
    changes = {"cum_seq_k": None}, {"cum_seq_q": args[3].long()}, {"dropout_p": 0.1}, {"cum_seq_k": args[4].to("meta")}
    for others in changes:
        assert served(FORWARD, (*args[:3],), **{**dict(zip(OF_SEQUENCES, args[3:], strict=True)), **others}) is None


OF_SEQUENCES = ("cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal", "return_debug_mask")
ROWS = [0, 1, 2, 3, *range(7, 16)]  # of the keys: 4 of the first 5, none of 2, all of 9


def packed(*tensors: torch.Tensor, lengths: list, nested: bool, causal: bool) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    offsets = [ends(n, tensors[0].device) for n in lengths]
    if not nested:
        return varlen_attn(*tensors, *offsets, *map(max, lengths), window_size=(-1, 0) if causal else (-1, -1))
    jagged = [torch.nested.nested_tensor_from_jagged(t, offsets[0].long()).transpose(1, 2) for t in tensors]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(*jagged, is_causal=causal).transpose(1, 2).values()


@pytest.fixture
def stand_in() -> Iterator[list]:
    """Kernels of the two operators on the CPU, where torch has none; the list gets the arguments of their calls."""
    library, calls = torch.library.Library("aten", "IMPL"), []

    def kernel(*args, **kwargs) -> tuple:
        calls.append((args, kwargs))
        return args[0], *[torch.zeros(0)] * 4

    library.impl(FORWARD, kernel, "CPU")
    library.impl(SDPA, lambda *args, **kwargs: (*kernel(*args, **kwargs)[:4], 1, 1, *[torch.zeros(0)] * 3), "CPU")
    yield calls
    library._destroy()


@pytest.mark.parametrize("name", sdpa.OPERATORS)
def test_the_kernel_before(name: str, stand_in: list) -> None:
    op = getattr(torch.ops.aten, name)
    q, k, v = inputs(HEADS_FIRST, SIZES[0])
    args = arguments(name, q, k, v, causal=True)
    for _ in range(2):
        active = sdpa.activate("CPU")
        torch.testing.assert_close(op(*args, scale=0.2)[:2], served(name, args, scale=0.2)[:2], rtol=0, atol=0)
        assert not stand_in
        with_dropout = [0.5 if type(argument) is float else argument for argument in args]
        assert op(*with_dropout, scale=0.2)[0] is not None
        (before,) = stand_in
        assert 0.5 in [argument for argument in before[0] if type(argument) is float]
        assert before[1] == {"scale": 0.2}
        assert before[0][0].data_ptr() == args[0].data_ptr()
        stand_in.clear()

        active.remove()
        op(*args)
        assert len(stand_in) == 1
        stand_in.clear()


def test_inputs_that_require_grad(stand_in: list) -> None:
    """Torch's Autograd kernel calls ours below autograd, and its backward gets our results."""
    active = sdpa.activate("CPU")
    q, k, v = (t.requires_grad_() for t in inputs(HEADS_BESIDE, SIZES[1]))
    output, logsumexp, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, is_causal=True)
    assert not stand_in and type(output.grad_fn).__name__ == "ScaledDotProductFlashAttentionBackward0"
    torch.testing.assert_close(output.grad_fn._saved_logsumexp, logsumexp, rtol=0, atol=0)
    active.remove()


def test_registry() -> None:
    assert "XGEMM" in list_flash_attention_impls()
    importlib.reload(sdpa)
    assert current_flash_attention_impl() is None  # importing changes nothing
    with pytest.raises(RuntimeError, match=r"xgemm.integrations.sdpa: torch .* has no flash attention for CPU"):
        sdpa.activate("CPU")


def test_a_torch_without_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.nn.attention, "register_flash_attention_impl")
    with pytest.raises(ImportError, match=r"^xgemm.integrations.sdpa: needs torch.nn.attention.register_flash\S*, .*$"):
        importlib.reload(sdpa)


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> Iterator[list]:
    """XGEMM serves the flash backend; the list gets the shapes of the queries that it has served."""
    shapes = []

    def count(name: str) -> None:
        attend = getattr(_sdpa, name)

        def counted(query: torch.Tensor, *args, **kwargs) -> tuple[torch.Tensor, torch.Tensor]:
            shapes.append(tuple(query.shape))
            return attend(query, *args, **kwargs)

        monkeypatch.setattr(_sdpa, name, counted)

    count("_attention_lse"), count("_varlen_lse")
    activate_flash_attention_impl("XGEMM")
    assert current_flash_attention_impl() == "XGEMM"
    yield shapes
    restore_flash_attention_impl(_raise_warn=False)


def gradients(call: Callable, tensors: tuple, upstream: torch.Tensor) -> tuple[torch.Tensor, ...]:
    leaves = [t.detach().requires_grad_() for t in tensors]
    output = call(*leaves)
    return output.detach(), *torch.autograd.grad(output, leaves, upstream.to(output))


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options) -> torch.Tensor:
    if "enable_gqa" not in options:
        options["enable_gqa"] = q.shape[1] != k.shape[1]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, **options)


def check_gradients(call: Callable, tensors: tuple, *, served: list, of: Callable = reference, **options) -> None:
    """Errors against float64, `of` the tensors, are at most those of torch's own forward and backward, doubled."""
    upstream = randn(*tensors[0].shape, device="cuda")
    ours = gradients(call, tensors, upstream)
    assert served, "torch has served the call"
    restore_flash_attention_impl()
    count = len(served)
    # A compiled call uncompiled: its code is the same program for either implementation.
    theirs = gradients(getattr(call, "_torchdynamo_orig_callable", call), tensors, upstream)
    assert len(served) == count
    activate_flash_attention_impl("XGEMM")
    wide = tuple(t.double() for t in tensors)
    exact = gradients(lambda *wide: of(*wide, **options)[0], wide, upstream)
    assert described(ours[:1]) == described(theirs[:1])
    for mine, its, wanted in zip(ours, theirs, exact, strict=True):
        assert_as_good_as(mine, its, wanted, noise=1e-5)  # of fp32 sums that cancel: with one key, two gradients are 0


OF_GRADIENTS = [(2, 4, 4, 128, 128, 64), (1, 6, 2, 333, 333, 128), (2, 8, 1, 65, 65, 72), (1, 3, 3, 1, 1, 8)]


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("order", [HEADS_FIRST, HEADS_BESIDE, PACKED])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("sizes", [*OF_GRADIENTS, (1, 2, 2, 200, 200, 256)], ids=str)
def test_gradients(sizes: tuple, is_causal: bool, order: str, dtype: torch.dtype, active: list) -> None:
    call = partial(flash, is_causal=is_causal)
    check_gradients(call, inputs(order, sizes, dtype, "cuda"), served=active, causal=is_causal)


@pytest.mark.cuda
@pytest.mark.parametrize("lengths", [(70, 300), (1, 129), (300, 70)], ids=str)
def test_gradients_of_other_lengths_and_head_sizes(lengths: tuple[int, int], active: list) -> None:
    """Head size 13, which torch fills up to 16, and a scale."""
    tensors = inputs(HEADS_FIRST, (2, 4, 2, *lengths, 13), torch.bfloat16, "cuda")
    check_gradients(partial(flash, scale=0.4), tensors, served=active, scale=0.4)


@pytest.mark.cuda
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_of_compiled_code(dynamic: bool, active: list) -> None:
    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flash(q * 1.0, k, v, is_causal=True, enable_gqa=True)  # torch takes no SymBool there

    compiled = torch.compile(call, fullgraph=True, dynamic=dynamic)
    tensors = inputs(HEADS_BESIDE, (2, 4, 2, 190, 190, 64), torch.bfloat16, "cuda")
    check_gradients(compiled, tensors, served=active, causal=True)


@pytest.mark.cuda
def test_checkpointing_autocast_and_graphs(active: list) -> None:
    tensors = inputs(HEADS_FIRST, (2, 4, 4, 128, 128, 64), torch.float32, "cuda")

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return checkpoint(flash, q, k, v, use_reentrant=False)

    check_gradients(call, tensors, served=active)
    halves = [t.bfloat16() for t in tensors]
    check_replays(lambda: flash(*halves), *halves)


@pytest.mark.cuda
@pytest.mark.parametrize("lengths", [(64, 64), (33, 65), (65, 33), (1, 100)], ids=str)
@pytest.mark.parametrize("window", [(None, None), (7, 0), (3, 5)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_same_results_as_torchs_operator(is_causal: bool, window: tuple, lengths: tuple, active: list) -> None:
    q, k, v = inputs(HEADS_BESIDE, (2, 6, 2, *lengths, 64), torch.float16, "cuda")
    args = arguments(FORWARD, q, k, v, is_causal)
    options = {"window_size_left": window[0], "window_size_right": window[1]}
    ours = torch.ops.aten._flash_attention_forward(*args, **options)
    assert len(active) == 1
    restore_flash_attention_impl()
    theirs = torch.ops.aten._flash_attention_forward(*args, **options)
    assert len(active) == 1
    torch.testing.assert_close(ours[0], theirs[0], rtol=4e-3, atol=4e-3)
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-4, atol=1e-4)
    assert described(ours[:2]) == described(theirs[:2])
    assert [(t.shape, t.dtype) for t in ours[2:]] == [(t.shape, t.dtype) for t in theirs[2:]]


@pytest.mark.cuda
def test_what_torch_still_serves(active: list) -> None:
    q, k, v = inputs(HEADS_FIRST, (2, 4, 4, 128, 128, 64), torch.bfloat16, "cuda")
    assert flash(q, k, v, dropout_p=0.5).shape == q.shape
    assert not active


@pytest.mark.cuda
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_gradients_of_packed_sequences(nested: bool, causal: bool, active: list) -> None:
    """varlen_attn and nested tensors with torch's own backward: errors are at most torch's own, doubled."""
    lengths = ([70, 1, 300, 129],) * 2 if nested else ([70, 0, 300, 129], [128, 5, 257, 110])
    tensors = tuple(randn(sum(n), 4, 64, dtype=torch.bfloat16, device="cuda") for n in (*lengths, lengths[1]))
    call = partial(packed, lengths=lengths, nested=nested, causal=causal)
    check_gradients(call, tensors, served=active, of=packed_reference, lengths=lengths, is_causal=causal)


@pytest.mark.cuda
@pytest.mark.parametrize("wants_lse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("order", LAYOUTS)
def test_the_efficient_backend_under_enable(order: str, dtype: torch.dtype, wants_lse: bool) -> None:
    """Its results are laid out as torch's, with the log-sum-exp that torch's backward reads."""
    q, k, v = inputs(order, (2, 4, 4, 137, 137, 64), dtype, "cuda")
    args = (q, k, v, None, wants_lse, 0.0, True)
    with torch_ext.enable() as handle:
        ours = torch.ops.aten._scaled_dot_product_efficient_attention(*args, scale=0.3)
    assert handle.calls["_scaled_dot_product_efficient_attention", "xgemm"] == 1
    theirs = torch.ops.aten._scaled_dot_product_efficient_attention(*args, scale=0.3)
    assert described(ours) == described(theirs) and ours[0].stride() == strides_of_efficient(q, 64)
    output, logsumexp = reference(q, k, v, scale=0.3, causal=True)
    assert_as_good_as(ours[0], theirs[0], output)
    if wants_lse:
        torch.testing.assert_close(ours[1], efficient_logsumexp(logsumexp), rtol=1e-4, atol=1e-4)
