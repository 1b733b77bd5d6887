"""attention_varlen against float64, sequence by sequence."""

import random

import pytest
import torch
from common import FLOATING, poison, randn
from sequences import EDGES, HEAD_SIZES, HEADS, by_sequence, check, ends, in_pages, int32, options_of, spread

import torch_ext

varlen = torch.ops.xgemm.attention_varlen_lse


def packed(q: torch.Tensor, parts: list, lengths: list[int], **options) -> tuple[torch.Tensor, torch.Tensor]:
    output, lse = by_sequence(q.split(lengths), parts, **options)
    return torch.cat(output), torch.cat(lse, 1)


def draw(seed: int, dtype: torch.dtype, device: torch.device) -> tuple[tuple, dict, tuple[torch.Tensor, torch.Tensor]]:
    """Arguments, options, and the result in float64. All that no query may see is NaN."""
    rng = random.Random(seed)
    (heads, shared), (d, dv) = rng.choice(HEADS), rng.choice(HEAD_SIZES)
    count = rng.randint(1, 5)
    queries, keys = ([rng.choice([*EDGES, rng.randrange(200)]) for _ in range(count)] for _ in "qk")
    paged, used = rng.random() < 0.4, keys
    options = options_of(rng, heads, dtype, device)
    q = randn(sum(queries), heads, d, dtype=dtype, device=device)
    parts = [[randn(n, shared, size, dtype=dtype, device=device) for size in (d, dv)] for n in keys]
    wanted = packed(q, parts, queries, **options)
    if paged:
        page = rng.choice([1, 16, 16, 64, 48])
        columns = max(1, -(-max(keys) // page) + rng.randrange(2))
        kv, options["block_table"] = in_pages(parts, page, columns, rng)
        options["seqused_k"], cu_seq_k = int32(keys, device), None
    else:
        if rng.random() < 0.4:  # rows behind those in use
            options["seqused_k"] = int32(keys, device)
            used = [n + rng.randrange(5) for n in keys]
            parts = [[torch.cat([t, t.new_full((n - len(t), *t.shape[1:]), torch.nan)]) for t in kv]
                     for kv, n in zip(parts, used, strict=True)]  # fmt: skip
        kv, cu_seq_k = [torch.cat(t) for t in zip(*parts, strict=True)], ends(used, device)
    args = (spread(q, rng), *(spread(t, rng) for t in kv), ends(queries, device), cu_seq_k, max(queries), max(used))
    return args, options, wanted


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_against_float64(seed: int, dtype: torch.dtype, device: torch.device) -> None:
    args, options, wanted = draw(seed + 1000 * FLOATING.index(dtype), dtype, device)
    poison(device)
    results = varlen(*args, **options)
    check(results, wanted, dtype)
    for again in (varlen(*args, **options), torch_ext.attention_varlen(*args, **options, return_lse=True)):
        torch.testing.assert_close(again, results, rtol=0, atol=0)
    alone = torch_ext.attention_varlen(*args, **options)
    torch.testing.assert_close(alone.double(), results[0].double(), rtol=2e-2, atol=2e-2)


@pytest.mark.cuda
@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_many_sequences(dtype: torch.dtype) -> None:
    """Thousands in one launch, most of them short, some empty."""
    device, rng = torch.device("cuda"), random.Random(7)
    lengths = [rng.choice([0, 1, 2, 3, 40]) for _ in range(3000)]
    q, k, v = (randn(sum(lengths), h, 64, dtype=dtype, device=device) for h in (4, 2, 2))
    parts = list(zip(k.split(lengths), v.split(lengths), strict=True))
    offsets = ends(lengths, device)
    results = varlen(q, k, v, offsets, offsets, 40, 40, is_causal=True)
    check(results, packed(q, parts, lengths, is_causal=True), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_neighbours_nan_and_inf(dtype: torch.dtype, device: torch.device) -> None:
    lengths = [20, 33, 7]
    q, k, v = (randn(60, 2, 64, dtype=dtype, device=device) for _ in "qkv")
    offsets = ends(lengths, device)
    before = varlen(q, k, v, offsets, offsets, 33, 33)
    for t, value in ((q, torch.nan), (k, torch.inf), (v, torch.nan)):
        t[20:53] = value
    after = varlen(q, k, v, offsets, offsets, 33, 33)
    apart = [*range(20), *range(53, 60)]
    assert after[0][20:53].isnan().all()
    bound = 1e-5 if dtype is torch.float32 else 1e-2  # fp32 may take another family
    torch.testing.assert_close(after[0][apart], before[0][apart], rtol=bound, atol=bound)
    torch.testing.assert_close(after[1][:, apart], before[1][:, apart], rtol=1e-5, atol=1e-5)


def test_rows_of_no_sequence() -> None:
    q = randn(9, 2, 8)
    output, lse = varlen(q, q, q, int32([2, 5, 7], "cpu"), int32([0, 1, 9], "cpu"), 3, 8)
    assert not output[[0, 1, 7, 8]].any() and (lse[:, [0, 1, 7, 8]] == -torch.inf).all()
    check((output[2:7], lse[:, 2:7].contiguous()), packed(q[2:7], [[q[:1]] * 2, [q[1:]] * 2], [3, 2]), q.dtype)
    assert varlen(q, q, q, int32([0], "cpu"), int32([0], "cpu"), 0, 0)[0].count_nonzero() == 0


BAD = [
    ({"query": randn(1, 5, 4, 8)}, r"query of shape \(tokens, heads, head size\), got shape \[1, 5, 4, 8\]"),
    ({"key": randn(7, 2, 6)}, "query and key of one head size, got 8 and 6"),
    ({"value": randn(6, 2, 8)}, "key and value of one shape but for the head size"),
    ({"key": randn(7, 3, 8), "value": randn(7, 3, 8)}, "multiple of key heads, got 4 and 3"),
    ({"key": randn(7, 2, 8).double()}, "query and key of one dtype"),
    ({"cu_seq_q": torch.tensor([0, 3, 5])}, "cu_seq_q of dtype int32, got int64"),
    ({"cu_seq_q": int32([[0, 3, 5]], "cpu")}, r"cu_seq_q with 1 dim, got shape \[1, 3\]"),
    ({"cu_seq_q": int32([], "cpu")}, r"cu_seq_q of sequences \+ 1 elements, got none"),
    ({"cu_seq_k": int32([0, 7], "cpu")}, "cu_seq_k of 3 elements"),
    ({"cu_seq_k": None}, "cu_seq_k unless there is a block_table, got None"),
    ({"max_q": -1}, "max_q and max_k from 0 on, got -1 and 4"),
    ({"window": [1]}, "window to be two numbers"),
    ({"softcap": -1.0}, "a finite softcap from 0 on"),
    ({"scale": float("nan")}, "a finite scale"),
    ({"sinks": randn(3)}, r"sinks of shape \[4\], got shape \[3\]"),
    ({"precision": "low"}, "precision to be highest"),
    ({"seqused_k": int32([1], "cpu")}, "seqused_k of 2 elements"),
    ({"block_table": int32([[0], [0]], "cpu")}, r"key of shape \(pages, page size, heads, head size\)"),
    # what only the CPU can know
    ({"cu_seq_q": int32([0, 3, 6], "cpu")}, r"cu_seq_q that does not decrease, in \[0, 5\], got 3 and 6 of sequence 1"),
    ({"cu_seq_k": int32([4, 3, 7], "cpu")}, "cu_seq_k that does not decrease"),
    ({"max_q": 2}, "sequences of up to max_q = 2 queries, got 3 of sequence 0"),
    ({"max_k": 3}, "sequences of up to max_k = 3 keys, got 4 of sequence 0"),
    ({"seqused_k": int32([5, 0], "cpu")}, r"seqused_k in \[0, 4\], got 5 of sequence 0"),
    ({"paged": True, "seqused_k": None}, "seqused_k with block_table, got None"),
    ({"paged": True, "block_table": int32([[0]], "cpu")}, "block_table of 2 rows"),
    ({"paged": True, "block_table": int32([[0, 2], [1, 5]], "cpu")}, r"block_table in \[0, 2\), got 2 of sequence 0"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message for _, message in BAD])
def test_errors(change: dict, message: str) -> None:
    """In one line, and of the shapes and dtypes while tracing, too."""
    given = {"query": randn(5, 4, 8), "key": randn(7, 2, 8), "value": randn(7, 2, 8), "max_q": 3, "max_k": 4}
    given |= {"cu_seq_q": int32([0, 3, 5], "cpu"), "cu_seq_k": int32([0, 4, 7], "cpu")}
    if change.get("paged"):
        given |= {"key": randn(2, 2, 2, 8), "value": randn(2, 2, 2, 8), "seqused_k": int32([4, 2], "cpu")}
        given["block_table"] = int32([[0, 1], [1, 5]], "cpu")
        torch.ops.xgemm.attention_varlen(**given)  # entries behind the last page are not read
    changed = given | {name: value for name, value in change.items() if name != "paged"}
    with pytest.raises(RuntimeError, match=f"^xgemm::attention_varlen: expected .*{message}") as raised:
        torch.ops.xgemm.attention_varlen(**changed)
    assert "\n" not in str(raised.value)
    torch_ext.attention_varlen(**given)


def test_a_window_of_one_number() -> None:
    q, offsets = randn(5, 4, 8), int32([0, 5], "cpu")
    with pytest.raises(TypeError, match=r"^xgemm::attention_varlen: expected window of two numbers of keys"):
        torch_ext.attention_varlen(q, q, q, offsets, offsets, 5, 5, window=3)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_graph_replayed_with_other_lengths(dtype: torch.dtype) -> None:
    device = torch.device("cuda")
    q, k, v = (randn(256, h, 64, dtype=dtype, device=device) for h in (4, 2, 2))
    offsets = ends([100, 0, 60, 96], device)
    varlen(q, k, v, offsets, offsets, 256, 256, is_causal=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = varlen(q, k, v, offsets, offsets, 256, 256, is_causal=True)
    for lengths in ([100, 0, 60, 96], [1, 1, 1, 253], [0, 256, 0, 0]):
        offsets.copy_(ends(lengths, device))
        graph.replay()
        parts = list(zip(k.split(lengths), v.split(lengths), strict=True))
        check(results, packed(q, parts, lengths, is_causal=True), dtype)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_batch_invariant_bits(dtype: torch.dtype) -> None:
    """A sequence alone, among others, and on pages of any size."""
    device, lengths = torch.device("cuda"), [37, 300, 1, 0, 1100]
    q, k, v = (randn(sum(lengths), h, 64, dtype=dtype, device=device) for h in (8, 2, 2))
    offsets, most = ends(lengths, device), max(lengths)
    parts = [list(kv) for kv in zip(k.split(lengths), v.split(lengths), strict=True)]
    with torch_ext.batch_invariant():
        together = varlen(q, k, v, offsets, offsets, most, most, is_causal=True)
        for page in (16, 64, 256):
            kv, table = in_pages(parts, page, -(-most // page), random.Random(page))
            paged = varlen(
                q, *kv, offsets, None, most, most, is_causal=True, seqused_k=int32(lengths, device), block_table=table
            )
            torch.testing.assert_close(paged, together, rtol=0, atol=0)
        for i, n in enumerate(lengths):
            rows, own = slice(offsets[i], offsets[i + 1]), ends([n], device)
            output, lse = varlen(q[rows], *parts[i], own, own, n, n, is_causal=True)
            assert torch.equal(output, together[0][rows]) and torch.equal(lse, together[1][:, rows])


@pytest.mark.cuda
@pytest.mark.sanitize
def test_offsets_lengths_and_tables_out_of_range() -> None:
    device = torch.device("cuda")
    q, k = randn(40, 4, 64, dtype=torch.bfloat16, device=device), randn(40, 2, 64, dtype=torch.bfloat16, device=device)
    good = varlen(q, k, k, ends([20, 20], device), ends([20, 20], device), 20, 20)
    huge = 1 << 30
    output, _ = varlen(q, k, k, int32([0, 20, huge], device), int32([0, 20, -huge], device), 20, 20)
    torch.testing.assert_close(output[:20], good[0][:20], rtol=0, atol=0)
    pages, table = k.view(5, 8, 2, 64), int32([[0, 1, 2], [-5, huge, 2]], device)
    lengths = int32([20, huge], device)
    output, _ = varlen(q, pages, pages, ends([20, 20], device), None, 20, 24, seqused_k=lengths, block_table=table)
    torch.testing.assert_close(output[:20], good[0][:20], rtol=1e-2, atol=1e-2)
    assert output.isfinite().all()
