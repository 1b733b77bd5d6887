"""Plans of CUDA cores (csrc/matmul/{simt,gemv}) and of wgmma, without a GPU. Of the benchmarks' products all that a
plan decides stands in tests/golden, and not here.
"""

from common import tile_names
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matmul_plans import BF16, F16, F32, F64, HIGH, HIGHEST, IEEE, MEDIUM, Answer, Ask, plan_fixture

cuda_cores = plan_fixture("cuda_cores", usually=IEEE)
wgmma = plan_fixture("wgmma")
choice = plan_fixture("choice")
SIZE = {F32: 4, F16: 2, BF16: 2, F64: 8}
size = st.one_of(st.integers(1, 300), st.integers(1, 1 << 17))


def test_fp64_sums_fit_the_registers(cuda_cores: Ask) -> None:
    for size in (64, 512, 8192):
        assert cuda_cores(size, size, size, dtype=F64)["name"] != "simt_128x128"
        assert cuda_cores(size, size, size, dtype=F64, forced="simt_128x128")["name"] == "simt_64x64"


def test_few_rows_or_columns_stream(cuda_cores: Ask) -> None:
    for lines in (1, 2, 3, 4):
        assert cuda_cores(lines, 4096, 4096)["name"] == "gemv"
        assert cuda_cores(4096, lines, 4096)["name"] == ("gemv" if lines > 1 else "dot")
    assert cuda_cores(5, 4096, 4096)["name"] != "gemv"
    assert cuda_cores(1, 4096, 4096, forced="simt_64x64")["name"] == "simt_64x64"
    assert cuda_cores(5, 4096, 4096, forced="gemv")["name"] != "gemv"


def test_few_lines_along_k_take_dot(cuda_cores: Ask) -> None:
    for lines in (1, 2, 3, 4):
        for n, k in [(768, 768), (4096, 4096), (4096, 14336), (1000, 4099)]:
            for precision in (HIGHEST, IEEE, HIGH, MEDIUM):
                few_rows = cuda_cores(lines, n, k, layout="nt", precision=precision)
                assert (few_rows["name"], few_rows["workspace"]) == ("dot", 0)
                assert cuda_cores(n, lines, k, layout="nt", precision=precision)["name"] == "dot"
    for size, how, name in [
        *(((1, 4096, 4096, 20), {"layout": "nt"}, "dot"), ((1, 4096, 4096), {"layout": "nt", "forced": "dot"}, "dot")),
        ((1, 1, 1 << 22), {"layout": "nt"}, "dot"),  # in gemv one lane adds a whole chunk
        ((4, 154, 318), {"layout": "tt"}, "dot"),  # few elements of A are read one at a time
        # Not for several lines of a short K, operands not contiguous along k, other types, batch-invariant problems.
        *(
            ((lines, 768, 256), {"layout": "nt", "precision": HIGHEST}, "dot" if lines == 1 else "gemv")
            for lines in (1, 2, 4)
        ),
        *(((1, 4096, 4096), {}, "gemv"), ((4, 4096, 4096), {"layout": "tt"}, "gemv")),
        ((1, 4096, 4096), {"forced": "dot"}, "simt_64x64"),
        *(((1, 4096, 4096), {"layout": "nt", **how}, "gemv") for how in ({"dtype": F64}, {"batch_invariant": True})),
    ]:
        assert cuda_cores(*size, **how)["name"] == name, (size, how)
    assert cuda_cores(5, 4096, 4096, layout="nt")["name"] != "dot"


def test_gemv_splits_only_where_blocks_are_few(cuda_cores: Ask) -> None:
    assert cuda_cores(1, 50257, 4096)["splits"] == 1
    assert cuda_cores(1, 64, 1 << 20)["splits"] > 1
    assert cuda_cores(1, 64, 1 << 20, 1000)["splits"] == 1


