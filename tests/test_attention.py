"""attention and attention_lse against float64 math and against torch's scaled_dot_product_attention."""

import functools
import itertools
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from common import (
    FLOATING,
    LAYOUTS,
    SANITIZED,
    SANITIZER,
    assert_as_good_as,
    check_replays,
    check_side_stream,
    kernels_of,
    misaligned,
    poison,
    randn,
    sanitized,
    sliced,
    transposed,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import torch_ext
from torch_ext._architecture import architecture, splits_gain

attention = torch.ops.xgemm.attention
attention_lse = torch.ops.xgemm.attention_lse

LENGTHS = [0, 1, 2, 31, 63, 64, 65, 127, 128, 129, 257, 1000]
HEAD_SIZES = [1, 3, 8, 31, 32, 33, 64, 80, 96, 128, 160, 192, 255, 256, 264, 511, 576]
HEAD_SIZE_PAIRS = [(64, 128), (128, 64), (192, 128), (1, 256), (256, 1), (3, 80), (33, 31), (31, 33), (256, 255)]
HEAD_SIZE_PAIRS += [(576, 512), (40, 300), (513, 24), (0, 8), (8, 0)]


class Reference:
    """softmax(softcap(scale * Q K^T) + mask) V in float64, with the intermediate results that the error bounds use."""

    def __init__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        causal_alignment: str = "top_left",
        window: tuple[int, int] = (-1, -1),
        softcap: float = 0.0,
        sinks: torch.Tensor | None = None,
        precision: str = "highest",  # which the error bounds are for
    ) -> None:
        q, k, v = query.double(), key.double(), value.double()
        if enable_gqa:
            k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
            v = v.repeat_interleave(q.shape[-3] // v.shape[-3], -3)
        sq, sk, d = q.shape[-2], k.shape[-2], q.shape[-1]
        scale = (1 / math.sqrt(d) if d else 1.0) if scale is None else scale
        # A scale of 0 gives 0 even where Q K^T overflows.
        scores = (q * scale) @ k.mT if scale == 0 else q @ k.mT * scale
        # Rounding of a score: proportional to |q| |k| and to the score's own size.
        self.products = q.abs() @ k.abs().mT
        self.slack = self.products * abs(scale) if scale else torch.zeros_like(self.products)
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        position = torch.arange(sq, device=q.device)[:, None] + (sk - sq if causal_alignment == "bottom_right" else 0)
        distance = torch.arange(sk, device=q.device)[None, :] - position
        if window[0] >= 0:
            scores = scores.masked_fill(distance < -window[0], -torch.inf)
        if is_causal or window[1] >= 0:
            scores = scores.masked_fill(distance > (0 if is_causal else window[1]), -torch.inf)
        self.unmasked = scores
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_mask = torch.zeros_like(attn_mask, dtype=torch.float64).masked_fill(~attn_mask, -torch.inf)
            scores = scores + attn_mask
        finite = scores.masked_fill(~scores.isfinite(), -torch.inf)
        self.largest = finite.amax(-1, keepdim=True) if sk else scores.sum(-1, keepdim=True)
        with_sink = scores
        if sinks is not None:  # one more key, without a value
            batch = torch.broadcast_shapes(scores.shape[:-2], v.shape[:-2])
            scores = scores.expand(*batch, sq, sk)
            with_sink = torch.cat([scores, sinks.double().expand(batch)[..., None, None].expand(*batch, sq, 1)], -1)
        self.lse = torch.logsumexp(with_sink, -1)
        weights = torch.softmax(with_sink, -1)[..., :sk]
        weights = torch.where((with_sink == -torch.inf).all(-1, keepdim=True), 0.0, weights)
        self.output = weights @ v
        self.lse = self.lse.expand(self.output.shape[:-1])  # some batch dims may be the value's alone
        self.scale = weights @ v.abs()
        self.values, self.infinite = v.abs().nan_to_num(0.0, 0.0, 0.0), ~v.isfinite()
        used = weights > 0
        spread = (self.slack * (2 * math.sqrt(d) + 8) + 4 * scores.abs().where(used, 0.0)).where(used, 0.0)
        self.score_ulps = spread.amax(-1, keepdim=True) if sk else torch.zeros_like(self.lse)[..., None]
        if sinks is not None:
            self.score_ulps = self.score_ulps + 4 * with_sink[..., sk:].abs().nan_to_num(0.0, 0.0, 0.0)
        self.sk = sk


def on_tensor_cores(query: torch.Tensor) -> bool:
    """Whether a kernel for tensor cores may serve the call: of fp32 where fp16 parts gain."""
    if query.device.type != "cuda":
        return False
    halves = query.dtype in (torch.float16, torch.bfloat16)
    return halves or (query.dtype is torch.float32 and splits_gain(architecture(query.device), 2))


def through_sdpa(query: torch.Tensor) -> bool:
    """Whether attention, but not attention_lse, may go through SDPA's CPU kernel."""
    return query.device.type == "cpu" and query.dtype in (torch.float16, torch.bfloat16)


def rounds_weights(query: torch.Tensor) -> bool:
    """Whether the weights may be rounded to query's dtype before they multiply the values, as SDPA does."""
    return through_sdpa(query) or (on_tensor_cores(query) and query.dtype in (torch.float16, torch.bfloat16))


def as_the_query(output: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """The output with its dims in the order in which they should lie: heads beside each other if the query's do."""
    beside = query.dim() >= 3 and min(query.shape[-3:-1]) > 1 and 0 < query.stride(-3) < query.stride(-2)
    return output.transpose(-2, -3) if beside else output


def call_both(*args: torch.Tensor, **kwargs: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns output and lse; checks that the op without lse gives the same bits."""
    poison(args[0].device)
    output, lse = attention_lse(*args, **kwargs)
    alone = attention(*args, **kwargs)
    if through_sdpa(args[0]):
        assert torch.equal(alone.isnan(), output.isnan())
        output = alone
    torch.testing.assert_close(alone, output, rtol=0, atol=0, equal_nan=True)
    assert output.dtype == args[0].dtype and as_the_query(output, args[0]).is_contiguous()
    assert lse.dtype == (torch.float64 if args[0].dtype == torch.float64 else torch.float32)
    assert lse.shape == output.shape[:-1]
    return output, lse


def check(*args: torch.Tensor, half_peer: bool = True, **kwargs: object) -> None:
    """Checks errors against the dtype's rounding; half precision's, also against twice that of torch's SDPA."""
    output, lse = call_both(*args, **kwargs)
    ref = Reference(*args, **kwargs)
    dtype = args[0].dtype
    assert output.shape == ref.output.shape
    eps, ulps = torch.finfo(lse.dtype).eps / 2, ref.score_ulps + 2 * math.sqrt(ref.sk) + 16
    bound = eps * ulps * ref.scale
    if dtype in (torch.float16, torch.bfloat16):
        bound = 2 * bound + torch.finfo(dtype).eps * ref.output.abs() + torch.finfo(dtype).smallest_normal
        if rounds_weights(args[0]):
            bound += 0.6 * torch.finfo(dtype).eps * ref.scale
        torchs = {"attn_mask", "is_causal", "scale", "enable_gqa", "causal_alignment"}
        served = kwargs.keys() <= torchs and kwargs.get("causal_alignment") != "bottom_right"
        if half_peer and output.numel() and served:
            peer_kwargs = {name: x for name, x in kwargs.items() if name != "causal_alignment"}
            assert_as_good_as(output, F.scaled_dot_product_attention(*args, **peer_kwargs), ref.output)
    error = (output.double() - ref.output).abs()
    assert (error <= bound).all(), f"worst excess {(error / bound.clamp_min(1e-300)).max().item()}"
    masked = ref.lse == -torch.inf
    assert torch.equal(lse == -torch.inf, masked)
    lse_error = (lse.double() - ref.lse).where(~masked, 0.0).abs()
    assert (lse_error <= eps * (2 * ulps.squeeze(-1) + 4 * ref.lse.abs().where(~masked, 0.0))).all(), lse_error.max()


BATCH = (1, 1) if SANITIZED else (2, 3)


def qkv(
    dtype: torch.dtype, device, sq: int = 65, sk: int = 129, d: int = 64, dv: int | None = None, batch: tuple = BATCH
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    sizes = (sq, d), (sk, d), (sk, d if dv is None else dv)
    return tuple(randn(*batch, *size, dtype=dtype, device=device) for size in sizes)


# ---- shapes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("d", HEAD_SIZES)
def test_head_sizes(device: torch.device, dtype: torch.dtype, d: int) -> None:
    check(*qkv(dtype, device, d=d, batch=(1, 2)))
    check(*qkv(dtype, device, sq=130, sk=131, d=d, batch=(1, 1)), is_causal=True)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize(("d", "dv"), sanitized(HEAD_SIZE_PAIRS, (33, 31), (64, 128), (256, 1)))
def test_value_head_size_differs(device: torch.device, dtype: torch.dtype, d: int, dv: int) -> None:
    # initcheck does not see what TMA writes, and reports each element of such a result that torch copies, up to 1024.
    sq = 8 if SANITIZER == "initcheck" else 65
    args = qkv(dtype, device, sq=sq, d=d, dv=dv, batch=(1, 1) if SANITIZED else (1, 2))
    check(*args, half_peer=min(d, dv) > 0)
    check(*args, is_causal=True, causal_alignment="bottom_right")


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_values_that_are_columns_of_the_keys(device: torch.device, dtype: torch.dtype) -> None:
    """Latent attention: one key head of 512 + 64 columns for all query heads, dense and as a slice of a cache."""
    sizes = (128, 1, 700, 576, 512), (16, 5, 300, 576, 512), (3, 65, 129, 320, 264), (40, 2, 9, 512, 512)
    for heads, sq, sk, d, dv in sizes:
        if device.type == "cpu":  # where there are no tiles of heads
            heads = 3
        elif SANITIZED and heads * sq > 100:
            heads = 16
        cache = randn(2, sk + 7, d, dtype=dtype, device=device)
        options = {}, {"is_causal": True, "causal_alignment": "bottom_right"}, {"window": (100, 3), "softcap": 20.0}
        for limits in options:
            for keys in (cache[:, 3 : sk + 3], cache[:, :sk].contiguous()):
                q = randn(2, heads, sq, d, dtype=dtype, device=device)
                key, value = keys[:, None], keys[:, None, :, :dv]
                check(q, key, value, enable_gqa=True, half_peer=False, **limits)
    empty = attention(q, key[:, :, :0], value[:, :, :0], enable_gqa=True)
    assert empty.shape == (2, heads, sq, dv) and not empty.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("mode", ["full", "top_left", "bottom_right", "mask"])
def test_lengths(device: torch.device, dtype: torch.dtype, mode: str) -> None:
    for sq, sk in itertools.product(LENGTHS, LENGTHS):
        if device.type == "cpu" and sq * sk > 20_000:
            continue
        args = qkv(dtype, device, sq=sq, sk=sk, d=24, batch=(2,))
        options = {"is_causal": True, "causal_alignment": mode} if mode in ("top_left", "bottom_right") else {}
        if mode == "mask":
            options = {"attn_mask": torch.rand(2, sq, sk, device=device) < 0.5}
        check(*args, **options, half_peer=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ranks_and_batch_broadcast(device: torch.device, dtype: torch.dtype) -> None:
    shapes = [
        *(((7, 8), (9, 8), (9, 5)), ((3, 7, 8), (3, 9, 8), (3, 9, 5)), ((2, 3, 7, 8), (2, 3, 9, 8), (2, 3, 9, 5))),
        *(((2, 2, 1, 3, 7, 8), (2, 1, 2, 3, 9, 8), (2, 3, 9, 5)), ((2, 3, 7, 8), (9, 8), (9, 5))),
        *(((7, 8), (2, 3, 9, 8), (9, 5)), ((7, 8), (9, 8), (2, 3, 9, 5)), ((2, 1, 7, 8), (1, 3, 9, 8), (2, 3, 9, 5))),
        *(((4, 3, 7, 8), (4, 1, 9, 8), (4, 1, 9, 5)), ((0, 3, 7, 8), (0, 3, 9, 8), (0, 3, 9, 5))),
        ((2, 0, 7, 8), (2, 0, 9, 8), (2, 0, 9, 5)),
        ((1, 2, 1, 2, 1, 2, 7, 8), (2, 1, 2, 1, 2, 1, 9, 8), (1, 1, 1, 1, 1, 1, 9, 5)),
    ]
    for q, k, v in shapes:
        args = [randn(*s, dtype=dtype, device=device) for s in (q, k, v)]
        check(*args, half_peer=False)
        if len(q) == len(k) == len(v) and 0 not in q:  # SDPA itself on the same shapes
            peer = F.scaled_dot_product_attention(*(x.float() for x in args))
            atol = 1e-5 if dtype == torch.float32 else 0.02
            torch.testing.assert_close(attention(*args).float(), peer, rtol=0.02, atol=atol)


@pytest.mark.parametrize("dtype", FLOATING)
def test_grouped_queries(device: torch.device, dtype: torch.dtype) -> None:
    for heads, key_heads, value_heads in [(8, 2, 2), (8, 1, 1), (6, 6, 6), (12, 4, 6), (4, 2, 1)]:
        query = randn(2, heads, 33, 16, dtype=dtype, device=device)
        key = randn(2, key_heads, 70, 16, dtype=dtype, device=device)
        value = randn(2, value_heads, 70, 24, dtype=dtype, device=device)
        check(query, key, value, enable_gqa=True, half_peer=False)
        check(query, key[:1], value[1:], enable_gqa=True, is_causal=True, half_peer=False)
        check(query[0], key[0], value[0], enable_gqa=True, half_peer=False)
    empty = attention(*(torch.empty(2, 0, s, 8, dtype=dtype, device=device) for s in (3, 4, 4)), enable_gqa=True)
    assert empty.shape == (2, 0, 3, 8)


@pytest.mark.cuda
def test_many_heads() -> None:
    """More (batch, head) pairs than a y or z grid dimension holds."""
    args = qkv(torch.float32, "cuda", sq=3, sk=5, d=4, batch=(35, 2001))
    assert 35 * 2001 > 65535
    check(*args)


# ---- layouts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout", sanitized([*LAYOUTS, "bshd", "expanded", "packed"], "misaligned", "bshd"))
def test_layouts(device: torch.device, dtype: torch.dtype, layout: str) -> None:
    for d in (40, 128):
        args = qkv(dtype, device, d=d)
        if layout == "bshd":
            views = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in args]
        elif layout == "expanded":
            views = [x[:, :1].expand(-1, 3, -1, -1) for x in args]
        elif layout == "packed":  # query, key and value packed in one tensor, as a fused projection leaves them
            q, k, v = args
            k, v = k[..., : q.shape[-2], :], v[..., : q.shape[-2], :]
            packed = torch.stack([q, k, v], -2).flatten(-2)
            views = [packed[..., i * d : (i + 1) * d] for i in range(3)]
        else:
            views = [LAYOUTS[layout](x) for x in args]
        check(*views, half_peer=False)
        torch.testing.assert_close(attention(*views), attention(*(x.contiguous() for x in views)), rtol=0, atol=0)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_misaligned_operand(device: torch.device, dtype: torch.dtype) -> None:
    """Alignment is decided per operand: each of them in turn is the misaligned one."""
    changes = [misaligned, transposed] if SANITIZED else [misaligned, transposed, sliced]
    for change, which in itertools.product(changes, range(3)):
        args = list(qkv(dtype, device, batch=(1,) if SANITIZED else (2,)))
        args[which] = change(args[which])
        check(*args, half_peer=False)


# ---- masks -------------------------------------------------------------------------------------------------

MASK_SHAPES = [(2, 3, 65, 129), (2, 1, 65, 129), (1, 3, 65, 129), (65, 129), (2, 1, 1, 129), (2, 3, 65, 1), (129,)]
MASK_SHAPES += [(1,), ()]


def make_mask(kind: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    keep = torch.rand(shape, device=device) < 0.7
    if kind == "bool":
        return keep
    bias = randn(*shape or (1,), dtype=torch.float32 if kind == "float32" else dtype, device=device).reshape(shape)
    return bias if kind == "additive" else bias.masked_fill(~keep, -torch.inf)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("kind", ["bool", "additive", "additive_inf", "float32"])
def test_masks(device: torch.device, dtype: torch.dtype, kind: str) -> None:
    args = qkv(dtype, device, d=32)
    for shape in MASK_SHAPES:
        mask = make_mask(kind, shape, dtype, device)
        check(*args, attn_mask=mask, half_peer=len(shape) > 1 and kind != "float32")


@pytest.mark.parametrize("kind", ["bool", "additive"])
def test_mask_strides(device: torch.device, kind: str) -> None:
    args = qkv(torch.float32, device, d=16)
    full = make_mask(kind, (2, 3, 65, 129), torch.float32, device)
    storage = torch.zeros(2 * 3 * 65 * 129 + 1, dtype=full.dtype, device=device)
    views = [
        *(transposed(full), sliced(full), storage[1:].view_as(full).copy_(full), full[:1, :1].expand(2, 3, -1, -1)),
        *(full[..., :1].expand(-1, -1, -1, 129), full.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2)),
    ]
    for view in views:
        check(*args, attn_mask=view)


@pytest.mark.sanitize
def test_mask_with_groups_and_long_keys(device: torch.device) -> None:
    """The mask is indexed by the query's head, not by the shared key head, in the split path too."""
    batch = 1 if SANITIZED else 2
    query = randn(batch, 6, 3, 32, device=device)
    key, value = randn(batch, 2, 4500, 32, device=device), randn(batch, 2, 4500, 32, device=device)
    check(query, key, value, enable_gqa=True, attn_mask=torch.rand(batch, 6, 3, 4500, device=device) < 0.3)
    check(query, key, value, enable_gqa=True, attn_mask=randn(6, 1, 4500, device=device))


@pytest.mark.parametrize("dtype", FLOATING)
def test_fully_masked_rows(device: torch.device, dtype: torch.dtype) -> None:
    """0 and -inf, for boolean and additive masks alike, as SDPA's math gives them; other rows are untouched."""
    for sk in (3, 129, 4500):
        args = qkv(dtype, device, sq=70, sk=sk, d=16, batch=(2,))
        keep = torch.rand(70, sk, device=device) < 0.5
        keep[::7] = False
        keep[1::7] = True
        bias = torch.zeros(70, sk, device=device, dtype=dtype).masked_fill(~keep, -torch.inf)
        for mask in (keep, bias):
            output, lse = call_both(*args, attn_mask=mask)
            assert not output[:, ::7].any() and (lse[:, ::7] == -torch.inf).all()
            assert torch.isfinite(output).all() and torch.isfinite(lse[:, 1::7]).all()
            check(*args, attn_mask=mask, half_peer=False)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", FLOATING)
def test_causal_alignments(device: torch.device, dtype: torch.dtype) -> None:
    lengths = [(64, 64), (100, 37), (37, 100), (200, 129), (1, 300), (300, 1), (130, 513)]
    for sq, sk in lengths[1:3] + lengths[4:5] if SANITIZED else lengths:
        args = qkv(dtype, device, sq=sq, sk=sk, d=32, batch=(2,))
        for alignment in ("top_left", "bottom_right"):
            check(*args, is_causal=True, causal_alignment=alignment)
        output, lse = call_both(*args, is_causal=True, causal_alignment="bottom_right")
        blind = max(sq - sk, 0)  # the first rows see no key
        assert not output[:, :blind].any() and (lse[:, :blind] == -torch.inf).all()
        assert torch.isfinite(lse[:, blind:]).all()


def test_causal_rows_ignore_later_keys(device: torch.device) -> None:
    q, k, v = qkv(torch.float32, device, sq=150, sk=150)
    before = attention(q, k, v, is_causal=True)
    k[..., 77:, :], v[..., 77:, :] = 1e4, -1e4
    after = attention(q, k, v, is_causal=True)
    torch.testing.assert_close(after[..., :77, :], before[..., :77, :], rtol=0, atol=unseen_tolerance(q))


def unseen_tolerance(query: torch.Tensor) -> float:
    """How much unseen keys may change a row: on tensor cores, fp16 parts of fp32 values share scales within a tile."""
    return 1e-6 if query.device.type == "cpu" else 2e-6 if on_tensor_cores(query) else 0


# ---- window, softcap, sinks --------------------------------------------------------------------------------

WINDOWS = [(0, 0), (3, 0), (17, 5), (100, -1), (-1, 20), (64, 63), (0, 200), (1 << 40, 2)]


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("window", WINDOWS[2:5:2] if SANITIZED else WINDOWS)
def test_windows(device: torch.device, dtype: torch.dtype, window: tuple[int, int]) -> None:
    lengths = [(64, 64), (100, 37), (37, 100), (200, 129), (1, 300), (130, 513)]
    for sq, sk in lengths[1:3] if SANITIZED else lengths:
        args = qkv(dtype, device, sq=sq, sk=sk, d=32, batch=(2,))
        for alignment in ("top_left", "bottom_right"):
            check(*args, window=window, causal_alignment=alignment)
            check(*args, window=window, is_causal=True, causal_alignment=alignment)
    mask = make_mask("bool", (200, 129), dtype, device)
    check(*qkv(dtype, device, sq=200, sk=129, d=32, batch=(2,)), window=window, attn_mask=mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_window_of_everything_is_none(device: torch.device, dtype: torch.dtype) -> None:
    args = qkv(dtype, device, d=16, batch=(2,))
    for window in ((-1, -1), (64, 128), (1 << 62, 1 << 62)):
        assert torch.equal(attention(*args, window=window), attention(*args))
        causal = attention(*args, window=window, is_causal=True)
        assert torch.equal(causal, attention(*args, is_causal=True))
        assert torch.equal(causal, attention(*args, window=(-1, 0)))


@pytest.mark.parametrize("dtype", FLOATING)
def test_long_keys_in_a_window(device: torch.device, dtype: torch.dtype) -> None:
    """Splits before and after the window are skipped, one is partly inside; the sink counts once."""
    sinks = randn(2, dtype=dtype, device=device)
    cases = [(2, 20011, (1500, 0)), (2, 5003, (3000, -1)), (3, 5003, (-1, 1100)), (300, 4100, (1030, 700))]
    for sq, sk, window in cases[: 3 if device.type == "cpu" else 4]:  # which has no splits
        args = qkv(dtype, device, sq=sq, sk=sk, d=64, batch=(1, 2))
        for alignment in ("top_left", "bottom_right"):
            check(*args, window=window, causal_alignment=alignment)
            check(*args, window=window, causal_alignment=alignment, sinks=sinks, softcap=2.0)


def test_a_window_ignores_keys_outside(device: torch.device) -> None:
    """Keys and values outside a row's window do not change it; NaN values reach only rows near them."""
    q, k, v = qkv(torch.float32, device, sq=1500, sk=1500, d=16, batch=(2,))
    before = attention(q, k, v, window=(40, 0))
    k[..., :300, :], v[..., :300, :] = 1e4, -1e4
    k[..., 1000:, :], v[..., 1000:, :] = float("nan"), float("nan")
    after = attention(q, k, v, window=(40, 0))
    kept = slice(340, 860)  # NaN values reach the other rows of their tile
    torch.testing.assert_close(after[:, kept], before[:, kept], rtol=0, atol=unseen_tolerance(q))


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("softcap", [0.5, 5.0, 50.0, 1e6])
def test_softcap(device: torch.device, dtype: torch.dtype, softcap: float) -> None:
    for sq, sk, d in [(65, 129, 32)] if SANITIZED else [(65, 129, 32), (5, 300, 96), (130, 131, 200), (3, 4, 0)]:
        args = qkv(dtype, device, sq=sq, sk=sk, d=d, dv=max(d, 8), batch=(2,))
        for options in ({}, {"is_causal": True}, {"scale": 3.0}, {"scale": -0.5}, {"scale": 0.0}):
            check(*args, softcap=softcap, **options)
        mask = make_mask("additive_inf", (sq, sk), dtype, device)
        check(*args, softcap=softcap, attn_mask=mask)
    q, k, v = qkv(dtype, device, sq=4, sk=6, d=8, batch=(2,))
    q[..., 1, :], k[..., 2, 0], k[..., 4, 0] = q[..., 1, :].abs(), float("inf"), float("nan")
    infinite = attention(q, k, v, softcap=softcap, attn_mask=torch.tensor([1, 1, 1, 1, 0, 1], device=device).log())
    assert infinite.isnan().all()  # a NaN score stays NaN under a mask
    infinite = attention(q[..., 1:2, :], k[..., :4, :], v[..., :4, :], softcap=softcap)
    assert torch.isfinite(infinite).all()  # tanh(inf) is 1


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("own", [True, False])
def test_sinks(device: torch.device, dtype: torch.dtype, own: bool) -> None:
    kind = dtype if own else torch.float32
    for sq, sk in [(65, 129)] if SANITIZED else [(65, 129), (1, 300), (130, 20), (2, 4500), (5, 0)]:
        args = qkv(dtype, device, sq=sq, sk=sk, d=40, batch=(2, 3))
        for shape in ((3,), (2, 3), (2, 1), (1,), ()):
            check(*args, sinks=randn(*shape or (1,), dtype=kind, device=device).reshape(shape))
        sinks = randn(3, dtype=kind, device=device)
        check(*args, sinks=sinks, is_causal=True, causal_alignment="bottom_right")
        if sk:
            check(*args, sinks=sinks, attn_mask=make_mask("bool", (sq, sk), dtype, device))
        for size in (40, -40):  # the sink outweighs all keys; no weight of the sink is left
            check(*args, sinks=sinks + size)
    query = randn(2, 6, 33, 16, dtype=dtype, device=device)
    key, value = (randn(2, 2, 70, 16, dtype=dtype, device=device) for _ in range(2))
    for strided in (randn(6, dtype=kind, device=device), randn(6, 4, dtype=kind, device=device).T[1]):
        check(query, key, value, enable_gqa=True, sinks=strided, window=(9, 3))


def test_sinks_that_are_not_finite(device: torch.device) -> None:
    q, k, v = qkv(torch.float32, device, sq=5, sk=7, d=8, batch=(4,))
    sinks = torch.tensor([-torch.inf, torch.inf, float("nan"), 0.0], device=device)
    output, lse = call_both(q, k, v, sinks=sinks)
    plain, plain_lse = call_both(q, k, v)
    torch.testing.assert_close(output[0], plain[0])
    torch.testing.assert_close(lse[0], plain_lse[0])
    assert output[1:3].isnan().all() and (lse[1] == torch.inf).all() and lse[2].isnan().all()
    assert torch.isfinite(output[3]).all() and torch.isfinite(lse[3]).all()


def test_rows_without_keys_have_their_sink(device: torch.device) -> None:
    q, k, v = qkv(torch.float32, device, sq=9, sk=5, d=8, batch=(3,))
    if device.type == "cuda":
        v[..., 0] = float("nan")
    sinks = torch.tensor([1.0, -2.0, -torch.inf], device=device)
    output, lse = call_both(q, k, v, sinks=sinks, is_causal=True, causal_alignment="bottom_right")
    assert (output[:, :4] == 0).all() and torch.equal(lse[:, :4], sinks[:, None].expand(3, 4))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING)
@torch_ext.batch_invariant()
def test_row_bits_in_a_window_do_not_depend_on_the_batch(dtype: torch.dtype) -> None:
    options = {"window": (1100, 30), "softcap": 4.0, "sinks": randn(4, dtype=dtype, device="cuda")}
    for sq, sk in [(1, 300), (5, 9000), (200, 3000)]:
        q, k, v = qkv(dtype, "cuda", sq=sq, sk=sk, batch=(3, 4))
        full, full_lse = attention_lse(q, k, v, **options)
        options_of_one = options | {"sinks": options["sinks"][2:3]}
        one, one_lse = attention_lse(q[1:2, 2:3], k[1:2, 2:3], v[1:2, 2:3], **options_of_one)
        assert torch.equal(one[0, 0], full[1, 2]) and torch.equal(one_lse[0, 0], full_lse[1, 2])
        shared = attention(q[:, :, : sq // 2 + 1], k, v, **options)
        assert torch.equal(shared, full[:, :, : sq // 2 + 1])


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@torch_ext.batch_invariant()
def test_row_bits_do_not_depend_on_the_tiles_height(dtype: torch.dtype, causal: bool) -> None:
    """Head size 64: tiles of 128 rows where there are few heads or 192 would be emptier, of 192 else."""
    for s in (197, 384, 512, 768, 1100):
        q, k, v = qkv(dtype, "cuda", sq=s, sk=s, d=64, batch=(40, 16))
        full, full_lse = attention_lse(q, k, v, is_causal=causal)
        one, one_lse = attention_lse(q[3:4, 5:6], k[3:4, 5:6], v[3:4, 5:6], is_causal=causal)
        assert torch.equal(one[0, 0], full[3, 5]) and torch.equal(one_lse[0, 0], full_lse[3, 5])


# ---- numbers -----------------------------------------------------------------------------------------------


def sdpa(backend: SDPBackend, *args: torch.Tensor, **kwargs: object) -> torch.Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(*args, **kwargs)


sdpa_math = functools.partial(sdpa, SDPBackend.MATH)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("operand", ["query", "key", "value", "mask"])
def test_non_finite_inputs(device: torch.device, dtype: torch.dtype, operand: str, bad: float) -> None:
    for sk in (5, 200, 4500):
        tensors = dict(zip(("query", "key", "value"), qkv(dtype, device, sq=70, sk=sk, d=16, batch=(2,)), strict=True))
        tensors["mask"] = randn(70, sk, dtype=dtype, device=device)
        tensors[operand][..., 3, 2] = bad
        mask = tensors["mask"] if operand == "mask" else None
        args = tensors["query"], tensors["key"], tensors["value"]
        output, lse = call_both(*args, attn_mask=mask)
        expected = sdpa_math(*(x.double() for x in args), attn_mask=None if mask is None else mask.double())
        for kind in (torch.isnan, torch.isposinf, torch.isneginf):
            assert torch.equal(kind(output), kind(expected)), kind
        ref = Reference(*args, attn_mask=mask)
        assert torch.equal(lse.isnan(), ref.lse.isnan()) and torch.equal(lse.isposinf(), ref.lse.isposinf())


def test_masked_nan_key(device: torch.device) -> None:
    """A boolean mask is the additive mask 0 / -inf, as in SDPA: a NaN score stays NaN."""
    q, k, v = qkv(torch.float32, device, sq=4, sk=6, d=8, batch=(2,))
    k[..., 2, 0] = float("nan")
    mask = torch.ones(4, 6, dtype=torch.bool, device=device)
    mask[1, 2] = False
    assert torch.equal(attention(q, k, v, attn_mask=mask).isnan(), sdpa_math(q, k, v, attn_mask=mask).isnan())


def test_scores_all_far_below_zero(device: torch.device) -> None:
    """Defects D22 and D24: a running maximum that starts above the scores (1e-30, -FLT_MAX) gives a sum of 0."""
    q, k, v = qkv(torch.float32, device, sq=33, sk=300, d=32, batch=(2,))
    check(q.abs() * 30, -k.abs() * 30, v)
    check(q, k, v, attn_mask=torch.full((33, 300), -3e38, device=device))
    far = torch.zeros(33, 300, device=device)
    far[:, :150] = -torch.inf  # whole tiles of -inf in front of the first finite score
    check(q, k, v, attn_mask=far)
    check(q, k, v, attn_mask=far.flip(-1))


# Of queries and keys: few bits, so that sums of products are exact; scores are finite in fp32. 4.5 and 5: on both sides
# of the largest that one multiply-add serves (attention/tiles/softmax.cuh).
MAGNITUDES = {
    torch.float16: [1.0, 4.5, 5.0, 2.0**5, 2.0**10, 1.5 * 2.0**15],
    torch.bfloat16: [1.0, 4.5, 5.0, 2.0**10, 133120.0, 2.0**20, 2.0**30, 2.0**50, 2.0**60],
    torch.float32: [1.0, 2.0**10, 133120.0, 2.0**20, 2.0**30, 2.0**50, 2.0**60],
    torch.float64: [1.0, 2.0**30, 2.0**60, 2.0**500],
}
# Queries, keys and query heads per key head for each kernel: one key, few rows, splits of long keys, many rows.
ROWS_AND_KEYS = [(1, 1, 1), (1, 100, 1), (2, 37, 4), (1, 5000, 2), (3, 9000, 1), (70, 129, 1), (300, 300, 2)]
FAMILIES = ["", *(pytest.param(plan, marks=pytest.mark.cuda) for plan in ("mma", "wgmma", "simt"))]
by_every_family = pytest.mark.parametrize("plan", FAMILIES)


def sees(sq: int, sk: int, device: torch.device, is_causal: bool = False, window: tuple[int, int] = (-1, -1), **_):
    """Which keys each query sees, in float64; a window is aligned to the bottom right."""
    distance = torch.arange(sk, device=device) - torch.arange(sq, device=device)[:, None]
    if window[0] >= 0:
        distance = distance - (sk - sq)
        return ((distance <= window[1]) & (distance >= -window[0])).double()
    return ((distance <= 0) | torch.tensor(not is_causal, device=device)).double()


def rounding_of_values(value: torch.Tensor) -> float:
    """Error of a value times a weight of 1, relative to the largest: two fp16 parts of fp32 values have 22 bits."""
    return 2.0**-21 if on_tensor_cores(value) and value.dtype is torch.float32 else 0.0


@by_every_family
@pytest.mark.parametrize("dtype", FLOATING)
def test_equal_scores_of_every_magnitude(device: torch.device, dtype: torch.dtype, plan: str, monkeypatch) -> None:
    """All weights are 1, so a row is the mean of the values that it sees; with one key, its value."""
    if plan and device.type == "cpu":
        pytest.skip("a choice among kernels")
    monkeypatch.setenv("XGEMM_ATTENTION_PLAN", plan)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    window = {"window": (20, 0), "causal_alignment": "bottom_right"}
    shapes = ROWS_AND_KEYS if device.type == "cuda" and not SANITIZED else ROWS_AND_KEYS[:3]
    for size, (sq, sk, group) in itertools.product(MAGNITUDES[dtype], shapes):
        q = torch.full((1, 2 * group, sq, 64), size, dtype=dtype, device=device)
        k = torch.full((1, 2, sk, 64), size, dtype=dtype, device=device)
        v = randn(1, 2, sk, 64, dtype=dtype, device=device)
        for options in ({}, {"is_causal": True}, window, {"softcap": 30.0}):
            what = (size, sq, sk, options)
            seen = sees(sq, sk, device, **options)
            count = seen.sum(-1)
            output, lse = attention_lse(q, k, v, enable_gqa=group > 1, **options)
            values = v.double().repeat_interleave(group, 1)
            expected = seen @ values / count.clamp_min(1)[:, None]
            allowed = torch.finfo(dtype).eps * expected.abs() + 16 * torch.finfo(wide).eps * (seen @ values.abs())
            assert ((output.double() - expected).abs() <= allowed).all(), what
            one = output[:, :, count == 1].double() - expected[:, :, count == 1]
            assert (one.abs() <= rounding_of_values(v) * v.abs().max()).all(), what
            score = 64 * q[0, 0, 0, 0].double() ** 2 / 8
            score = 30 * (score / 30).tanh() if "softcap" in options else score
            expected = (score + count.log()).expand_as(lse)
            assert torch.allclose(lse.double(), expected, rtol=8 * torch.finfo(wide).eps, atol=1e-6), what


@pytest.mark.cuda
@by_every_family
@pytest.mark.parametrize("dtype", FLOATING)
def test_peaked_scores_of_every_magnitude(dtype: torch.dtype, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one score is far above all others, the row is its key's value; a low sink changes nothing."""
    monkeypatch.setenv("XGEMM_ATTENTION_PLAN", plan)
    for size, (sq, sk, group) in itertools.product(MAGNITUDES[dtype][1:], ROWS_AND_KEYS):
        size = min(size, 2.0**13) if dtype is torch.float16 else size
        q = (randn(1, 2 * group, sq, 64, dtype=torch.float64, device="cuda") * size).to(dtype)
        k = (randn(1, 2, sk, 64, dtype=torch.float64, device="cuda") * size / 4).to(dtype)
        v = randn(1, 2, sk, 64, dtype=dtype, device="cuda")
        products = (q.double() / size) @ (k.double() / size).repeat_interleave(group, 1).mT
        best = products.topk(min(sk, 2), -1)
        gap = best.values[..., 0] - best.values[..., -1]
        clear = (gap * size**2 / 8 > 200) & (gap > 1e-3) | (sk == 1)  # beyond the rounding of scores
        expected = v.repeat_interleave(group, 1).gather(2, best.indices[..., :1].expand(*clear.shape, 64))
        for options in ({}, {"sinks": torch.zeros(2 * group, device="cuda")}):
            above = clear & (best.values[..., 0] * size**2 / 8 > 200) if options else clear
            output = attention(q, k, v, enable_gqa=group > 1, **options)
            error = (output[above].double() - expected[above].double()).abs()
            assert (error <= rounding_of_values(v) * v.abs().max()).all(), (size, sq, sk, options)


@pytest.mark.cuda
@by_every_family
@pytest.mark.parametrize("dtype", FLOATING)
def test_close_scores_of_a_large_magnitude(dtype: torch.dtype, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores 2^16 + j / 8, exact in fp32: the weights depend on their differences alone."""
    monkeypatch.setenv("XGEMM_ATTENTION_PLAN", plan)
    for sq, sk, sinks in ((1, 200, 0), (1, 200, 1), (200, 200, 0), (200, 200, 1), (1, 4096, 0)):
        q, k = (torch.zeros(1, 1, length, 64, dtype=dtype, device="cuda") for length in (sq, sk))
        q[..., 0] = k[..., 0] = 256
        q[..., 1] = 1 / 8
        steps = torch.randint(0, 200, (sk,), device="cuda")
        k[..., 1] = steps.to(dtype)
        v = randn(1, 1, sk, 64, dtype=dtype, device="cuda")
        extra = {"sinks": torch.full((1,), 65536.0 + 24, device="cuda")} if sinks else {}
        output = attention(q, k, v, scale=1.0, **extra)
        scores = torch.cat([steps.double() / 8, torch.full((sinks,), 24.0, dtype=torch.float64, device="cuda")])
        weights = scores.softmax(-1)[:sk]
        expected, scale = weights @ v.double(), weights @ v.double().abs()
        rounding = torch.finfo(dtype).eps if rounds_weights(q) else torch.finfo(torch.float32).eps
        allowed = torch.finfo(dtype).eps * expected.abs() + (rounding + 2e-6) * scale
        assert ((output.double() - expected).abs() <= allowed).all(), (sq, sk, sinks)


@pytest.mark.parametrize("dtype", FLOATING)
def test_scale(device: torch.device, dtype: torch.dtype) -> None:
    args = qkv(dtype, device, d=16, batch=(2,))
    for scale in (None, 1.0, 0.0, -0.5, 0.3):
        check(*args, scale=scale)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("causal", [False, True])
def test_cpu_scale_zero_averages_the_values_whatever_the_products_are(dtype: torch.dtype, causal: bool) -> None:
    """Also where Q K^T overflows; sums of integers over powers of two are exact."""
    query, key = (randn(2, 8, 4, dtype=torch.float64).mul(torch.finfo(dtype).max / 8).to(dtype) for _ in range(2))
    value = torch.randint(-8, 9, (2, 8, 3)).to(dtype)
    rows = [0, 1, 3, 7] if causal else list(range(8))
    expected = torch.stack([value[:, : i + 1 if causal else 8].mean(1) for i in rows], 1)
    output, lse = attention_lse(query, key, value, is_causal=causal, scale=0.0)
    keys = torch.tensor([i + 1.0 if causal else 8.0 for i in rows], dtype=lse.dtype)
    torch.testing.assert_close(lse[:, rows], keys.log().expand(2, -1))
    for result in (output, attention(query, key, value, is_causal=causal, scale=0.0)):
        torch.testing.assert_close(result[:, rows], expected, rtol=0, atol=0)


def test_small_values(device: torch.device) -> None:
    """Denormal values are not flushed; denormal scores are small scores."""
    q, k, v = qkv(torch.float32, device, batch=(2,))
    tiny = v * 1e-41
    output, expected = attention(q, k, tiny), Reference(q, k, tiny).output
    assert output.any()
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=2e-43)
    check(q * 1e-30, k * 1e-12, v)


# ---- agreement with torch, determinism, independence -------------------------------------------------------


@pytest.mark.cuda
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_fp32_error_beside_torch(d: int, causal: bool) -> None:
    """fp32 means fp32: no worse than twice the memory-efficient backend's error against float64."""
    args = qkv(torch.float32, "cuda", sq=1024, sk=1024, d=d, batch=(2, 4))
    theirs = sdpa(SDPBackend.EFFICIENT_ATTENTION, *args, is_causal=causal)
    assert_as_good_as(attention(*args, is_causal=causal), theirs, Reference(*args, is_causal=causal).output)


ERROR_DATA = {
    "normal": lambda q, k, v: (q, k, v),
    "peaked": lambda q, k, v: (q * 8, k, v),
    "large scores": lambda q, k, v: (q * 64, k, v),
    "flat": lambda q, k, v: (q / 64, k, v),
    "values of one sign": lambda q, k, v: (q, k, v.abs()),
}


@pytest.mark.parametrize("data", ERROR_DATA)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_cpu_error_beside_the_math_backend(dtype: torch.dtype, data: str) -> None:
    """By the norm of 8192 errors, which varies little from draw to draw: ours was 0.7 to 1.2 times the backend's."""
    for sq, sk in ((128, 128), (16, 2000), (1, 250)):
        draws = (randn(128 // sq, n, 64, dtype=torch.float64) for n in (sq, sk, sk))
        q, k, v = (x.to(dtype) for x in ERROR_DATA[data](*draws))
        math_backend, reference = sdpa_math(q, k, v), Reference(q, k, v).output
        allowed = 2 * (math_backend - reference).norm() + torch.finfo(dtype).eps * reference.norm()
        for output in (attention(q, k, v), attention_lse(q, k, v)[0]):
            assert output.dtype is dtype and (output - reference).norm() <= allowed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_cpu_long_uniform_weights(dtype: torch.dtype) -> None:
    """16k keys behind a mask of the lowest finite number: the mean of the values, as exact as torch's math backend."""
    q, k = (randn(1, 1, n, 64, dtype=dtype) for n in (8, 1 << 14))
    mask = torch.full((8, 1 << 14), torch.finfo(dtype).min, dtype=dtype)
    for v in (randn(1, 1, 1 << 14, 64, dtype=dtype), randn(1, 1, 1 << 14, 64, dtype=dtype).abs()):
        output, theirs = (attend(q, k, v, attn_mask=mask) for attend in (attention, sdpa_math))
        assert_as_good_as(output, theirs, Reference(q, k, v, attn_mask=mask).output, ulps=0.5)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("sk", [1, 5, 40, 600])
def test_rows_of_nan_scores_beside_rows_without_keys(dtype: torch.dtype, sk: int) -> None:
    """A row of NaN scores is NaN and a fully masked row 0; SDPA's CPU kernel returns 0 for both."""
    q, k, v = randn(2, 3, 4, 16, dtype=dtype), randn(2, 3, sk, 16, dtype=dtype), randn(2, 3, sk, 16, dtype=dtype)
    q[:, :, 1] = float("nan")
    mask = torch.ones(4, sk, dtype=torch.bool)
    mask[2] = False
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}):
        output, lse = call_both(q, k, v, **options)
        assert output[:, :, 1].isnan().all() and lse[:, :, 1].isnan().all()
        assert not output[:, :, 0].isnan().any() and not output[:, :, 3].isnan().any()
        if "attn_mask" in options:
            assert (output[:, :, 2] == 0).all() and (lse[:, :, 2] == -torch.inf).all()


def test_log_sum_exp_of_zero() -> None:
    """A log-sum-exp of exactly 0 is also what SDPA's CPU kernel gives for a row without keys."""
    q, k, v = torch.zeros(2, 3, 4), randn(2, 1, 4), randn(2, 1, 4)
    output, lse = call_both(q, k, v)
    assert (lse == 0).all() and torch.equal(output, v.expand(2, 3, 4))
    output, lse = call_both(q, k, torch.zeros_like(v))
    assert (lse == 0).all() and (output == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_in_groups_of_every_layout(device: torch.device, dtype: torch.dtype) -> None:
    """Batch, key heads and heads of a group whose strides do not fold, with masks for each of them."""
    q, k = randn(2, 33, 6, 32, dtype=dtype, device=device), randn(2, 70, 3, 32, dtype=dtype, device=device)
    v = randn(2, 70, 3, 32, dtype=dtype, device=device)
    bshd = [x.transpose(1, 2) for x in (q, k, v)]
    for mask in (None, (33, 70), (2, 1, 33, 70), (1, 6, 1, 70), (2, 6, 33, 1)):
        options = {} if mask is None else {"attn_mask": make_mask("bool", mask, dtype, device)}
        check(*bshd, enable_gqa=True, **options)
        check(*(x.contiguous() for x in bshd), enable_gqa=True, **options)
    check(bshd[0], bshd[1], bshd[2][:, :1], enable_gqa=True)  # key and value differ in their number of heads


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_one_batch_dim_of_every_layout(device: torch.device, dtype: torch.dtype) -> None:
    packed = randn(9, 3 * 4 * 16, dtype=dtype, device=device)
    heads = [x.unflatten(-1, (4, 16)).transpose(0, 1) for x in packed.chunk(3, -1)]
    check(*heads)
    check(*(x[None] for x in heads))
    check(*(x.mT.contiguous().mT for x in heads))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rows_that_overlap(device: torch.device, dtype: torch.dtype) -> None:
    row, step = randn(2, 1, 16, dtype=dtype, device=device), randn(200, dtype=dtype, device=device)
    q, k = row.expand(2, 9, 16), step.as_strided((2, 20, 16), (40, 3, 1))
    check(q, k, k)


def test_batch_dims_without_limit(device: torch.device) -> None:
    """13 dims of which no two merge."""
    rank = 13
    q = randn(*[2] * rank, 1, 4, device=device)
    k = randn(*[2 if i % 2 else 1 for i in range(rank)], 3, 4, device=device)
    v = randn(*[1 if i % 2 else 2 for i in range(rank)], 3, 4, device=device)
    output, lse = call_both(q, k, v)
    reference = Reference(q, k, v)
    torch.testing.assert_close((output.double(), lse.double()), (reference.output, reference.lse), rtol=1e-5, atol=1e-5)


def test_sdpas_order_of_arguments(device: torch.device) -> None:
    q, k = randn(2, 3, 5, 8, device=device), randn(2, 3, 6, 8, device=device)
    mask = make_mask("bool", (5, 6), q.dtype, device)
    calls = ((mask,), {}), ((None, 0.0, True), {"scale": 0.3}), ((mask, 0), {}), ((), {"attn_mask": mask})
    for more, options in calls:
        expected = F.scaled_dot_product_attention(q, k, k, *more, **options)
        torch.testing.assert_close(torch_ext.attention(q, k, k, *more, **options), expected)
    with pytest.raises(ValueError, match=r"^xgemm::attention: expected dropout_p of 0, got 0\.1$"):
        torch_ext.attention(q, k, k, None, 0.1)
    with pytest.raises(ValueError, match="dropout_p"):
        torch_ext.attention(q, k, k, dropout_p=1.0, return_lse=True)


@pytest.mark.parametrize("make", [causal_upper_left, causal_lower_right])
def test_causal_masks_of_torch_nn_attention(make: Callable, device: torch.device) -> None:
    q, k = randn(1, 2, 3, 8, device=device), randn(1, 2, 5, 8, device=device)
    expected = F.scaled_dot_product_attention(q, k, k, attn_mask=make(3, 5))
    torch.testing.assert_close(torch_ext.attention(q, k, k, make(3, 5)), expected)
    with pytest.raises(RuntimeError, match=r"^xgemm::attention: expected attn_mask for 3 queries and 5 keys, got one "):
        torch_ext.attention(q, k, k, make(3, 4))
    with pytest.raises(RuntimeError, match="expected attn_mask or is_causal, got both"):
        torch_ext.attention(q, k, k, make(3, 5), is_causal=True)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_cpu_keeps_fp32_whatever_torchs_precision_is(float32_precision, precision: str) -> None:
    q, k, v = randn(2, 3, 70, 64), randn(2, 3, 80, 64), randn(2, 3, 80, 64)
    lower = randn(2, 3, 80, 32)
    float32_precision(precision)
    check(q, k, v)
    check(q, k, lower)
    check(q, k, v, is_causal=True, causal_alignment="bottom_right")
    if precision == "medium" and torch.ops.mkldnn._is_mkldnn_bf16_supported():  # ATen's fp32 may be bf16: ours is fp64
        wide = F.scaled_dot_product_attention(*(x.double() for x in (q, k, v)))
        assert torch.equal(attention(q, k, v), wide.float())


@pytest.mark.parametrize("dtype", FLOATING)
def test_cpu_gives_the_same_in_every_precision(float32_precision, dtype: torch.dtype) -> None:
    args = qkv(dtype, "cpu")
    expected = torch_ext.attention(*args, is_causal=True, return_lse=True)
    for precision in ("highest", "ieee", "high", "medium"):
        actual = torch_ext.attention(*args, is_causal=True, precision=precision, return_lse=True)
        assert all(map(torch.equal, actual, expected))
    float32_precision("high")
    check(*args, precision="medium")


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING)
def test_same_bits_every_time(dtype: torch.dtype) -> None:
    for sq, sk, causal in [(300, 300, True), (1, 9000, False), (3, 70000, False)]:
        args = qkv(dtype, "cuda", sq=sq, sk=sk)
        first = attention_lse(*args, is_causal=causal)
        for _ in range(5):
            poison("cuda")
            again = attention_lse(*args, is_causal=causal)
            assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("d", [64, 96, 128, 256])
def test_many_tiles_have_the_same_bits_every_time(dtype: torch.dtype, d: int) -> None:
    """Several tiles of rows and keys per CTA, some fully masked: a slot that is overwritten too early changes bits."""
    q, k, v = qkv(dtype, "cuda", sq=1000, sk=1104, d=d, batch=(2, 16))
    keep = torch.rand(1000, 1104, device="cuda") < 0.7
    keep[:400, 300:700] = False
    masks = [None, keep, *(torch.where(keep, 0.5, -torch.inf).to(mask_dtype) for mask_dtype in {dtype, torch.float32})]
    for mask in masks:
        for precision in ("highest", "high") if dtype is torch.float32 else ("highest",):
            first = attention_lse(q, k, v, attn_mask=mask, precision=precision)
            for _ in range(50):
                again = attention_lse(q, k, v, attn_mask=mask, precision=precision)
                assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING)
def test_bits_do_not_depend_on_strides_of_zero(dtype: torch.dtype) -> None:
    """One query for all positions or heads, one key or value for all positions: as if each had its own."""
    for sq in (4, 70):
        q, k, v = qkv(dtype, "cuda", sq=sq, sk=100, batch=(2, 4))
        for args in (
            *((q[:, :, :1].expand_as(q), k, v), (q[:, :1].expand_as(q), k[:, :2], v[:, :2])),
            *((q, k[:, :, :1].expand_as(k), v), (q, k, v[:, :, :1].expand_as(v))),
        ):
            got = attention_lse(*args, enable_gqa=True)
            wanted = attention_lse(*(x.contiguous() for x in args), enable_gqa=True)
            assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


# ---- the GPU as a whole ------------------------------------------------------------------------------------


def peak_beyond_inputs(length: int, **options: object) -> int:
    args = qkv(torch.float32, "cuda", sq=length, sk=length, batch=(1, 1))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attention_lse(*args, **options)
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.cuda
def test_memory_grows_with_the_length_only() -> None:
    for causal in (False, True):
        short, long = (peak_beyond_inputs(length, is_causal=causal) for length in (8192, 65536))
        assert long <= 8.5 * short, (short, long)


def test_cpu_memory_is_not_quadratic() -> None:
    args = qkv(torch.float32, "cpu", sq=4096, sk=4096, d=8, batch=(1,))
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        attention(*args)
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert 0 < largest <= 4096 * 4096, largest  # Sq x Sk would be four times that in bytes


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": True}])
@pytest.mark.parametrize(("sq", "sk"), [(200, 300), (1, 9000)])
def test_graph_capture(options: dict[str, bool], sq: int, sk: int, dtype: torch.dtype) -> None:
    args = qkv(dtype, "cuda", sq=sq, sk=sk)
    if "attn_mask" in options:
        options = {"attn_mask": torch.rand(sq, sk, device="cuda") < 0.5}
    check_replays(lambda: attention_lse(*args, **options), *args, replays=3)


@pytest.mark.cuda
def test_side_stream() -> None:
    for sq, sk in [(200, 300), (1, 9000)]:
        check_side_stream(attention, *qkv(torch.float32, "cuda", sq=sq, sk=sk))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING)
def test_only_our_kernels_run(dtype: torch.dtype) -> None:
    for sq, sk in [(100, 100), (1, 9000)]:
        args = qkv(dtype, "cuda", sq=sq, sk=sk)
        for options in ({}, {"is_causal": True}, {"attn_mask": torch.rand(sq, sk, device="cuda") < 0.5}):
            names = kernels_of(functools.partial(attention_lse, *args, **options))
            assert names and all("xgemm" in name for name in names), names


@pytest.mark.cuda
def test_offsets_beyond_32_bits() -> None:
    """Row strides, batch offsets and mask offsets over 2^31 elements."""
    free, _ = torch.cuda.mem_get_info()
    if free < 16 << 30:
        pytest.skip("needs 16 GiB of free GPU memory")
    dtype, d = torch.float16, 64
    storage = torch.zeros((1 << 32) + 4096, dtype=dtype, device="cuda")  # 8 GiB
    stride = (1 << 32) // 130
    q, k, v = qkv(dtype, "cuda", sq=130, sk=130, d=d, batch=())
    wide = [storage.as_strided((130, d), (stride, 1), offset) for offset in (0, 1024, 2048)]
    batched = [storage.as_strided((2, 130, d), (1 << 31, d, 1), offset) for offset in (0, 1 << 14, 1 << 15)]
    for views, tensors in ((wide, (q, k, v)), (batched, qkv(dtype, "cuda", sq=130, sk=130, d=d, batch=(2,)))):
        for view, x in zip(views, tensors, strict=True):
            view.copy_(x)
        assert torch.equal(attention(*views), attention(*tensors))
    mask = storage.as_strided((130, 130), (stride, 1), 0).copy_(randn(130, 130, dtype=dtype, device="cuda"))
    assert torch.equal(attention(q, k, v, attn_mask=mask), attention(q, k, v, attn_mask=mask.contiguous()))
