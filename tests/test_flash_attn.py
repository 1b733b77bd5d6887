"""torch_ext.flash_attn and flash_attn_interface against FlashAttention's definition in float64."""

import inspect
import itertools
import random
import re

import pytest
import torch
from common import FLOATING, randn
from flash_conventions import flash_logsumexp, reference
from sequences import ends, in_pages, int32
from torch._subclasses.fake_tensor import FakeTensorMode

import torch_ext.flash_attn as fa2
import torch_ext.flash_attn_interface as fa3

TOLERANCES = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
OPTIONS = [
    *({}, {"causal": True}, {"softmax_scale": 0.3}, {"window_size": (5, 3)}, {"window_size": (-1, 2)}),
    *({"window_size": (4, -1)}, {"causal": True, "window_size": (6, 9)}, {"causal": True, "softcap": 5.0}),
]


def inputs(device, dtype=torch.float32, *, b=2, sq=19, sk=19, h=4, hk=4, d=24, dv=24) -> tuple[torch.Tensor, ...]:
    shapes = ((b, sq, h, d), (b, sk, hk, d), (b, sk, hk, dv))
    return tuple(randn(*shape, dtype=dtype, device=device) for shape in shapes)


def expected(q, k, v, *, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0):
    options = {"scale": softmax_scale, "causal": causal, "window": window_size, "softcap": softcap}
    output, logsumexp = reference(*(t.transpose(1, 2) for t in (q, k, v)), **options)
    return output.transpose(1, 2), logsumexp


