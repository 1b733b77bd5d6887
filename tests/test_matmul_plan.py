"""Plans of CUDA cores (csrc/matmul/{simt,gemv}) and of wgmma, without a GPU."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from common import tile_names
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_plans import BF16, F16, F32, F64, HIGH, HIGHEST, IEEE, MEDIUM, Answer, plan_fixture

cuda_cores = plan_fixture("cuda_cores")
wgmma = plan_fixture("wgmma")
choice = plan_fixture("choice")
SIZE = {F32: 4, F16: 2, BF16: 2, F64: 8}


@dataclass(frozen=True)
class Wgmma:
    tile: str
    splits: int
    cluster: int
    memory_splits: int
    columns: int
    split_length: int
    chunk: int
    workspace: int
    partials: int
    multicast: bool
    copied_a: bool = False
    copied_b: bool = False
    b_as_it_lies: bool = False
    swapped: bool = False


@dataclass(frozen=True)
class Plan:
    """The offer of CUDA cores (in half precision for few rows or columns alone), and wgmma's where it pays."""

    tensor: "Wgmma | None"
    kernel: str = ""
    chunk: int = 0
    chunks: int = 0
    splits: int = 0
    workspace: int = 0
    vector: bool = False


@dataclass
class Problem:
    """A (m, k) and B (k, n) row-major unless strides are given."""

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: int = F32
    a: tuple[int, int] | None = None
    b: tuple[int, int] | None = None
    offset: int = 0  # of A's data, in elements
    sm_count: int = 132
    forced: str = "-"
    precision: int = IEEE
    batch_invariant: bool = False
    gated: bool = False
    prepared: bool = False


def fields(record: type, offer: Answer) -> dict[str, float | str]:
    return {field.name: offer[field.name] for field in dataclasses.fields(record) if field.name in offer}


@pytest.fixture(scope="module")
def plan(cuda_cores: Callable[..., Answer], wgmma: Callable[..., "Answer | None"]) -> "Ask":
    def ask(p: Problem) -> Plan:
        names = ("dtype", "precision", "batch_invariant", "gated", "prepared", "sm_count", "forced")
        options = {name: getattr(p, name) for name in names}
        options |= {"strides": (p.a or (p.k, 1), p.b or (p.n, 1)), "offset": p.offset * SIZE[p.dtype]}
        simt, tensor = (offer(p.m, p.n, p.k, p.batch, **options) for offer in (cuda_cores, wgmma))
        found = tensor and Wgmma(tile=tensor["name"], **fields(Wgmma, tensor))
        return Plan(tensor=found, **({"kernel": simt["name"]} | fields(Plan, simt) if simt else {}))

    return ask


Ask = Callable[[Problem], Plan]
size = st.one_of(st.integers(1, 300), st.integers(1, 1 << 17))


def test_large_products_take_the_largest_tile_without_a_split(plan: Ask) -> None:
    for size in (2048, 4096, 8192):
        assert plan(Problem(size, size, size)).kernel == "simt_128x128"
    assert plan(Problem(8192, 8192, 8192)).splits == 1


def test_fp64_sums_fit_the_registers(plan: Ask) -> None:
    for size in (64, 512, 8192):
        assert plan(Problem(size, size, size, dtype=F64)).kernel != "simt_128x128"
        assert plan(Problem(size, size, size, dtype=F64, forced="simt_128x128")).kernel == "simt_64x64"


def test_few_rows_or_columns_stream(plan: Ask) -> None:
    for lines in (1, 2, 3, 4):
        assert plan(Problem(lines, 4096, 4096)).kernel == "gemv"
        assert plan(Problem(4096, lines, 4096, b=(lines, 1))).kernel == ("gemv" if lines > 1 else "dot")
    assert plan(Problem(5, 4096, 4096)).kernel != "gemv"
    assert plan(Problem(1, 4096, 4096, forced="simt_64x64")).kernel == "simt_64x64"
    assert plan(Problem(5, 4096, 4096, forced="gemv")).kernel != "gemv"