def test_long_k_on_a_small_output_is_split(cuda_cores: Ask) -> None:
    split = cuda_cores(512, 512, 65536)
    assert split["splits"] > 1
    assert split["workspace"] == 512 * 512 * split["chunks"] * 4
    assert cuda_cores(64, 64, 65536, dtype=F64)["workspace"] % (64 * 64 * 8) == 0


def test_vectors_need_alignment(cuda_cores: Ask) -> None:
    for how in ({}, {"layout": "tt"}, {"offset": 16}, {"m": 65}):
        assert cuda_cores(**{"m": 64, "n": 64, "k": 64} | how)["vector"], how
    # In the last one the last vector of a row would leave the matrix.
    strides = {"strides": ((128, 2), (64, 1))}, {"n": 65, "strides": ((64, 1), (68, 1))}
    for how in ({"offset": 4}, {"ld": 65}, {"k": 66}, {"n": 65}, *strides):
        assert not cuda_cores(**{"m": 64, "n": 64, "k": 64} | how)["vector"], how


def test_unknown_names_force_nothing_unsafe(cuda_cores: Ask) -> None:
    assert cuda_cores(64, 64, 64, forced="no_such_kernel")["name"] == "simt_64x64"


products = st.tuples(size, size, st.integers(0, 1 << 22), st.integers(1, 3000))