def check(actual: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(actual.double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("lengths", [(19, 19), (7, 33), (33, 7), (1, 40), (0, 5), (5, 0)], ids=str)
@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1)], ids=str)
def test_against_float64(device: torch.device, lengths: tuple, heads: tuple, options: dict) -> None:
    q, k, v = inputs(device, sq=lengths[0], sk=lengths[1], h=heads[0], hk=heads[1])
    output, logsumexp = expected(q, k, v, **options)
    actual, lse, probabilities = fa2.flash_attn_func(q, k, v, return_attn_probs=True, **options)
    assert actual.is_contiguous() and actual.dtype is q.dtype and probabilities.shape == (0,)
    check(actual, output, q.dtype)
    check(lse, flash_logsumexp(logsumexp).double(), q.dtype)
    alone = fa2.flash_attn_func(q, k, v, **options)
    torch.testing.assert_close(alone, actual, rtol=0, atol=1e-6)

    actual, lse = fa3.flash_attn_func(q, k, v, return_attn_probs=True, **options)
    check(actual, output, q.dtype)
    check(lse, logsumexp, q.dtype)
    torch.testing.assert_close(fa3.flash_attn_func(q, k, v, **options), alone, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_dtypes_and_head_sizes(device: torch.device, dtype: torch.dtype) -> None:
    for sizes in ((64, 64), (13, 40), (192, 128)):
        q, k, v = inputs(device, dtype, d=sizes[0], dv=sizes[1])
        output, logsumexp, _ = fa2.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
        wanted = expected(q, k, v, causal=True)
        assert (output.dtype, logsumexp.dtype) == (dtype, torch.float64 if dtype is torch.float64 else torch.float32)
        check(output, wanted[0], dtype)
        check(logsumexp, wanted[1], dtype)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_packed_forms(device: torch.device, options: dict) -> None:
    q, k, v = inputs(device, sq=9, h=6, hk=2)
    for with_lse in (False, True):
        wanted = fa2.flash_attn_func(q, k, v, return_attn_probs=with_lse, **options)
        packed = fa2.flash_attn_kvpacked_func(q, torch.stack([k, v], 2), return_attn_probs=with_lse, **options)
        torch.testing.assert_close(packed, wanted, rtol=0, atol=0)
    q, k, v = inputs(device)
    qkv, heads_side_by_side = torch.stack([q, k, v], 2), torch.cat([q, k[:, :, :2], v[:, :, :2]], 2)
    grouped = (q, k[:, :, :2].contiguous(), v[:, :, :2].contiguous())
    for module in (fa2, fa3):
        wanted = module.flash_attn_func(q, k, v, return_attn_probs=True, **options)
        packed = module.flash_attn_qkvpacked_func(qkv, return_attn_probs=True, **options)
        torch.testing.assert_close(packed, wanted, rtol=0, atol=0)
        wanted = module.flash_attn_func(*grouped, **options)
        packed = module.flash_attn_qkvpacked_func(heads_side_by_side, num_heads_q=4, **options)
        torch.testing.assert_close(packed, wanted, rtol=0, atol=0)


def test_layouts_give_a_contiguous_output(device: torch.device) -> None:
    q, k, v = inputs(device)
    wanted = fa2.flash_attn_func(q, k, v, causal=True)
    heads_first = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    output = fa2.flash_attn_func(*heads_first, causal=True)
    assert output.is_contiguous()
    torch.testing.assert_close(output, wanted, rtol=0, atol=1e-6)


def test_signatures() -> None:
    """The order of arguments of FlashAttention 2.8 and 3; a program may pass all of them by position."""
    common = "dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic return_attn_probs"
    for name, packed in (("", "q k v"), ("_kvpacked", "q kv"), ("_qkvpacked", "qkv")):
        parameters = inspect.signature(getattr(fa2, f"flash_attn{name}_func")).parameters.values()
        by_position = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        assert by_position == f"{packed} {common}".split()
    descales = "q_descale k_descale v_descale window_size attention_chunk softcap"
    for name, parameters in (
        ("", f"q k v softmax_scale causal qv {descales} num_splits pack_gqa deterministic"),
        ("_qkvpacked", f"qkv softmax_scale causal {descales} deterministic num_heads_q"),
    ):
        signature = inspect.signature(getattr(fa3, f"flash_attn{name}_func"))
        assert list(signature.parameters) == [*parameters.split(), "sm_margin", "return_attn_probs"]
    q, k, v = inputs("cpu")
    window = (5, 3)
    wanted = fa2.flash_attn_func(q, k, v, softmax_scale=0.3, window_size=window, softcap=4.0)
    by_position = fa2.flash_attn_func(q, k, v, 0.0, 0.3, False, window, 4.0, None, True, False)
    torch.testing.assert_close(by_position, wanted, rtol=0, atol=0)
    by_position = fa3.flash_attn_func(q, k, v, 0.3, False, None, None, None, None, window, 0, 4.0, 1, None, True, 0)
    torch.testing.assert_close(by_position, wanted, rtol=0, atol=0)


def test_arguments_of_flash_attention_3_by_name() -> None:
    q, k, v = inputs("cpu")
    options = {"qv": None, "q_descale": None, "num_splits": 4, "pack_gqa": True, "sm_margin": 8}
    output = fa2.flash_attn_func(q, k, v, causal=True, **options)
    torch.testing.assert_close(output, fa2.flash_attn_func(q, k, v, causal=True), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dropout_p": 0.1}, ValueError, "flash_attn_func: expected dropout_p of 0, got 0.1"),
        ({"alibi_slopes": torch.ones(4)}, NotImplementedError, "flash_attn_func: has no ALiBi"),
        ({"qv": torch.ones(1)}, NotImplementedError, "flash_attn_func: has no qv"),
        ({"k_descale": torch.ones(1)}, NotImplementedError, "flash_attn_func: has no k_descale"),
        ({"attention_chunk": 64}, NotImplementedError, "flash_attn_func: has no chunks, got attention_chunk=64"),
        ({"block_table": None}, TypeError, "flash_attn_func: got an unexpected argument 'block_table'"),
        ({"dropout_p": None, "softmax_scale": True}, TypeError, "flash_attn_func: got FlashAttention 3's order"),
        ({"softcap": float("inf")}, RuntimeError, "xgemm::attention: expected a finite softcap"),
        ({"window_size": (1, 2, 3)}, RuntimeError, "xgemm::attention: expected window"),
        ({"window_size": 5}, TypeError, "flash_attn: expected window_size of two numbers of keys"),
        ({"window_size": (None, 3)}, TypeError, "flash_attn: expected window_size of two numbers of keys"),
    ],
    ids=str,
)
def test_what_there_is_not(arguments: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)) as raised:
        fa2.flash_attn_func(*inputs("cpu"), **arguments)
    assert type(raised.value) is error and "\n" not in str(raised.value)
    if arguments.keys() <= inspect.signature(fa3.flash_attn_func).parameters.keys():
        with pytest.raises(error, match=re.escape(message)):
            fa3.flash_attn_func(*inputs("cpu"), **arguments)