def test_few_lines_along_k_take_dot(plan: Ask) -> None:
    for lines in (1, 2, 3, 4):
        for n, k in [(768, 768), (4096, 4096), (4096, 14336), (1000, 4099)]:
            for precision in (HIGHEST, IEEE, HIGH, MEDIUM):
                few_rows = plan(Problem(lines, n, k, b=(1, k), precision=precision))
                assert (few_rows.kernel, few_rows.workspace) == ("dot", 0)
                assert plan(Problem(n, lines, k, b=(1, k), precision=precision)).kernel == "dot"
    assert plan(Problem(1, 4096, 4096, b=(1, 4096), batch=20)).kernel == "dot"
    assert plan(Problem(1, 4096, 4096, b=(1, 4096), forced="dot")).kernel == "dot"
    assert plan(Problem(1, 1, 1 << 22, b=(1, 1 << 22))).kernel == "dot"  # in gemv one lane adds a whole chunk
    assert plan(Problem(4, 154, 118, a=(1, 4), b=(1, 118))).kernel == "dot"  # few elements of A are read one at a time
    # Not for more rows, operands not contiguous along k, other types, batch-invariant problems.
    assert plan(Problem(5, 4096, 4096, b=(1, 4096))).kernel != "dot"
    assert plan(Problem(1, 4096, 4096)).kernel == "gemv"
    assert plan(Problem(4, 4096, 4096, a=(1, 4), b=(1, 4096))).kernel == "gemv"
    assert plan(Problem(1, 4096, 4096, forced="dot")).kernel == "simt_64x64"
    assert plan(Problem(1, 4096, 4096, b=(1, 4096), dtype=F64)).kernel == "gemv"
    assert plan(Problem(1, 4096, 4096, b=(1, 4096), batch_invariant=True)).kernel == "gemv"


def test_gemv_splits_only_where_blocks_are_few(plan: Ask) -> None:
    assert plan(Problem(1, 50257, 4096)).splits == 1
    assert plan(Problem(1, 64, 1 << 20)).splits > 1
    assert plan(Problem(1, 64, 1 << 20, batch=1000)).splits == 1


def test_long_k_on_a_small_output_is_split(plan: Ask) -> None:
    split = plan(Problem(512, 512, 65536))
    assert split.splits > 1
    assert split.workspace == 512 * 512 * split.chunks * 4
    assert plan(Problem(64, 64, 65536, dtype=F64)).workspace % (64 * 64 * 8) == 0


def test_vectors_need_alignment(plan: Ask) -> None:
    assert plan(Problem(64, 64, 64)).vector
    assert plan(Problem(64, 64, 64, a=(1, 64), b=(1, 64))).vector
    assert not plan(Problem(64, 64, 64, offset=1)).vector
    assert plan(Problem(64, 64, 64, offset=4)).vector
    assert not plan(Problem(64, 64, 64, a=(65, 1))).vector
    assert not plan(Problem(64, 64, 64, a=(128, 2))).vector
    assert not plan(Problem(64, 64, 66)).vector
    assert not plan(Problem(64, 65, 64)).vector
    assert not plan(Problem(64, 65, 64, b=(68, 1))).vector  # the last vector of a row would leave the matrix
    assert plan(Problem(65, 64, 64)).vector


def test_unknown_names_force_nothing_unsafe(plan: Ask) -> None:
    assert plan(Problem(64, 64, 64, forced="no_such_kernel")).kernel == "simt_64x64"