@settings(max_examples=300, deadline=None)
@given(products, st.sampled_from([F32, F64]), st.integers(1, 200))
def test_the_order_of_additions_depends_on_n_and_k_alone(cuda_cores: Ask, product, dtype: int, sm_count: int) -> None:
    m, n, k, batch = product
    here = cuda_cores(*product, dtype=dtype, sm_count=sm_count, batch_invariant=True)
    alone = cuda_cores(1, n, k, batch_invariant=True)
    chunk, chunks, splits = (here[name] for name in ("chunk", "chunks", "splits"))
    assert (chunk, chunks) == (alone["chunk"], alone["chunks"])
    assert 1 <= chunks <= 32  # the most that a block of gemv holds
    assert (chunks - 1) * chunk < max(k, 1) <= chunks * chunk
    assert chunks == 1 or chunk % 32 == 0  # every kernel's step along k
    assert 1 <= splits <= chunks
    per_block = -(-chunks // splits)
    assert (splits - 1) * per_block < chunks  # no block without a chunk
    assert (here["workspace"] > 0) == (splits > 1)
    if splits > 1:
        assert here["workspace"] == chunks * batch * m * n * SIZE[dtype]


HALF_TILE_ROWS = {tile: int(tile.removeprefix("wgmma_").split("x")[0]) for tile in tile_names("wgmma")}


def test_rows_that_straddle_lines_may_be_multicast(wgmma: Ask) -> None:
    """L2 requests limit rows aligned to 16 bytes but not to 128: measured, docs/log/matmul.md."""
    for tile in HALF_TILE_ROWS:
        for m, n in [(264, 392), (392, 264)]:
            layout = "nt" if tile.endswith("x32") else "nn"
            chosen = wgmma(m, n, 1000, dtype=BF16, layout=layout, forced=tile)
            assert (chosen["name"], copied(chosen)) == (tile, (False, False))


def copied(plan: Answer) -> tuple[bool, bool]:
    """Whether A is copied, and B."""
    return "copied_a" in plan, "copied_b" in plan


def test_rows_of_any_number_fill_one_wave_by_a_transposed_tile(wgmma: Ask) -> None:
    """wgmma's n has any width; of B (k, n) it is the rows: 26.7 and 31.0 us, without 34.4 and 44.3."""
    for m, n, k in [(479, 2112, 7168), (2904, 320, 8192), (2271, 2048, 2048)]:
        here = wgmma(m, n, k, dtype=BF16)
        assert "swapped" in here, (m, n, k)
        waves = -(-n // HALF_TILE_ROWS[here["name"]]) * -(-m // here["columns"]) / 132
        assert waves / -(-waves // 1) > 0.75, (m, n, k)
    for n, k, layout in [(2048, 2049, "nn"), (2047, 2048, "nn"), (2048, 2048, "tn")]:
        can = n % 8 == 0 and layout == "nn"  # odd rows of A are copied
        taken = wgmma(2271, n, k, dtype=BF16, layout=layout, forced="wgmma_128x256/swapped")
        assert ("swapped" in taken) == can, (n, k, layout)
    for forced in ("wgmma_64x64/swapped", "wgmma_128x256"):
        assert "swapped" not in wgmma(2271, 2048, 2048, dtype=BF16, forced=forced)


def test_long_k_on_a_small_output_is_spread(wgmma: Ask) -> None:
    many = wgmma(16384, 512, 65536, dtype=BF16)  # enough tiles for every SM
    assert many["splits"] == many["memory_splits"] == 1
    assert wgmma(16384, 512, 65536, dtype=BF16, batch_invariant=True)["splits"] == 16  # as of any M


def test_what_tma_cannot_load_is_copied_to_whole_lines_of_l2(wgmma: Ask) -> None:
    unaligned = wgmma(512, 512, 513, dtype=BF16)
    assert copied(unaligned) == (True, False) and unaligned["workspace"] == 2 * 512 * 576
    assert wgmma(512, 512, 33, dtype=BF16)["workspace"] == 2 * 512 * 40  # not padded to 128 bytes
    assert copied(wgmma(512, 513, 512, dtype=BF16))[1]
    for how in ({"offset": 2}, {"strides": ((1024, 2), (512, 1))}):
        assert copied(wgmma(512, 512, 512, dtype=BF16, **how))[0], how


def test_few_rows_do_not_pay_for_a_copy_of_b(wgmma: Ask) -> None:
    def in_place(m: int, n: int, k: int, **options) -> bool:
        return "b_as_it_lies" in wgmma(m, n, k, dtype=BF16, **options)

    for b in [(4095, 1), (1, 4097)]:
        strides = ((4097, 1), b)
        assert in_place(16, 4095, 4097, strides=strides)
        assert copied(wgmma(16, 4095, 4097, dtype=BF16, strides=strides)) == (True, False)
        assert not in_place(1000, 4095, 4097, strides=strides)
        assert copied(wgmma(1000, 4095, 4097, dtype=BF16, strides=strides))[1]
    for size in [(128, 4097, 4097), (128, 4097, 4096)]:
        assert in_place(*size), size
    for size in [(16, 4096, 4097), (100, 1001, 1001), (129, 4097, 4097)]:
        assert not in_place(*size), size
    for size in [(16, 1023, 8193), (100, 513, 9001)]:  # K is split
        assert not in_place(*size, layout="nt"), size
    for k in (40, 41):
        assert in_place(16, 40, k, forced="wgmma_few_rows")
    assert not in_place(16, 40, 41, strides=((41, 1), (39, 1)), forced="wgmma_few_rows")  # overlapping lines
    assert not in_place(16, 7, 41, layout="nt", forced="wgmma_few_rows")  # needs 8 lines
    assert not in_place(16, 4095, 4097, strides=((4097, 1), (8190, 2)))
    assert in_place(16, 4095, 4096, layout="tn")
    assert copied(wgmma(16, 4095, 4096, dtype=BF16, layout="tn"))[0]  # the kernel needs rows of A


def test_fp32_batches_are_counted_in_32_bits(wgmma: Ask) -> None:
    """Each batch adds two matrices of parts, and eight blocks of the pass over operands that are not K-major."""
    for precision in (HIGHEST, HIGH):
        few, many = (wgmma(2, 2, 1, batch, precision=precision, forced="wgmma") for batch in (1 << 26, 1 << 27))
        assert few is not None and many is None
    assert wgmma(2, 2, 1, 1 << 27, dtype=F16, forced="wgmma") is not None


def test_gated_takes_few_kernels(wgmma: Ask) -> None:
    def gated(m: int, n: int, k: int, layout: str = "nt", **options) -> Answer | None:
        return wgmma(m, n, k, gated=True, layout=layout, **options)

    assert gated(2048, 4096, 1024, precision=HIGH)["name"] == "wgmma_128x128"
    assert gated(16, 512, 8192, dtype=BF16)["splits"] == 1
    assert gated(300, 7, 512, dtype=BF16)["name"].startswith("wgmma_")
    # K-major kernels only: other layouts are copied.
    assert not copied(gated(300, 512, 512, dtype=BF16))[1]
    assert copied(gated(300, 512, 512, "nn", dtype=BF16))[1]
    assert copied(gated(300, 512, 512, "tt", dtype=BF16))[0]


def test_a_prepared_weight_costs_no_pass_over_it(wgmma: Ask, choice: Ask) -> None:
    for n, k in [(4096, 4096), (14336, 4096), (8192, 8192)]:
        for m in (16, 64):
            plain = wgmma(m, n, k, layout="nt", forced="wgmma")
            prepared = wgmma(m, n, k, layout="nt", prepared=True)
            assert all(prepared[of] == plain[of] for of in ("name", "splits", "chunk"))
            assert prepared["workspace"] < 8 * m * (k + 8)  # A's copy alone
            assert choice(m, n, k, layout="nt", prepared=True).startswith("wgmma_")
    assert wgmma(16, 4096, 4096, layout="nt", precision=IEEE, prepared=True) is None


@settings(max_examples=300, deadline=None)
@given(
    st.tuples(size, size, st.integers(1, 1 << 18), st.integers(1, 100)),  # CUDA cores take more than 2^31 tiles
    *(st.sampled_from([F16, BF16]), st.booleans(), st.booleans(), st.booleans()),
)
@example((55, 33, 24344, 1), F16, False, False, False)  # a pair with splits
def test_splits_of_half_precision(
    wgmma: Ask, product: tuple[int, ...], dtype: int, k_major: bool, gated: bool, batch_invariant: bool
) -> None:
    m, n, k, batch = product
    layout = "nt" if k_major else "nn"
    here = wgmma(*product, dtype=dtype, layout=layout, gated=gated, batch_invariant=batch_invariant)
    if here is None:
        assert n < 8 or k < 16
        return
    fields = "splits", "cluster", "memory_splits", "columns", "split_length"
    splits, cluster, memory_splits, own_columns, length = (here[name] for name in fields)
    height, width = HALF_TILE_ROWS[here["name"]], int(here["name"].split("x")[1])
    assert (cluster, memory_splits) in ((1, 1), (splits, 1), (1, splits))
    assert cluster <= 8 and splits <= 128
    assert (splits - 1) * length < k <= splits * length  # no empty split
    assert length % 256 == 0  # a multiple of every tile's k-step
    if "swapped" in here:  # C^T: the tile's columns lie along the rows of C
        assert min(m, n) > 64 and n % 8 == 0 and splits == 1 and not gated and width >= 128
        assert own_columns % 16 == 0
        m, n, k_major = n, m, True
    rows, columns = -(-m // height), -(-n // own_columns)
    assert not here["multicast"] or (cluster == 1 and not gated)
    assert not here["multicast"] or (columns > 1 and m >= 16 if height > width else rows > 1 and own_columns % 16 == 0)
    assert not gated or m <= 64 or height == 128
    most = width // (2 if gated else 1)
    assert own_columns % 8 == 0 and 8 <= own_columns <= most
    b_along_k = k_major or n == 1 or "copied_b" in here  # a copy lies along k; one column does, too
    narrow = own_columns % 16 == 0 and 2 * own_columns > most and not gated  # of 128 rows: a wgmma of that width
    assert own_columns == most or (narrow if most >= 128 else b_along_k and batch == 1 and m <= 64)
    if here["multicast"]:  # in whole pairs
        rows, columns = (rows, columns + columns % 2) if height > width else (rows + rows % 2, columns)
    tiles = rows * columns * batch
    held = memory_splits * tiles if memory_splits > 1 else 0
    assert held <= 132 and here["partials"] == held * height * most * 4
    assert splits == memory_splits or most <= 128  # no registers for a split's sums
    assert batch_invariant or splits in (cluster, memory_splits)  # else one CTA adds them


def order_of(decision: str) -> tuple:
    """What a decision says of the order in which an element's products are added."""
    name, *words = decision.split(" and ")[0].split()
    fields = dict(word.split("=") for word in words if "=" in word)
    if name.startswith(("simt_", "gemv")):
        return "fma", fields["chunk"], fields["chunks"]
    if name.startswith("fp64_"):
        return "fp64", fields["segment"]
    if name.startswith("mma_") or (name.startswith(("wgmma_", "large_")) and fields["parts"] == "0"):
        splits = fields.get("splits", "1")
        return "mma.sync or wgmma", splits, fields["split_length"] if splits != "1" else None
    if name.startswith("large_"):
        return "parts by mma.sync", fields["parts"], fields["splits"]
    assert name.startswith("wgmma_"), f"{name} has an order that depends on M"
    return "parts", fields["parts"], fields["chunk"], fields["splits"], fields["fallback"].split()[0][:4]


MODES = [(F32, HIGHEST), (F32, HIGH), (F32, MEDIUM), (F32, IEEE), (F16, HIGHEST), (BF16, HIGHEST), (F64, HIGHEST)]


@settings(max_examples=400, deadline=None)
@given(
    st.tuples(size, size, st.integers(1, 1 << 16), st.integers(1, 100)),
    *(st.sampled_from(MODES), st.booleans(), st.sampled_from([8, 9, 12]), st.sampled_from([66, 114, 132]), st.data()),
)
def test_batch_invariant_orders_depend_on_n_k_and_dtype_alone(
    choice: Ask, product: tuple, mode: tuple[int, int], gated: bool, major: int, sm_count: int, data: st.DataObject
) -> None:
    """Not on rows, batch, strides and alignment of either operand."""
    (m, n, k, batch), (dtype, precision) = product, mode
    options = {"dtype": dtype, "precision": precision, "gated": gated, "sm_count": sm_count, "major": major}
    of_a = st.sampled_from([(k, 1), (1, m), (1, 27), (0, 1), (0, 0), (1, 0), (0, 27), (k + 1, 1)])
    of_b = st.sampled_from([(n, 1), (1, k), (n + 3, 1), (1, k + 5), (2, 2 * k + 1), (0, 1)])
    offset = st.integers(0, 4)

    def ask(*sizes: int) -> str:
        offsets = {name: data.draw(offset) * SIZE[dtype] for name in ("offset", "offset_b")}
        strides = data.draw(of_a), data.draw(of_b)
        return choice(*sizes, strides=strides, **offsets, **options, batch_invariant=True)

    here, alone = ask(m, n, k, batch), ask(1, n, k, 1)
    assert order_of(here) == order_of(alone), f"{here}\n{alone}"


def test_batch_invariant_rows_that_once_differed(choice: Ask) -> None:
    """A row of a batch and a row alone have other strides; a weight may lie along either dim."""
    options = {"batch_invariant": True}
    for sizes, a, alone, b, precision in [
        ((27, 1985, 64, 1), (1, 27), (0, 27), (2, 268), HIGH),
        ((8, 70, 512, 98), (0, 0), (1, 0), (1, 512), HIGHEST),
    ]:
        batch = choice(*sizes, strides=(a, b), precision=precision, **options)
        row = choice(1, *sizes[1:3], strides=(alone, b), precision=precision, **options)
        assert order_of(batch) == order_of(row)
    for layout in ("nn", "nt"):
        decisions = [choice(m, 488, 3808, layout=layout, dtype=BF16, **options) for m in (1, 64, 9255)]
        assert len({order_of(decision) for decision in decisions}) == 1