def test_bad_tensors() -> None:
    q, k, v = inputs("cpu")
    with pytest.raises(ValueError, match=r"flash_attn_func: expected k of shape \(B, S, H, D\), got \[19, 4, 24\]"):
        fa2.flash_attn_func(q, k[0], v)
    with pytest.raises(ValueError, match=r"flash_attn_kvpacked_func: expected kv of shape \(B, S, 2, H, D\)"):
        fa2.flash_attn_kvpacked_func(q, torch.stack([k, v, v], 2))
    with pytest.raises(ValueError, match=r"flash_attn_qkvpacked_func: expected qkv of shape \(B, S, 3, H, D\)"):
        fa3.flash_attn_qkvpacked_func(q)
    with pytest.raises(ValueError, match=r"flash_attn_qkvpacked_func: expected qkv of shape \(B, S, 4 \+ 2 Hk, D\)"):
        fa2.flash_attn_qkvpacked_func(q, num_heads_q=4)
    with pytest.raises(RuntimeError, match=r"multiple of key heads.*4 and 3"):
        fa2.flash_attn_func(q, k[:, :, :3], v[:, :, :3])
    with pytest.raises(RuntimeError, match="query of dtype float32, float16, bfloat16, float64, got float8_e4m3fn"):
        fa2.flash_attn_func(*(t.to(torch.float8_e4m3fn) for t in (q, k, v)))
    with pytest.raises(RuntimeError, match=r"has no backward.*requires grad"):
        fa3.flash_attn_func(q.requires_grad_(), k, v)
    with torch.no_grad():
        fa3.flash_attn_func(q, k, v)


QUERIES, KEYS = [3, 0, 9, 1], [5, 4, 7, 0]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_packed_sequences(device: torch.device, options: dict) -> None:
    q, k, v = (randn(sum(n), h, 24, device=device) for n, h in ((QUERIES, 6), (KEYS, 2), (KEYS, 2)))
    offsets = (ends(QUERIES, device), ends(KEYS, device), max(QUERIES), max(KEYS))
    each = zip(q.split(QUERIES), k.split(KEYS), v.split(KEYS), strict=True)
    wanted = [expected(*(t[None] for t in one), **options) for one in each]
    output, lse = torch.cat([o[0] for o, _ in wanted]), torch.cat([x[0] for _, x in wanted], 1)
    actual, logsumexp, probabilities = fa2.flash_attn_varlen_func(q, k, v, *offsets, return_attn_probs=True, **options)
    check(actual, output, q.dtype)
    check(logsumexp, flash_logsumexp(lse).double(), q.dtype)
    assert actual.is_contiguous() and probabilities.shape == (0,)
    third, logsumexp = fa3.flash_attn_varlen_func(q, k, v, *offsets, return_attn_probs=True, **options)
    torch.testing.assert_close(third, actual, rtol=0, atol=0)
    check(logsumexp, lse, q.dtype)

    kv = torch.stack([k, v], 1)
    packed = fa2.flash_attn_varlen_kvpacked_func(q, kv, *offsets, **options)
    torch.testing.assert_close(packed, fa2.flash_attn_varlen_func(q, k, v, *offsets, **options), rtol=0, atol=1e-6)
    qkv = torch.stack([k, k, v], 1)
    packed = fa2.flash_attn_varlen_qkvpacked_func(qkv, *offsets[1::2], **options)
    own = fa2.flash_attn_varlen_func(k, k, v, *offsets[1:2] * 2, *offsets[3:] * 2, **options)
    torch.testing.assert_close(packed, own, rtol=0, atol=1e-6)

    (keys, values), table = in_pages([x.unbind(1) for x in kv.split(KEYS)], 4, 2, random.Random(sum(KEYS)))
    check(fa2.flash_attn_varlen_func(q, keys, values, *offsets, block_table=table, **options), output, q.dtype)
    packed = {"cache_seqlens": int32(KEYS, device), "cu_seqlens_q": offsets[0], "max_seqlen_q": offsets[2]}
    check(fa3.flash_attn_with_kvcache(q, keys, values, page_table=table, **packed, **options), output, q.dtype)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("new", [0, 2])
