"""attention_with_cache against float64: caches in one piece and in pages, with and without new keys."""

import random

import pytest
import torch
from common import FLOATING, poison, randn
from sequences import HEAD_SIZES, HEADS, by_sequence, check, in_pages, int32, options_of, spread

import torch_ext

with_cache = torch.ops.xgemm.attention_with_cache_lse


def stacked(q: torch.Tensor, seen: list, **options) -> tuple[torch.Tensor, torch.Tensor]:
    output, lse = by_sequence(q, seen, **options)
    return torch.stack(output), torch.stack(lse)


def followed_by_nan(x: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.cat([x, x.new_full((rows - len(x), *x.shape[1:]), torch.nan)])


def rows_of(cache: torch.Tensor, table: torch.Tensor | None, i: int) -> torch.Tensor:
    return cache[i] if table is None else cache[table[i].clamp(0, len(cache) - 1).long()].flatten(0, 1)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_against_float64(seed: int, dtype: torch.dtype, device: torch.device) -> None:
    rng = random.Random(seed + 1000 * FLOATING.index(dtype))
    (heads, shared), (d, dv) = rng.choice(HEADS), rng.choice(HEAD_SIZES)
    count, sq, new = rng.randint(1, 4), rng.choice([1, 1, 2, 5, 17, 65]), rng.choice([0, 1, 1, 3, 70])
    before = [rng.choice([0, 1, 15, 16, 17, 63, 64, 65, 127, rng.randrange(300)]) for _ in range(count)]
    room = max(before) + new + rng.randrange(20)
    options = options_of(rng, heads, dtype, device)
    q = randn(count, sq, heads, d, dtype=dtype, device=device)
    filled = [[randn(n, shared, size, dtype=dtype, device=device) for size in (d, dv)] for n in before]
    added = [randn(count, new, shared, size, dtype=dtype, device=device) for size in (d, dv)]
    seen = [[torch.cat([t, x[i]]) for t, x in zip(kv, added, strict=True)] for i, kv in enumerate(filled)]
    wanted = stacked(q, seen, **options)
    paged = rng.random() < 0.6
    page = rng.choice([1, 16, 16, 64, 48]) if paged else max(room, 1)
    columns = -(-max(room, 1) // page)
    whole = [[followed_by_nan(t, columns * page) for t in kv] for kv in filled]
    caches, table = [torch.stack(t) for t in zip(*whole, strict=True)], None
    if paged:
        caches, table = in_pages(whole, page, columns, rng)
    caches = [spread(t, rng) for t in caches]
    lengths, bits = int32(before, device), [t.clone() for t in caches]
    given = options | ({"key": spread(added[0], rng), "value": spread(added[1], rng)} if new else {})
    given |= {} if table is None else {"block_table": table}
    poison(device)
    results = with_cache(spread(q, rng), *caches, lengths, **given)
    check(results, wanted, dtype)
    assert lengths.tolist() == before
    for cache, was, x in zip(caches, bits, added, strict=True):  # the new rows are there, and nothing else has changed
        for i, n in enumerate(before):
            rows, old = rows_of(cache, table, i), rows_of(was, table, i)
            assert torch.equal(rows[n : n + new], x[i])
            assert torch.equal(rows[:n], old[:n]) and rows[n + new :].isnan().all()
    again = {name: value for name, value in given.items() if name not in ("key", "value")}
    two_calls = torch_ext.attention_with_cache(q, *caches, lengths + new, **again, return_lse=True)
    bound = 2e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-5
    torch.testing.assert_close(two_calls, results, rtol=bound, atol=bound)


def test_a_table_that_repeats_pages(device: torch.device) -> None:
    q, pages = randn(3, 2, 4, 32, device=device), [randn(6, 16, 2, 32, device=device) for _ in "kv"]
    table, lengths = int32([[4, 1, 2], [4, 1, 5], [4, 4, 1]], device), int32([40, 48, 33], device)
    results = with_cache(q, *pages, lengths, block_table=table, is_causal=True)
    seen = [[rows_of(t, table, i)[:n] for t in pages] for i, n in enumerate(lengths.tolist())]
    check(results, stacked(q, seen, is_causal=True), q.dtype)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("page", [0, 1, pytest.param(16, marks=pytest.mark.sanitize), 24, 64, 256])
def test_latent_cache(page: int, dtype: torch.dtype, device: torch.device) -> None:
    """DeepSeek's: one key head for all query heads, whose first columns are the values. A page of 0: no table."""
    rng = random.Random(page)
    before, sq, heads = [0, 5, 63, 64, rng.randrange(400)], rng.choice([1, 3]), rng.choice([16, 96, 128])
    options = {"is_causal": True, "scale": 0.07, "sinks": rng.choice([None, randn(heads, device=device)])}
    q = randn(len(before), sq, heads, 576, dtype=dtype, device=device)
    filled = [randn(n, 1, 576, dtype=dtype, device=device) for n in before]
    new = randn(len(before), sq, 1, 576, dtype=dtype, device=device)
    seen = [torch.cat([t, x]) for t, x in zip(filled, new, strict=True)]
    wanted = stacked(q, [[t, t[..., :512]] for t in seen], **options)
    rows, columns = page or 450, -(-450 // page) if page else 1
    whole = [followed_by_nan(t, columns * rows) for t in filled]
    cache, table = torch.stack(whole), None
    if page:
        (cache, _), table = in_pages([[t, t] for t in whole], page, columns, rng)
    lengths = int32(before, device)
    poison(device)
    given = options | {"block_table": table, "key": new, "value": new[..., :512]}
    check(with_cache(q, cache, cache[..., :512], lengths, **given), wanted, dtype)
    for i, t in enumerate(seen):
        assert torch.equal(rows_of(cache, table, i)[: len(t)], t)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_bits_of_a_latent_cache(dtype: torch.dtype) -> None:
    """In the batch-invariant mode: alone, among others, on pages of any size."""
    device, lengths = torch.device("cuda"), [5, 260, 1300]
    q = randn(3, 2, 128, 576, dtype=dtype, device=device)
    parts = [[randn(n, 1, 576, dtype=dtype, device=device)] * 2 for n in lengths]
    used, results = int32(lengths, device), []
    with torch_ext.batch_invariant():
        for page, columns in ((1, 1400), (24, 60), (64, 21), (256, 9)):
            (cache, _), table = in_pages(parts, page, columns, random.Random(page))
            results.append(with_cache(q, cache, cache[..., :512], used, block_table=table, is_causal=True))
        cache = torch.nn.utils.rnn.pad_sequence([k for k, _ in parts], batch_first=True)
        results.append(with_cache(q, cache, cache[..., :512], used, is_causal=True))
        caches = cache, cache[..., :512]
        alone = [with_cache(*(t[i : i + 1] for t in (q, *caches, used)), is_causal=True) for i in range(3)]
        results.append(tuple(map(torch.cat, zip(*alone, strict=True))))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=0, atol=0)


def test_autograd_sees_the_writing(device: torch.device) -> None:
    """A cache that a backward still needs has changed; one that requires grad is refused."""
    caches, q = [torch.zeros(1, 4, 2, 8, device=device) for _ in "kv"], randn(1, 1, 2, 8, device=device)
    none = int32([0], device)
    for call in (torch.ops.xgemm.attention_with_cache, torch_ext.attention_with_cache):
        x = randn(1, 4, 2, 8, device=device).requires_grad_()
        product = (x * caches[0]).sum()
        call(q, *caches, none)
        product.backward(retain_graph=True)
        call(q, *caches, none, key=q, value=q)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
        with pytest.raises(RuntimeError, match=r"attention_with_cache: has no backward"):
            call(q, caches[0].clone().requires_grad_(), caches[1], none, key=q, value=q)
    with torch.inference_mode():
        torch_ext.attention_with_cache(q, *(t.clone() for t in caches), none, key=q, value=q)


def test_lazily_negated_tensors(device: torch.device) -> None:
    negated = torch.complex(*(randn(1, 3, 2, 8, device=device) for _ in "ri")).conj().imag
    plain, lengths = negated.clone(), int32([3], device)
    assert negated.is_neg() and not plain.is_neg()
    for call in (torch.ops.xgemm.attention_with_cache, torch_ext.attention_with_cache):
        assert torch.equal(call(negated, negated, negated, lengths), call(plain, plain, plain, lengths))
        with pytest.raises(RuntimeError, match=r"^xgemm::attention_with_cache: expected caches to write to"):
            call(plain, negated, plain, lengths - 1, key=plain[:, :1], value=plain[:, :1])


def test_compiled_appending(device: torch.device) -> None:
    def step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch_ext.attention_with_cache(q * 2, k, v, lengths, key=q, value=q, is_causal=True) + 1

    caches, q = [torch.zeros(2, 9, 2, 8, device=device) for _ in "kv"], randn(2, 1, 2, 8, device=device)
    copies, compiled = [t.clone() for t in caches], torch.compile(step, fullgraph=True, backend="aot_eager")
    for n in range(3):
        lengths = int32([n, 2 * n], device)
        torch.testing.assert_close(compiled(q + n, *copies, lengths), step(q + n, *caches, lengths))
    assert torch.equal(copies[0], caches[0]) and caches[0].count_nonzero() > 0


BAD = [
    ({"query": randn(2, 4, 8)}, r"query of shape \(sequences, length, heads, head size\)"),
    ({"key_cache": randn(2, 6, 2, 7)}, "query and key_cache of one head size"),
    ({"value_cache": randn(2, 5, 2, 8)}, "key_cache and value_cache of one shape"),
    ({"cache_seqlens": torch.tensor([2, 0])}, "cache_seqlens of dtype int32, got int64"),
    ({"cache_seqlens": int32([2], "cpu")}, "cache_seqlens of 2 elements"),
    ({"query": randn(3, 1, 4, 8), "cache_seqlens": int32([0] * 3, "cpu")}, "key_cache of 3 sequences, as query, got 2"),
    ({"value": None}, "key and value, or neither, got key alone"),
    ({"key": randn(2, 1, 3, 8)}, r"key of shape \(sequences, new, heads, head size\)"),
    ({"value": randn(2, 2, 2, 8)}, r"value of shape \(sequences, new, heads, head size\)"),
    ({"value": randn(2, 1, 2, 8).double()}, "query and value of one dtype"),
    # what only the operator itself can know
    ({"key_cache": randn(2, 1, 2, 8).expand(2, 6, 2, 8)}, "key_cache whose rows do not share memory"),
    ({"key": randn(2, 7, 2, 8), "value": randn(2, 7, 2, 8)}, "as many new keys as the cache has room for, 6, got 7"),
    ({"cache_seqlens": int32([0, 6], "cpu")}, r"cache_seqlens in \[0, 5\], got 6 of sequence 1"),
    ({"block_table": int32([[0], [2]], "cpu")}, r"block_table in \[0, 2\), got 2 of sequence 1"),
    ({"block_table": int32([[0]], "cpu")}, "block_table of 2 rows"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message for _, message in BAD])
def test_errors(change: dict, message: str) -> None:
    """In one line, and before anything is written."""
    given = {"query": randn(2, 1, 4, 8), "key_cache": randn(2, 6, 2, 8), "value_cache": randn(2, 6, 2, 8)}
    given |= {"cache_seqlens": int32([2, 0], "cpu"), "key": randn(2, 1, 2, 8), "value": randn(2, 1, 2, 8)} | change
    before = given["value_cache"].clone()
    for call in (torch.ops.xgemm.attention_with_cache, torch_ext.attention_with_cache):
        with pytest.raises(RuntimeError, match=f"^xgemm::attention_with_cache: expected .*{message}") as raised:
            call(**given)
        assert "\n" not in str(raised.value) and torch.equal(given["value_cache"], before)


@pytest.mark.cuda
@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_one_graph_serves_all_steps(dtype: torch.dtype, paged: bool) -> None:
    device, steps, page = torch.device("cuda"), 40, 16
    start, room = [0, 15, 130, 500], 544
    q, k, v = (randn(4, 1, h, 64, dtype=dtype, device=device) for h in (8, 2, 2))
    caches = [randn(4, room, 2, 64, dtype=dtype, device=device) for _ in "kv"]
    table = torch.randperm(4 * room // page, device=device).int().view(4, -1) if paged else None
    if paged:
        caches = [t.view(-1, page, 2, 64) for t in caches]
    lengths = int32(start, device)
    options = {"key": k, "value": v, "block_table": table, "is_causal": True}
    with_cache(q, *caches, lengths, **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = with_cache(q, *caches, lengths, **options)
        lengths += 1
    lengths.copy_(int32(start, device))
    for step in range(steps):
        for t in (q, k, v):
            t.copy_(randn(*t.shape, dtype=dtype, device=device))
        graph.replay()
        if step % 13 == 0:
            ends = [n + step + 1 for n in start]
            seen = [[rows_of(t, table, i)[:n] for t in caches] for i, n in enumerate(ends)]
            assert torch.equal(seen[1][0][-1], k[1, 0])
            check(results, stacked(q, seen), dtype)
    assert lengths.tolist() == [n + steps for n in start]


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("sq", [1, 20])
def test_batch_invariant_bits(sq: int, dtype: torch.dtype) -> None:
    """A sequence alone and among others, on pages of any size and number, in caches of any length."""
    device, lengths = torch.device("cuda"), [5, 260, 1300]
    q = randn(3, sq, 8, 64, dtype=dtype, device=device)
    parts = [[randn(n + sq, 2, 64, dtype=dtype, device=device) for _ in "kv"] for n in lengths]
    used, results = int32([n + sq for n in lengths], device), []
    with torch_ext.batch_invariant():
        for page, columns in ((16, 90), (64, 21), (256, 9)):
            kv, table = in_pages(parts, page, columns, random.Random(page))
            results.append(with_cache(q, *kv, used, block_table=table, is_causal=True))
        caches = [torch.nn.utils.rnn.pad_sequence(t, batch_first=True) for t in zip(*parts, strict=True)]
        results.append(with_cache(q, *caches, used, is_causal=True))
        alone = [with_cache(*(t[i : i + 1] for t in (q, *caches, used)), is_causal=True) for i in range(3)]
        results.append(tuple(map(torch.cat, zip(*alone, strict=True))))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=0, atol=0)


def test_more_splits_than_a_warp_has_lanes(device: torch.device) -> None:
    """One sequence and one key head: 78 splits on an H200. A split that is merged twice shows in the log-sum-exp."""
    sizes = (1, 8), (20000, 1), (20000, 1)
    q, k, v = (randn(1, *size, 128, dtype=torch.bfloat16, device=device) for size in sizes)
    _, lse = with_cache(q, k, v, int32([19990], device))
    _, expected = stacked(q, [[k[0, :19990], v[0, :19990]]])
    torch.testing.assert_close(lse.double(), expected, rtol=0, atol=1e-3)


@pytest.mark.cuda
def test_more_than_two_billion_elements() -> None:
    """A page behind element 2^31, and the strides of a cache of such a size."""
    device, page = torch.device("cuda"), 256
    count = (1 << 31) // (page * 2 * 64) + 8
    pages = [torch.empty(count, page, 2, 64, dtype=torch.bfloat16, device=device) for _ in "kv"]
    table, lengths = int32([[count - 1, 0], [3, count - 2]], device), int32([300, 511], device)
    for t in pages:
        t[table.flatten().long()] = randn(4, page, 2, 64, dtype=torch.bfloat16, device=device)
    q, new = (randn(2, 1, heads, 64, dtype=torch.bfloat16, device=device) for heads in (8, 2))
    results = with_cache(q, *pages, lengths, key=new, value=new, block_table=table)
    seen = [[rows_of(t, table, i)[: n + 1] for t in pages] for i, n in enumerate(lengths.tolist())]
    assert torch.equal(seen[1][0][-1], new[1, 0])
    check(results, stacked(q, seen), q.dtype)
    rows = [t.flatten(0, 1)[None].expand(1, -1, 2, 64) for t in pages]
    long = with_cache(q[:1], *rows, int32([rows[0].shape[1]], device), window=[199, 0])
    check(long, stacked(q[:1], [[t[0, -200:] for t in rows]]), q.dtype)


@pytest.mark.cuda
@pytest.mark.sanitize
@pytest.mark.parametrize("sq", [1, 20])
def test_lengths_and_tables_out_of_range(sq: int) -> None:
    device, huge = torch.device("cuda"), 1 << 30
    around = [torch.full((8, 16, 2, 64), 7.0, dtype=torch.bfloat16, device=device) for _ in "kv"]
    caches = [t[2:6].copy_(randn(4, 16, 2, 64, dtype=torch.bfloat16, device=device)) for t in around]
    q = randn(4, sq, 8, 64, dtype=torch.bfloat16, device=device)
    new = randn(4, 1, 2, 64, dtype=torch.bfloat16, device=device)
    table = int32([[3, 1], [-1, huge], [0, -huge], [0, 2]], device)
    lengths = int32([20, 20, huge, -huge], device)
    results = with_cache(q, *caches, lengths, key=new, value=new, block_table=table)
    seen = [[rows_of(t, table, 0)[:21] for t in caches]]
    check(tuple(t[:1].contiguous() for t in results), stacked(q[:1], seen), q.dtype)
    assert all((t[:2] == 7).all() and (t[6:] == 7).all() for t in around)
    assert results[0].isfinite().all()