@settings(max_examples=300, deadline=None)
@given(
    st.tuples(size, size, st.integers(0, 1 << 22), st.integers(1, 3000)),
    *(st.sampled_from([F32, F64]), st.integers(1, 200)),
)
def test_the_order_of_additions_depends_on_n_and_k_alone(
    plan: Ask, product: tuple[int, ...], dtype: int, sm_count: int
) -> None:
    m, n, k, batch = product
    here = plan(Problem(*product, dtype, sm_count=sm_count, batch_invariant=True))
    alone = plan(Problem(1, n, k, batch_invariant=True))
    assert (here.chunk, here.chunks) == (alone.chunk, alone.chunks)
    assert 1 <= here.chunks <= 32  # the most that a block of gemv holds
    assert (here.chunks - 1) * here.chunk < max(k, 1) <= here.chunks * here.chunk
    assert here.chunks == 1 or here.chunk % 32 == 0  # every kernel's step along k
    assert 1 <= here.splits <= here.chunks
    per_block = -(-here.chunks // here.splits)
    assert (here.splits - 1) * per_block < here.chunks  # no block without a chunk
    assert (here.workspace > 0) == (here.splits > 1)
    if here.splits > 1:
        assert here.workspace == here.chunks * batch * m * n * (8 if dtype == F64 else 4)


HALF_TILE_ROWS = {tile: int(tile.removeprefix("wgmma_").split("x")[0]) for tile in tile_names("wgmma")}


def test_half_precision_goes_to_the_tensor_cores(plan: Ask) -> None:
    assert plan(Problem(4096, 4096, 4096, dtype=BF16)).tensor.tile == "wgmma_128x256"
    assert plan(Problem(16, 4096, 4096, dtype=F16, b=(1, 4096))).tensor.tile.startswith("wgmma_64")
    assert plan(Problem(16, 4096, 4096, dtype=BF16)).tensor.tile == "wgmma_64x64"  # B not K-major: no 32 columns
    for m, n in [(4096, 4), (4096, 1), (1, 7)]:  # heads of few outputs: 2 to 3 times as fast as on CUDA cores
        assert plan(Problem(m, n, 4096, dtype=BF16)).tensor.tile.startswith("wgmma_64"), (m, n)
    assert plan(Problem(4096, 4096, 4096, dtype=F64)).tensor is None


def test_few_rows_load_all_sms_equally(plan: Ask) -> None:
    for n in (4096, 5120, 6144, 8192, 12288, 13824, 14336, 24576, 28672):
        for m in (1, 16, 64):
            few = plan(Problem(m, n, 4096, dtype=BF16, b=(1, 4096))).tensor
            waves = -(-n // few.columns) / 132
            assert 0.9 < waves / -(-waves // 1) <= 1, (n, few)


def test_rows_that_straddle_lines_may_be_multicast(plan: Ask) -> None:
    """L2 requests limit rows aligned to 16 bytes but not to 128: measured, docs/log/matmul.md."""
    for tile in HALF_TILE_ROWS:
        for m, n in [(264, 392), (392, 264)]:
            b = (1, 1000) if tile.endswith("x32") else (n, 1)
            chosen = plan(Problem(m, n, 1000, dtype=BF16, b=b, forced=tile)).tensor
            assert chosen.tile == tile
            assert (chosen.copied_a, chosen.copied_b) == (False, False)
    assert not plan(Problem(1024, 1024, 1024, dtype=BF16)).tensor.multicast
    assert not plan(Problem(1023, 1025, 1023, dtype=BF16)).tensor.multicast  # copied: rows of copies are aligned


def test_rows_of_any_number_fill_one_wave_by_a_transposed_tile(plan: Ask) -> None:
    """wgmma's n has any width; of B (k, n) it is the rows: 26.7 and 31.0 us, without 34.4 and 44.3."""
    for m, n, k in [(479, 2112, 7168), (2904, 320, 8192), (2271, 2048, 2048)]:
        here = plan(Problem(m, n, k, dtype=BF16)).tensor
        assert here.swapped, (m, n, k)
        waves = -(-n // HALF_TILE_ROWS[here.tile]) * -(-m // here.columns) / 132
        assert waves / -(-waves // 1) > 0.75, (m, n, k)
    for n, k, options in [(2048, 2049, {}), (2047, 2048, {}), (2048, 2048, {"a": (1, 2271)})]:
        tile = {"dtype": BF16, "forced": "wgmma_128x256/swapped"} | options
        can = n % 8 == 0 and "a" not in options
        assert plan(Problem(2271, n, k, **tile)).tensor.swapped == can, (n, k, options)  # odd rows of A are copied
    for forced in ("wgmma_64x64/swapped", "wgmma_128x256"):
        assert not plan(Problem(2271, 2048, 2048, dtype=BF16, forced=forced)).tensor.swapped


def test_long_k_on_a_small_output_is_spread(plan: Ask) -> None:
    for size in (64, 512):
        long = plan(Problem(size, size, 65536, dtype=BF16)).tensor
        assert long.memory_splits == long.splits >= 8, long
    many = plan(Problem(16384, 512, 65536, dtype=BF16)).tensor  # enough tiles for every SM
    assert (many.splits, many.memory_splits) == (1, 1)
    invariant = plan(Problem(16384, 512, 65536, dtype=BF16, batch_invariant=True)).tensor
    assert invariant.splits == 16  # as of any M


def test_tma_needs_alignment(plan: Ask) -> None:
    whole = plan(Problem(512, 512, 512, dtype=BF16)).tensor
    assert (whole.copied_a, whole.copied_b) == (False, False)
    odd = plan(Problem(512, 512, 513, dtype=BF16)).tensor
    assert (odd.copied_a, odd.copied_b) == (True, False)
    assert plan(Problem(512, 513, 512, dtype=BF16)).tensor.copied_b
    assert plan(Problem(512, 512, 512, dtype=BF16, offset=1)).tensor.copied_a
    assert plan(Problem(512, 512, 512, dtype=BF16, a=(1024, 2))).tensor.copied_a


def test_copies_lines_are_whole_lines_of_l2(plan: Ask) -> None:
    assert plan(Problem(512, 512, 513, dtype=BF16)).tensor.workspace == 2 * 512 * 576
    assert plan(Problem(512, 512, 33, dtype=BF16)).tensor.workspace == 2 * 512 * 40  # not padded to 128 bytes


def test_rows_that_straddle_lines_of_l2_are_copied_where_it_pays(plan: Ask) -> None:
    def copies(m: int, n: int, k: int, **options) -> tuple[bool, bool]:
        tensor = plan(Problem(m, n, k, dtype=BF16, **options)).tensor
        return tensor.copied_a, tensor.copied_b

    assert copies(4096, 4096, 4096) == (False, False)
    assert copies(3000, 3000, 3000, a=(3008, 1), b=(3008, 1)) == (False, False)
    assert copies(1000, 1000, 1000) == (False, False)  # the copies would take 2 us
    assert copies(16, 4096, 4104, b=(1, 4104)) == (False, False)


def test_few_rows_do_not_pay_for_a_copy_of_b(plan: Ask) -> None:
    for strides in [(4095, 1), (1, 4097)]:
        few = plan(Problem(16, 4095, 4097, dtype=BF16, b=strides)).tensor
        assert (few.b_as_it_lies, few.copied_a, few.copied_b) == (True, True, False)
        many = plan(Problem(1000, 4095, 4097, dtype=BF16, b=strides)).tensor
        assert (many.b_as_it_lies, many.copied_b) == (False, True)
    assert not plan(Problem(16, 4096, 4097, dtype=BF16)).tensor.b_as_it_lies
    assert not plan(Problem(100, 1001, 1001, dtype=BF16)).tensor.b_as_it_lies
    assert plan(Problem(128, 4097, 4097, dtype=BF16)).tensor.b_as_it_lies
    assert plan(Problem(128, 4097, 4096, dtype=BF16)).tensor.b_as_it_lies
    assert not plan(Problem(129, 4097, 4097, dtype=BF16)).tensor.b_as_it_lies
    for m, n, k in [(16, 1023, 8193), (100, 513, 9001)]:  # K is split
        assert not plan(Problem(m, n, k, dtype=BF16, b=(1, k))).tensor.b_as_it_lies
    forced = {"dtype": BF16, "forced": "wgmma_few_rows"}
    assert plan(Problem(16, 40, 41, b=(40, 1), **forced)).tensor.b_as_it_lies
    assert not plan(Problem(16, 40, 41, b=(39, 1), **forced)).tensor.b_as_it_lies  # overlapping lines
    assert not plan(Problem(16, 7, 41, b=(1, 41), **forced)).tensor.b_as_it_lies  # needs 8 lines
    assert plan(Problem(16, 40, 40, dtype=BF16, forced="wgmma_few_rows")).tensor.b_as_it_lies
    assert not plan(Problem(16, 4095, 4097, dtype=BF16, b=(8190, 2))).tensor.b_as_it_lies
    columns = plan(Problem(16, 4095, 4096, dtype=BF16, a=(1, 16))).tensor
    assert (columns.b_as_it_lies, columns.copied_a) == (True, True)  # the kernel needs rows of A


def test_fp32_takes_the_split_where_it_pays(choice: Callable[..., str]) -> None:
    assert choice(4096, 4096, 4096, precision=HIGHEST).startswith("wgmma_128x128 ")
    assert choice(4096, 4096, 4096, precision=HIGH).startswith("wgmma_128x256 ")
    for sizes, precision in [((4096,) * 3, IEEE), ((128,) * 3, HIGHEST), ((16, 4096, 4096), HIGHEST)]:
        assert not choice(*sizes, precision=precision).startswith("wgmma"), sizes


def test_fp32_batches_are_counted_in_32_bits(plan: Ask) -> None:
    """Each batch adds two matrices of parts, and eight blocks of the pass over operands that are not K-major."""
    for precision in (HIGHEST, HIGH):
        few, many = (
            plan(Problem(2, 2, 1, batch=batch, precision=precision, forced="wgmma")) for batch in (1 << 26, 1 << 27)
        )
        assert few.tensor is not None
        assert many.tensor is None
    assert plan(Problem(2, 2, 1, batch=1 << 27, dtype=F16, forced="wgmma")).tensor is not None


def test_gated_takes_few_kernels(plan: Ask) -> None:
    def gated(m: int, n: int, k: int, **options) -> Wgmma | None:
        return plan(Problem(m, n, k, gated=True, **{"b": (1, k)} | options)).tensor

    assert gated(8192, 14336, 4096, dtype=BF16).tile == "wgmma_128x256"
    assert gated(16, 14336, 4096, dtype=BF16).tile == "wgmma_64x64"
    assert gated(2048, 4096, 1024, precision=HIGHEST).tile == "wgmma_128x128"
    assert gated(2048, 4096, 1024, precision=HIGH).tile == "wgmma_128x128"
    assert gated(16, 512, 8192, dtype=BF16).splits == 1
    assert gated(300, 7, 512, dtype=BF16).tile.startswith("wgmma_")
    # K-major kernels only: other layouts are copied.
    assert not gated(300, 512, 512, dtype=BF16).copied_b
    assert gated(300, 512, 512, dtype=BF16, b=(512, 1)).copied_b
    assert gated(300, 512, 512, dtype=BF16, a=(1, 300)).copied_a


def test_a_prepared_weight_costs_no_pass_over_it(plan: Ask, choice: Callable[..., str]) -> None:
    for n, k in [(4096, 4096), (14336, 4096), (8192, 8192)]:
        for m in (16, 64):
            plain = plan(Problem(m, n, k, precision=HIGHEST, b=(1, k), forced="wgmma")).tensor
            prepared = plan(Problem(m, n, k, precision=HIGHEST, b=(1, k), prepared=True)).tensor
            assert (prepared.tile, prepared.splits, prepared.chunk) == (plain.tile, plain.splits, plain.chunk)
            assert prepared.workspace < 8 * m * (k + 8)  # A's copy alone
            assert choice(m, n, k, layout="nt", precision=HIGHEST, prepared=True).startswith("wgmma_")
    assert not choice(16, 4096, 4096, layout="nt", precision=HIGHEST).startswith("wgmma")
    assert plan(Problem(16, 4096, 4096, precision=IEEE, b=(1, 4096), prepared=True)).tensor is None


@settings(max_examples=300, deadline=None)
@given(
    st.tuples(size, size, st.integers(1, 1 << 18), st.integers(1, 100)),  # CUDA cores take more than 2^31 tiles
    *(st.sampled_from([F16, BF16]), st.booleans(), st.booleans(), st.booleans()),
)
def test_splits_of_half_precision(
    plan: Ask, product: tuple[int, ...], dtype: int, k_major: bool, gated: bool, batch_invariant: bool
) -> None:
    m, n, k, batch = product
    b = (1, k) if k_major else (n, 1)
    here = plan(Problem(m, n, k, batch, dtype, b=b, gated=gated, batch_invariant=batch_invariant)).tensor
    if here is None:
        assert n < 8 or k < 16
        return
    assert (here.cluster, here.memory_splits) in ((1, 1), (here.splits, 1), (1, here.splits))
    assert here.cluster <= 8
    assert here.splits <= 128
    assert (here.splits - 1) * here.split_length < k <= here.splits * here.split_length  # no empty split
    assert here.split_length % 256 == 0  # a multiple of every tile's k-step
    if here.swapped:  # C^T: the tile's columns lie along the rows of C
        assert min(m, n) > 64 and n % 8 == 0 and here.splits == 1 and not gated and int(here.tile.split("x")[1]) >= 128
        assert here.columns % 16 == 0
        m, n, k_major = n, m, True
    rows, columns = -(-m // HALF_TILE_ROWS[here.tile]), -(-n // here.columns)
    shares_a = HALF_TILE_ROWS[here.tile] > int(here.tile.split("x")[1])
    assert not here.multicast or (here.cluster == here.memory_splits == 1 and not gated)
    assert not here.multicast or (columns > 1 and m >= 16 if shares_a else rows > 1 and here.columns % 16 == 0)
    assert not gated or m <= 64 or HALF_TILE_ROWS[here.tile] == 128
    most = int(here.tile.split("x")[1]) // (2 if gated else 1)
    assert here.columns % 8 == 0
    assert 8 <= here.columns <= most
    b_along_k = k_major or n == 1 or here.copied_b  # a copy lies along k; one column does, too
    narrow = here.columns % 16 == 0 and 2 * here.columns > most and not gated  # of 128 rows: a wgmma of that width
    assert here.columns == most or (narrow if most >= 128 else b_along_k and batch == 1 and m <= 64)
    tiles = rows * columns * batch
    held = here.memory_splits * tiles if here.memory_splits > 1 else 0
    assert held <= 132
    assert here.partials == held * HALF_TILE_ROWS[here.tile] * most * 4
    assert here.splits == here.memory_splits or most <= 128  # no registers for a split's sums
    assert batch_invariant or here.splits in (here.cluster, here.memory_splits)  # else one CTA adds them


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
    choice: Callable[..., str],
    product: tuple[int, ...],
    mode: tuple[int, int],
    gated: bool,
    major: int,
    sm_count: int,
    data: st.DataObject,
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


def test_batch_invariant_rows_that_once_differed(choice: Callable[..., str]) -> None:
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


def test_by_default_splits_of_half_precision_may_depend_on_m(choice: Callable[..., str]) -> None:
    few, many = (choice(m, 488, 3808, layout="nt", dtype=BF16) for m in (16, 9255))
    assert order_of(few)[1] != "1"
    assert order_of(many)[1] == "1"