def test_caches(device: torch.device, new: int, options: dict) -> None:
    lengths, rows = [5, 0, 8], 12
    q, k, v = inputs(device, b=3, sq=3, sk=new, h=6, hk=2)
    filled = [randn(3, rows, 2, 24, device=device) for _ in "kv"]
    unused = torch.arange(rows, device=device) >= int32(lengths, device)[:, None]
    caches = [x.masked_fill(unused[..., None, None], torch.nan) for x in filled]
    seen = [[torch.cat([c[i, :n], x[i]])[None] for c, x in zip(filled, (k, v), strict=True)]
            for i, n in enumerate(lengths)]  # fmt: skip
    wanted = [expected(q[i : i + 1], *seen[i], **options) for i in range(3)]
    output, lse = (torch.cat(x) for x in zip(*wanted, strict=True))
    used, appended = int32(lengths, device), {"k": k, "v": v} if new else {}
    for module, table in itertools.product((fa2, fa3), (False, True)):
        keys, values, where = caches[0].clone(), caches[1].clone(), {}
        if table:
            (keys, values), names = in_pages(list(zip(*caches, strict=True)), 4, rows // 4, random.Random(new))
            where = {"block_table" if module is fa2 else "page_table": names}
        actual, logsumexp = module.flash_attn_with_kvcache(
            q, keys, values, **appended, cache_seqlens=used, **where, return_softmax_lse=True, **options
        )
        check(actual, output, q.dtype)
        check(logsumexp, flash_logsumexp(lse).double() if module is fa2 else lse, q.dtype)
        assert used.tolist() == lengths
        if table:
            keys = keys[names.long()].flatten(1, 2)
        for i, n in enumerate(lengths):
            assert torch.equal(keys[i, n : n + new], k[i])
    whole = fa2.flash_attn_with_kvcache(q, *filled, **options)
    torch.testing.assert_close(whole, fa2.flash_attn_func(q, *filled, **options), rtol=1e-5, atol=1e-5)
    some = fa2.flash_attn_with_kvcache(q, *filled, cache_seqlens=7, **options)
    wanted = fa2.flash_attn_func(q, *(x[:, :7] for x in filled), **options)
    torch.testing.assert_close(some, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "name", "arguments", "error", "message"),
    [
        (fa2, "varlen_func", {"seqused_q": torch.ones(1)}, NotImplementedError, "has no seqused_q"),
        (fa2, "varlen_func", {"dropout_p": 0.1}, ValueError, "expected dropout_p of 0"),
        (fa2, "varlen_func", {"colour": 1}, TypeError, "got an unexpected argument 'colour'"),
        (fa3, "varlen_func", {"qv": torch.ones(1)}, NotImplementedError, "has no qv"),
        (fa2, "with_kvcache", {"rotary_cos": torch.ones(1)}, NotImplementedError, "has no rotary_cos"),
        (fa2, "with_kvcache", {"cache_leftpad": torch.ones(1)}, NotImplementedError, "has no cache_leftpad"),
        (fa2, "with_kvcache", {"k": torch.ones(1)}, ValueError, "expected cache_seqlens with k, got None"),
        (fa2, "with_kvcache", {"cache_seqlens": 2.5}, TypeError, "expected cache_seqlens to be .*, got float"),
        (fa2, "with_kvcache", {"cache_seqlens": [19]}, TypeError, "expected cache_seqlens to be .*, got list"),
        (fa3, "with_kvcache", {"cu_seqlens_k_new": torch.ones(1)}, NotImplementedError, "has no cu_seqlens_k_new"),
        (fa3, "with_kvcache", {"cu_seqlens_q": torch.ones(1)}, ValueError, "expected max_seqlen_q with cu_seqlens_q"),
        (fa3, "with_kvcache", {name: torch.ones(1) for name in ("v", "cu_seqlens_q")}, NotImplementedError, "appends"),
    ],
    ids=str,
)
def test_sequences_that_are_refused(module, name: str, arguments: dict, error: type[Exception], message: str) -> None:
    q, k, v = inputs("cpu")
    given = (q[0], k[0], v[0], *[ends([19], "cpu")] * 2, 19, 19) if name == "varlen_func" else (q, k, v)
    with pytest.raises(error, match=rf"^flash_attn_{name}: {message}.*\Z"):  # one line
        getattr(module, f"flash_attn_{name}")(*given, **arguments)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return fa2.flash_attn_func(q, k, v, causal=True, window_size=(9, -1), softcap=20.0, return_attn_probs=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(device: torch.device, dynamic: bool) -> None:
    compiled = torch.compile(attend, fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        for lengths in ((33, 21), (19, 19), (21, 33)) if dynamic else ((33, 21),):
            q, k, v = inputs(device, sq=lengths[0], sk=lengths[1], hk=2)
            torch.testing.assert_close(compiled(q, k, v), attend(q, k, v), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("lengths", [(19, 19), (33, 7), (1, 40)], ids=str)
def test_fake_metadata(lengths: tuple[int, int]) -> None:
    real = inputs("cpu", torch.bfloat16, sq=lengths[0], sk=lengths[1], hk=2)
    with FakeTensorMode() as mode:
        fakes = attend(*(mode.from_tensor(t) for t in real))
    for fake, result in zip(fakes, attend(*real), strict=True):
        assert (fake.shape, fake.stride(), fake.dtype) == (result.shape, result.stride(), result.dtype)
