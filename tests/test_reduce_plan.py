"""The reductions' host logic without a GPU: index maps, choice of kernel, split; compiled from plan.cpp itself."""

import itertools
import random
import subprocess

import pytest
import torch
from common import compile_program, run

DRIVER = r"""
#include <bit>
#include <cstdio>
#include <iostream>
#include <vector>
#include "reduce/plan.h"
#include "softmax/plan.h"
#include "topk_softmax/plan.h"
using namespace xgemm;
// a line: what dtype reduced-or-dim sms major, rank, sizes, strides. what: a Kind, 17 softmax, 18 division,
// 19 scaled_masked_softmax, 20 the tests for dense rows, 21 topk_softmax (sms: k); 100 more: with batch invariance
int main() {
  int what, dtype, sms, major, rank;
  unsigned long long mask;
  while (std::cin >> what >> dtype >> mask >> sms >> major >> rank) {
    std::vector<std::int64_t> sizes(rank), strides(rank);
    for (auto& s : sizes) std::cin >> s;
    for (auto& s : strides) std::cin >> s;
    DeviceProperties gpu{.major = major, .sm_count = sms, .smem_per_block = 227 * 1024};
    reduce::Source source{nullptr, static_cast<DType>(dtype), sizes, strides};
    const bool batch_invariant = what >= 100;
    what %= 100;
    if (what == 18) {
      std::printf("%lld\n", (long long)Divider::of(sizes[0]).divide(sizes[1]));
      continue;
    }
    if (what == 17) {
      auto p = softmax::make_plan("test", false, source, mask, source.dtype, gpu, batch_invariant);
      std::cout << int(p.kernel);
      for (const long long n : {p.threads, p.lanes, p.cluster}) std::cout << ' ' << n;
      for (const long long n : {p.outer, p.length, p.columns, p.chunk, p.tiles, p.blocks}) std::cout << ' ' << n;
      for (const long long n : {p.team, p.items, p.steps, p.beside, p.packed}) std::cout << ' ' << n;
      std::cout << std::endl;
      continue;
    }
    if (what == 19) {
      auto p = softmax::make_masked("test", source.dtype, softmax::MaskKind::boolean, 1, sizes, strides, strides, mask,
                                    batch_invariant);
      std::printf("%d %d %d %lld\n", int(p.kernel), p.lanes, p.steps, static_cast<long long>(p.blocks));
      continue;
    }
    if (what == 20) {
      std::printf("%d %d\n", reduce::has_dense_rows(source, mask),
                  std::popcount(mask) == 1 && softmax::has_dense_rows("test", source, std::countr_zero(mask)));
      continue;
    }
    if (what == 21) {
      const auto p = topk_softmax::make_plan("test", source, static_cast<int>(mask), sms, true, source.dtype);
      std::printf("kernel=%d vector=%d aligned=%d values=%d lanes=%d threads=%d rows=%lld blocks=%lld shared=%zu\n",
                  int(p.kernel), p.vector, p.aligned, p.values, p.lanes, p.threads, (long long)p.rows,
                  (long long)p.blocks, p.shared_bytes);
      for (std::int64_t r = 0; r < std::min<std::int64_t>(p.rows, 2000); ++r)
        std::printf("%lld %lld ", (long long)p.kept.offsets(r).in, (long long)p.kept.offsets(r).out);
      std::printf("\n");
      continue;
    }
    const reduce::Problem problem{.kind = static_cast<reduce::Kind>(what), .source = source, .reduced = mask,
                                  .out = source.dtype, .batch_invariant = batch_invariant};
    const auto plan = reduce::make_plan("test", problem, gpu);
    const auto& r = reduce::reduction_of(plan);
    const auto* columns = std::get_if<reduce::ColumnPlan>(&plan.kernel);
    std::printf("kernel=%zu outputs=%lld length=%lld threads=%d ctas=%lld workspace=%zu", plan.kernel.index(),
                (long long)r.outputs, (long long)r.length, r.threads, (long long)r.ctas, plan.workspace_bytes);
    const auto show = [](std::initializer_list<std::pair<const char*, std::int64_t>> fields) {
      for (const auto& [name, value] : fields) std::printf(" %s=%lld", name, (long long)value);
    };
    if (const auto* p = std::get_if<reduce::RowPlan>(&plan.kernel))
      show({{"vector", p->vector}, {"lanes", p->lanes}, {"run", p->run}, {"splits_per_run", p->splits_per_run},
            {"split_vectors", p->split_vectors}, {"splits", p->splits}, {"per_cta", p->per_cta},
            {"ctas_per_row", p->ctas_per_row}, {"cluster", p->cluster}, {"grouped", p->grouped}});
    if (const auto* p = std::get_if<reduce::ElementPlan>(&plan.kernel)) show({{"lanes", p->lanes}, {"rows", p->rows}});
    if (const auto* p = std::get_if<reduce::ShortColumnPlan>(&plan.kernel))
      show({{"width", p->width}, {"lanes", p->lanes}, {"teams", p->teams}});
    if (const auto* p = std::get_if<reduce::PackedPlan>(&plan.kernel))
      show({{"groups", p->groups}, {"lanes", p->lanes}});
    if (columns)
      show({{"aligned", columns->aligned}, {"lanes", columns->lanes}, {"span", columns->span}, {"tile", columns->tile},
            {"tiles", columns->tiles}, {"columns", columns->columns}, {"positions", columns->positions},
            {"run", columns->run}, {"repeat", columns->repeat}, {"fold_lanes", columns->fold_lanes},
            {"results", columns->results}, {"column_outputs", columns->column_outputs},
            {"blocks_loaded", columns->blocks_loaded}, {"split_positions", columns->split_positions},
            {"splits", columns->splits}});
    std::printf("\n");
    const bool small = r.outputs * r.length <= 20000;
    std::printf("%d", small);
    // A folded output q is columns (j * outputs + q) * run + i of every position, as far as the last position has them.
    const std::int64_t side_by_side = columns ? columns->column_outputs : 1;
    if (small)
      for (std::int64_t o = 0; o < r.outputs / side_by_side; ++o)
        for (std::int64_t q = 0; q < side_by_side; ++q) {
          auto at = r.kept.offsets(o);
          std::printf(" %lld", (long long)(at.out + q * (columns ? columns->column_out : 0)));
          if (!columns) {
            for (std::int64_t n = 0; n < r.length; ++n) std::printf(" %lld", (long long)(at.in + r.reduced.offset(n)));
            continue;
          }
          for (std::int64_t n = 0; n < columns->positions; ++n)
            for (std::int64_t j = 0; j < columns->repeat; ++j)
              for (std::int64_t i = 0; i < columns->run; ++i) {
                const std::int64_t c = (j * side_by_side + q) * columns->run + i;
                if (n < columns->positions - 1 || c < columns->cut)
                  std::printf(" %lld", (long long)(at.in + c * columns->column_stride + r.reduced.offset(n)));
              }
        }
    std::printf("\n");
  }
}
"""

F32, F16, BF16, F64 = range(4)
WIDTH = {F32: 4, F16: 8, BF16: 8, F64: 2}
SUM, AMAX, ARGMAX, LOGSUMEXP, CROSS_ENTROPY, MEAN_LOSS = 0, 2, 4, 6, 7, 8
SOFTMAX, DIVIDE, MASKED, DENSE_ROWS, TOPK = 17, 18, 19, 20, 21
BATCH_INVARIANT = 100  # on top of a kind
COPY, ROWS, ELEMENTS, SHORT_COLUMNS, COLUMNS, PACKED = range(6)  # the alternatives of reduce::Plan
SOFTMAX_FIELDS = ["kernel", "threads", "lanes", "cluster", "outer", "length", "columns", "chunk", "tiles", "blocks"]
SOFTMAX_FIELDS += ["team", "items", "steps", "beside", "packed"]
ROW_KERNEL, COLUMN_KERNEL, TWO_PASS, SHARED, ODD_ROWS, SINGLE_ELEMENTS = range(6)  # softmax::Kernel


@pytest.fixture(scope="module")
def planner(tmp_path_factory):
    sources = [*(f"reduce/{name}.cpp" for name in ("plan", "row_plan", "column_plan")), "softmax/plan.cpp"]
    sources.append("topk_softmax/plan.cpp")
    program = compile_program(tmp_path_factory.mktemp("plan"), DRIVER, *sources)

    def ask(lines):
        text = "\n".join(" ".join(map(str, line)) for line in lines)
        return [line.split() for line in run(program, input=text, check=True).stdout.splitlines()]

    return ask


def numbers(words):
    return [int(word) for word in words]


def fields(words):
    return {name: int(value) for name, value in (word.split("=") for word in words)}


def line(what, dtype, mask, sizes, strides=None, sms=132, major=9):
    return [what, dtype, mask, sms, major, len(sizes), *sizes, *(strides or torch.empty(sizes, device="meta").stride())]


def reduce_plan(planner, *args, **kwargs):
    return fields(planner([line(*args, **kwargs)])[0])


def softmax_plan(planner, *args, what=SOFTMAX, **kwargs):
    return dict(zip(SOFTMAX_FIELDS, numbers(planner([line(what, *args, **kwargs)])[0]), strict=True))


def test_division(planner):
    divisors = [1, 2, 3, 5, 7, 10, 641, 65536, 2**31 - 1, 2**31, 2**31 + 1, 2**40 + 15, 2**62 - 1]
    divisors += [random.randrange(1, 2**62) for _ in range(50)]
    cases = []
    for d in divisors:
        q = random.randrange(0, (2**63 - 1) // d + 1)
        cases += [(d, n) for n in (0, 1, d - 1, d, d + 1, q * d, max(q * d - 1, 0), 2**63 - 1, 2**31, 2**32)]
    answers = planner([[DIVIDE, 0, 0, 1, 9, 2, d, n, 0, 0] for d, n in cases])
    assert [int(a[0]) for a in answers] == [n // d for d, n in cases]


def test_index_maps_reach_every_element_once(planner):
    """Random shapes, permutations, slices and expansions: the same sets of offsets as nested loops give."""
    lines, wanted = [], []
    for _ in range(300):
        rank = random.randint(0, 5)
        sizes = [random.choice([1, 2, 3, 4, 7]) for _ in range(rank)]
        order = random.sample(range(rank), rank)
        strides, step = [0] * rank, 1
        for d in order:
            slice_step = random.choice([1, 1, 2])
            strides[d] = 0 if random.random() < 0.15 else step * slice_step
            step *= sizes[d] * slice_step
        mask = random.getrandbits(rank) if rank else 0
        what = random.choice([SUM, ARGMAX])
        lines.append(line(what, F32, mask, sizes, strides))
        kept = [d for d in range(rank) if not mask >> d & 1]
        gone = [d for d in range(rank) if mask >> d & 1]
        outputs = {}
        for o, index in enumerate(itertools.product(*(range(sizes[d]) for d in kept))):
            base = sum(i * strides[d] for i, d in zip(index, kept, strict=True))
            inner = itertools.product(*(range(sizes[d]) for d in gone))
            outputs[o] = [base + sum(i * strides[d] for i, d in zip(j, gone, strict=True)) for j in inner]
        wanted.append((what, outputs))
    answers = planner(lines)
    for (what, outputs), (plan, found) in zip(wanted, zip(answers[::2], answers[1::2], strict=True), strict=True):
        length, found = fields(plan)["length"], numbers(found)
        assert found[0] == 1
        groups = [found[1 + i : 2 + i + length] for i in range(0, len(found) - 1, length + 1)]
        assert len(groups) == len(outputs)
        for group in groups:
            positions = group[1:]
            if what == SUM:  # sums may take their elements in any fixed order
                assert sorted(positions) == sorted(outputs[group[0]])
            else:  # argmax counts positions in logical order
                assert positions == outputs[group[0]]


def test_cross_entropys_columns_keep_logsumexps_state(planner):
    for dtype in (F32, BF16, F64):
        pairs, losses = (reduce_plan(planner, what, dtype, 0b01, [5000, 700]) for what in (LOGSUMEXP, CROSS_ENTROPY))
        assert pairs["kernel"] == COLUMNS and pairs["splits"] > 1 and pairs["workspace"] > 0
        assert losses == pairs


def test_merging(planner):
    plan = reduce_plan(planner, SUM, F32, 0b1111, [8, 16, 32, 64])
    assert (plan["kernel"], plan["outputs"], plan["length"], plan["vector"]) == (ROWS, 1, 8 * 16 * 32 * 64, 1)
    plan = reduce_plan(planner, SUM, F32, 0b0011, [16, 64, 32, 64])
    assert (plan["kernel"], plan["columns"], plan["length"]) == (COLUMNS, 32 * 64, 16 * 64)
    transposed = reduce_plan(planner, SUM, F32, 0b01, [4096, 512], [1, 4096])  # dim 0 is the fast one
    assert (transposed["kernel"], transposed["outputs"], transposed["vector"]) == (ROWS, 512, 1)


@pytest.mark.parametrize("dtype", [F32, BF16, F64])
def test_with_batch_invariance_a_rows_length_decides_the_order(planner, dtype):
    counts = (1, 2, 7, 1000, 1 << 20)
    for n in (1, 3, 100, 128, 1000, 1605, 4097, 16384, 33000, 131072, 1 << 22):
        for what in (SUM, LOGSUMEXP, CROSS_ENTROPY):
            plans = [reduce_plan(planner, what + BATCH_INVARIANT, dtype, 0b10, [rows, n]) for rows in counts]
            assert len({p["kernel"] for p in plans}) == 1
            if plans[0]["kernel"] == COPY:
                continue
            # Splits of a CTA may depend on the number of rows, unless the CTA joins them itself.
            grouped = ("per_cta", "ctas_per_row") if plans[0]["grouped"] else ()
            for field in ("lanes", "split_vectors", "splits", "grouped", "vector", *grouped):
                assert len({p[field] for p in plans}) == 1, (n, field)
            # The number of warps that join a row's states may differ while each thread joins at most one.
            assert len({p["threads"] for p in plans}) == 1 or all(p["splits"] <= min(p["threads"], 128) for p in plans)
        softmax = [softmax_plan(planner, dtype, 1, [rows, n], what=SOFTMAX + BATCH_INVARIANT) for rows in counts]
        for field in ("kernel", "threads", "lanes", "cluster", "chunk", "steps"):
            assert len({p[field] for p in softmax}) == 1, (n, field)
        masked = [
            numbers(planner([line(MASKED + BATCH_INVARIANT, dtype, 1, [rows, n], strides)])[0])[:3]
            for rows, strides in ((1, [n, 1]), (7, [n, 1]), (7, [1, 7]), (7, [n + 1, 1]))
        ]
        assert all(m == masked[0] for m in masked)


def test_dense_rows(planner):
    """Rows of stride 1 whose elements lie in logical order; softmax's also evenly spaced, and in the last dim."""
    for sizes, strides, reduced, reduction, softmax in (
        *(([5, 7], [7, 1], 0b10, 1, 1), ([5, 7], [9, 1], 0b10, 1, 1), ([5, 7], [1, 5], 0b10, 0, 0)),
        *(([5, 7], [14, 2], 0b10, 0, 0), ([5, 7], [0, 1], 0b10, 1, 1), ([5, 7], [7, 1], 0b01, 0, 0)),
        *(([5, 7], [1, 5], 0b01, 1, 0), ([5, 7, 1], [7, 1, 1], 0b010, 1, 1), ([5, 1, 7], [7, 7, 1], 0b010, 1, 0)),
        *(([3, 5, 7], [35, 7, 1], 0b110, 1, 0), ([3, 5, 7], [35, 1, 5], 0b110, 0, 0)),
        *(([3, 5, 7], [35, 7, 1], 0b101, 0, 0), ([3, 5, 7], [40, 7, 1], 0b100, 1, 0)),
        ([3, 5, 7], [35, 7, 1], 0b111, 1, 0),
    ):
        assert numbers(planner([line(DENSE_ROWS, F32, reduced, sizes, strides)])[0]) == [reduction, softmax], sizes


@pytest.mark.parametrize("dtype", sorted(WIDTH))
def test_plans_cover_their_problem(planner, dtype):
    width, lengths = WIDTH[dtype], (1, 2, 15, 16, 17, 511, 512, 513, 2048, 8193, 32769, 1 << 20, (1 << 31) + 3)
    for rows, n in itertools.product((1, 5, 1000), lengths):
        p = reduce_plan(planner, SUM, dtype, 0b10, [rows, n])
        vectors = -(-n // width)
        if n == 1:
            assert p["kernel"] == COPY and p["workspace"] == 0
            continue
        assert p["lanes"] in (1, 2, 4, 8, 16, 32) and p["threads"] % 32 == 0 and p["threads"] <= 256
        assert (p["splits"] - 1) * p["split_vectors"] < vectors <= p["splits"] * p["split_vectors"]
        joined = p["ctas_per_row"] * p["per_cta"]
        assert joined - p["per_cta"] < max(p["splits"], p["per_cta"]) <= joined
        if p["splits"] == 1:
            assert (p["ctas"] - 1) * p["per_cta"] < rows <= p["ctas"] * p["per_cta"]
            assert p["per_cta"] % (p["threads"] // p["lanes"]) == 0 and p["split_vectors"] <= 512
        else:
            assert p["lanes"] == 32 and p["ctas"] == rows * p["ctas_per_row"] and p["per_cta"] <= 512
            assert p["threads"] == 256 or (p["splits"] <= min(p["threads"], 128) and p["ctas_per_row"] == 1)
        # CTAs of a row are a cluster of up to eight and reduce in shared memory; more use counters.
        assert p["cluster"] == (p["ctas_per_row"] if p["ctas_per_row"] <= 8 and not p["grouped"] else 1)
        assert (p["workspace"] > 0) == (p["ctas_per_row"] > p["cluster"]) and p["ctas"] < 2**31
        assert reduce_plan(planner, SUM, dtype, 0b10, [rows, n], major=8)["cluster"] == 1
        p = reduce_plan(planner, SUM, dtype, 0b01, [n, rows])
        if p["kernel"] == COLUMNS:
            assert (p["positions"] - 1) * p["repeat"] < n <= p["positions"] * p["repeat"]
            assert (p["splits"] - 1) * p["split_positions"] < p["positions"] <= p["splits"] * p["split_positions"]
            assert p["tiles"] * p["tile"] >= p["columns"] and p["ctas"] == p["tiles"] * p["splits"]
            assert (p["workspace"] > 0) == (p["splits"] > 1)


def test_tiles_of_columns_at_any_address(planner):
    """An unaligned tile has one vector less than lanes: its lanes read one more aligned block. That applies if all
    positions of a thread are equally misaligned."""
    for dtype, n, c in itertools.product((F32, BF16, F64), (3, 1000, 8192), (9, 33, 127, 300, 8192, 1 << 20)):
        for kind, step in itertools.product((SUM, ARGMAX, LOGSUMEXP), (1, 2, 16)):
            stride, width = c + -c % 16 + step, WIDTH[dtype]
            p = reduce_plan(planner, kind, dtype, 1, [n, c], [stride, 1])
            if p["kernel"] != COLUMNS:
                continue
            whole = stride % width == 0 and c % width == 0
            alike = p["threads"] // p["lanes"] * stride % width == 0
            assert p["aligned"] == whole and p["span"] == p["lanes"] - (not whole and alike)
            assert p["tiles"] * p["span"] * width >= c > (p["tiles"] - 1) * p["span"] * width
            assert p["ctas"] == p["tiles"] * p["splits"]


@pytest.mark.parametrize("dtype", [F32, BF16, F64])
def test_folded_tiles_hold_whole_outputs(planner, dtype):
    """A folded tile leaves a lane for one more aligned block; a thread's positions are equally misaligned."""
    width, seen = WIDTH[dtype], set()
    for n, c, s in itertools.product((9, 700, 5000), (2, 3, 16, 45, 143), (1, 2, 3, 53, 223)):
        p = reduce_plan(planner, SUM, dtype, 0b101, [n, c, s])
        if p["kernel"] != COLUMNS or p["fold_lanes"] == 0:
            continue
        seen.add((p["run"] > 1, p["repeat"] > 1))
        joined = p["run"] * p["repeat"]
        assert p["run"] == s and p["columns"] == c * joined and p["column_outputs"] == c
        assert p["tile"] % joined == 0 and p["tile"] <= (p["lanes"] - 1) * width
        assert p["tile"] == p["columns"] or p["repeat"] == 1
        assert p["results"] * joined >= p["tile"] and p["results"] <= p["threads"] * width
        assert p["blocks_loaded"] == (c * joined >= width)
        assert p["repeat"] == 1 or p["blocks_loaded"]  # which end where the last of the positions side by side does
    assert (True, False) in seen and (False, True) in seen


def test_plans_of_reduced_sets_that_were_slow(planner):
    """16-byte reads and enough CTAs, whatever the reduced dims are."""
    for what, dtype, sizes, reduced, kernel, wanted in (
        (SUM, F16, [83, 2741, 16, 3], 0b1011, COLUMNS, {"run": 3, "tile": 48}),
        (SUM, F16, [8, 9, 5, 223], 0b1001, ELEMENTS, {"lanes": 224}),
        (SUM, BF16, [70001, 2], 0b01, COLUMNS, {"run": 1, "repeat": 252, "splits": 3}),
        (SUM, BF16, [9, 6, 53], 0b101, ELEMENTS, {"lanes": 64, "threads": 64}),  # small tiles
        (SUM, F32, [5000, 399, 9], 0b010, COLUMNS, {}),
        (SUM, F64, [700, 5], 0b01, COLUMNS, {}),
        (ARGMAX, F32, [2017, 65], 0b01, COLUMNS, {}),
        (ARGMAX, F32, [4096, 3], 0b01, ELEMENTS, {}),
        (ARGMAX, F32, [4097, 3], 0b01, COLUMNS, {}),
        (ARGMAX, F32, [5000000, 13], 0b01, COLUMNS, {"repeat": 16, "tile": 208}),
        (SUM, F32, [128, 1000, 1000], 0b010, COLUMNS, {"splits": 1, "ctas": 1024}),
        (ARGMAX, F32, [12345, 6789], 0b01, COLUMNS, {"splits": 4}),
        (SUM, F32, [3, 59, 3, 6965], 0b1101, ROWS, {"splits_per_run": 11, "splits": 33}),
        (LOGSUMEXP, BF16, [29005, 3, 1, 994], 0b1101, ROWS, {"splits_per_run": 1, "splits": 29005, "grouped": 1}),
        (SUM, F16, [6, 3, 109, 1], 0b1010, SHORT_COLUMNS, {"teams": 1}),
        (SUM, F32, [4, 2, 16, 912], 0b0001, SHORT_COLUMNS, {"teams": 1, "ctas": 228}),
        (SUM, F64, [300, 32, 912], 0b010, ELEMENTS, {"lanes": 4}),
        (SUM, F32, [2048, 2, 512], 0b010, SHORT_COLUMNS, {}),
        (SUM, F32, [20, 33, 500], 0b010, COLUMNS, {}),
        (SUM, BF16, [64, 4096], 0b01, SHORT_COLUMNS, {"teams": 8, "width": 1}),
        (SUM, BF16, [65, 4096], 0b01, SHORT_COLUMNS, {"teams": 9, "width": 8, "threads": 72}),
        (ARGMAX, F32, [2, 256, 1000], 0b010, SHORT_COLUMNS, {"teams": 16, "width": 4, "threads": 128}),
        (SUM, F32, [64, 150, 4096], 0b010, SHORT_COLUMNS, {"width": 4, "threads": 128}),
        (SUM, BF16, [768, 4096], 0b01, SHORT_COLUMNS, {"teams": 16}),
        (SUM, BF16, [769, 4096], 0b01, COLUMNS, {}),
        (LOGSUMEXP, BF16, [512, 4096], 0b01, SHORT_COLUMNS, {"teams": 16}),
        (LOGSUMEXP, BF16, [513, 4096], 0b01, COLUMNS, {}),
        (ARGMAX, BF16, [1024, 4096], 0b01, SHORT_COLUMNS, {}),
        (ARGMAX, BF16, [1025, 4096], 0b01, COLUMNS, {}),
        (SUM, BF16, [300, 16, 1001], 0b010, SHORT_COLUMNS, {"teams": 1}),
        (SUM, F32, [3, 40, 2, 3000], 0b0101, COLUMNS, {"blocks_loaded": 0}),
        (SUM, F16, [200000, 9, 6], 0b010, PACKED, {"groups": 75, "lanes": 1, "ctas": 2667}),
        (ARGMAX, BF16, [501, 301, 3], 0b010, PACKED, {"groups": 1, "lanes": 16}),
        (SUM, F16, [100000, 16, 2], 0b010, PACKED, {"lanes": 4}),  # groups of 32 elements: all begin in one bank
        (SUM, F64, [1270411, 3, 2], 0b010, ELEMENTS, {}),
        (SUM, F16, [400000, 7, 2], 0b010, SHORT_COLUMNS, {}),
        (SUM, F32, [300000, 4, 4], 0b010, SHORT_COLUMNS, {}),
        (SUM, F32, [1000, 9, 6], 0b010, ELEMENTS, {}),
        (ARGMAX, F32, [1, 11017, 7803], 0b001, COPY, {}),
        (SUM, BF16, [264, 1605], 0b10, ROWS, {"split_vectors": 128, "splits": 2, "threads": 64}),
        (SUM, BF16, [265, 1605], 0b10, ROWS, {"splits": 1, "lanes": 16}),
        (SUM, F32, [132, 16384], 0b10, ROWS, {"split_vectors": 128, "splits": 32, "cluster": 4}),
        (SUM, F32, [1, 100000], 0b10, ROWS, {"split_vectors": 512, "splits": 49}),
        (SUM, F32, [43308259], 0b1, ROWS, {"grouped": 1, "ctas": 523}),
    ):
        p = reduce_plan(planner, what, dtype, reduced, sizes)
        assert p["kernel"] == kernel and {f: p[f] for f in wanted} == wanted, (sizes, p)


def test_a_reduction_over_nothing_reads_nothing(planner):
    """An empty reduced dim beside others that would give runs of rows or folded columns."""
    for what, dtype in itertools.product((SUM, LOGSUMEXP, CROSS_ENTROPY), (F32, BF16, F64)):
        for sizes, strides, reduced in (
            *(([0, 500], [500, 1], 0b11), ([0, 500], [500, 1], 0b01), ([3, 0, 2, 500], [2000, 2000, 1000, 1], 0b1111)),
            *(([7, 3, 0, 2, 500], [6000, 2000, 2000, 1000, 1], 0b11110), ([0, 300, 40, 3], [36000, 120, 3, 1], 0b1011)),
        ):
            p = reduce_plan(planner, what, dtype, reduced, sizes, strides)
            assert p["kernel"] == ROWS and p["length"] == p["run"] == p["splits_per_run"] == 0, (sizes, p)
            assert p["splits"] == 1 and p["workspace"] == 0 and p["ctas"] > 0


def test_states_of_a_cluster_fit_shared_memory(planner):
    """row_shared_bytes() is one state per split; no attribute raises the row kernels' limit above 48 KiB."""
    clusters = 0
    for what, dtype, bytes_ in ((CROSS_ENTROPY, F64, 16), (CROSS_ENTROPY, F32, 8), (ARGMAX, F64, 16)):
        for rows, vectors in itertools.product((1, 60, 130, 260, 300, 500, 527, 600), (5000, 300000, 800000, 1 << 20)):
            p = reduce_plan(planner, what, dtype, 0b10, [rows, vectors * WIDTH[dtype]])
            clusters += p["cluster"] > 1
            held = p["splits"] if p["cluster"] > 1 else p["per_cta"]
            assert held * bytes_ <= 40 << 10, (what, rows, vectors, p)
    assert clusters > 0


@pytest.mark.parametrize(("what", "mask", "rows"), [(SUM, 0b10, 1024), (MASKED, 1, 2), (SOFTMAX, 1, 20000)])
def test_more_ctas_than_a_grid_has_are_an_error(planner, what, mask, rows):
    """A launch truncates the number of CTAs to 32 bits: 2^32 + 1 would become 1. An expanded dim takes no memory."""

    def plan(outer):
        return planner([line(what, BF16, mask, [outer, rows, 2], [0, 2, 1])])

    plan(2**24)
    with pytest.raises(subprocess.CalledProcessError) as error:
        plan(2**32 + 1)
    assert "fewer than 2^31 CTAs" in error.value.stderr


def test_keys_of_argmax_have_16_bits_of_position(planner):
    for dtype, n in itertools.product((F16, BF16), (100, 70001, 1 << 24, (1 << 31) + 3)):
        p = reduce_plan(planner, ARGMAX, dtype, 1, [n, 40])
        assert p["kernel"] != COLUMNS or p["split_positions"] <= 1 << 16


def test_the_mean_of_losses_has_few_steps_per_warp(planner):
    for n, steps in ((2049, 1), (5000, 1), (32768, 1), (32769, 2), (98304, 3)):
        p = reduce_plan(planner, MEAN_LOSS, F32, 0b1, [n])
        assert p["split_vectors"] == 128 * steps and p["ctas_per_row"] == p["cluster"] <= 8 and p["workspace"] == 0
    p = reduce_plan(planner, MEAN_LOSS, F32, 0b1, [(1 << 18) + 1])
    assert p["split_vectors"] == 512 and p["cluster"] == 1 and p["workspace"] > 0


@pytest.mark.parametrize("major", [8, 9])
@pytest.mark.parametrize("dtype", [F32, BF16, F64])
def test_softmax_plans_cover_their_problem(planner, dtype, major):
    width = WIDTH[dtype]
    lengths = (1, 2, 31, 33, 100, 128, 257, 513, 1000, 1024, 1025, 4097, 8192, 16385, 50257, 131072, 262144, 524288)
    for n in (*lengths, 1 << 19, 1 << 22):
        p = softmax_plan(planner, dtype, 1, [3, n], major=major)
        vectors = -(-n // width)
        if p["kernel"] == TWO_PASS:
            assert vectors * 16 > (16 * 224 * 1024 if major == 9 else 64 * 1024)
            continue
        assert p["threads"] <= 1024 and (p["lanes"] <= 32 or p["lanes"] == p["threads"])
        assert p["blocks"] == (-(-3 * p["lanes"] // p["threads"]) if p["lanes"] <= 32 else 3 * p["cluster"])
        if p["kernel"] == SINGLE_ELEMENTS:
            assert n % width != 0 and p["beside"] == 1 and p["steps"] <= 10 and n <= p["lanes"] * p["steps"]
            assert p["steps"] <= 5 or p["lanes"] >= 32
            continue
        assert n > 1
        if p["kernel"] == ROW_KERNEL:
            assert p["cluster"] == 1 and 4 * p["lanes"] >= vectors
        elif p["kernel"] == ODD_ROWS:  # a row may touch one aligned 16-byte block more than its length needs
            assert n % width != 0 and p["lanes"] <= 16 and -(-(n + width - 1) // width) <= 5 * p["lanes"]
        else:
            assert p["kernel"] == SHARED and major == 9 and (p["cluster"] <= 8 or p["cluster"] == 16)
            assert (p["cluster"] - 1) * p["chunk"] < vectors <= p["cluster"] * p["chunk"]
            assert p["threads"] // p["lanes"] * (16 * p["chunk"] + 32) <= 225 * 1024


@pytest.mark.parametrize("major", [8, 9])
@pytest.mark.parametrize("dtype", [F32, BF16, F64])
def test_softmax_columns_cover_their_problem(planner, dtype, major):
    """Few elements by single ones; else 16 to 48 positions per thread, blocks of whole teams, up to 256 threads."""
    width, held = WIDTH[dtype], 2048 if major == 8 else 3 * 8192 if dtype == BF16 else 8192
    short = (2, 3, 8, 9, 100, 257, 500, 513, 1000, 1024, 1025, 2048, 2049, 8192)
    lengths = (*short, 8193, 16384, 16385, 24576, 24577, 1 << 20)
    for n, c in itertools.product(lengths, (2, 3, 9, 64, 4096)):
        p = softmax_plan(planner, dtype, 1, [5, n, c], major=major)
        if p["kernel"] == SINGLE_ELEMENTS:
            lanes, beside = p["lanes"], p["beside"]
            assert n <= p["steps"] * lanes and p["steps"] <= 10 and lanes * beside <= 512
            assert p["threads"] == (128 if lanes * beside <= 32 else lanes * beside) and beside <= 32
            assert p["blocks"] * p["threads"] // lanes >= 5 * c > (p["blocks"] - 1) * p["threads"] // lanes
            assert 5 * n * c <= (1 << 22) or (lanes == 1 and c % width != 0)
            continue
        assert p["kernel"] == (TWO_PASS if n > held else COLUMN_KERNEL)
        assert n > 5120 or 5 * n * c > (1 << 18)
        if p["kernel"] != COLUMN_KERNEL:
            continue
        team, lanes, cluster, cell = p["team"], p["lanes"], p["cluster"], 16 * -(-n // 8192)
        assert lanes in (1, 2, 4, 8) and p["tiles"] * lanes * width >= c > (p["tiles"] - 1) * lanes * width
        assert p["threads"] % 32 == 0 and p["threads"] <= team * p["items"] <= 256 and team % lanes == 0
        assert cluster <= (16 if major == 9 else 1) and (cluster == 1 or p["threads"] == team == 32 * lanes)
        assert p["items"] == 1 or p["threads"] == team * p["items"] == 128
        assert p["chunk"] == team // lanes * cell and p["chunk"] * cluster >= n
        assert p["items"] > 1 or p["threads"] // lanes * cell * cluster >= n
        assert p["blocks"] == -(-5 * p["tiles"] // p["items"]) * cluster


def test_few_softmax_rows_are_single_elements(planner):
    """Odd rows of up to 2^19 threads (fp32 by several warps: 2^17), and more rows where no other kernel is as fast."""
    of_one = (F32, 50, ODD_ROWS), (F32, 63, SINGLE_ELEMENTS), (BF16, 100, ODD_ROWS), (BF16, 401, ODD_ROWS)
    of_hundred = ((dtype, n, SHARED) for dtype, n in ((F32, 993), (F32, 1025), (BF16, 993), (BF16, 8193)))
    for few, rows in ((1, of_one), (100, of_hundred)):
        for dtype, n, many in rows:
            assert softmax_plan(planner, dtype, 1, [few, n])["kernel"] == SINGLE_ELEMENTS
            assert softmax_plan(planner, dtype, 1, [1 << 19, n])["kernel"] == many, (dtype, n)
    for dtype, n in itertools.product((F32, BF16, F64), range(1, 700)):
        gap = softmax_plan(planner, dtype, 2, [3, 5, n], [5 * n + 1, n, 1])  # rows with two strides
        assert gap["kernel"] in (ROW_KERNEL, SHARED, ODD_ROWS)


def test_many_short_softmax_rows_are_packed(planner):
    """Whole vectors of rows side by side, as many as threads or more; else, and in batch-invariant mode, no rows."""
    for dtype, size in ((F32, 4), (BF16, 2)):
        for n in (3, 5, 7, 9, 13, 64 // size - 1):
            many = softmax_plan(planner, dtype, 1, [1 << 22, n])
            assert many["kernel"] == SINGLE_ELEMENTS
            assert many["packed"] % 8 == 0 and 256 <= many["packed"] <= (16 << 10) // (n * size)
            apart = softmax_plan(planner, dtype, 1, [1 << 22, n], [n + 1, 1])
            ordered = softmax_plan(planner, dtype, 1, [1 << 22, n], what=SOFTMAX + BATCH_INVARIANT)
            few = softmax_plan(planner, dtype, 1, [1 << 18, n])
            assert apart["packed"] == ordered["packed"] == few["packed"] == 0
        assert softmax_plan(planner, dtype, 1, [1 << 22, 64 // size + 1])["packed"] == 0  # more rows than fit


def test_small_softmax_columns_fill_the_gpu(planner):
    """A few columns of many positions: enough threads that each has at most ten elements."""
    columns = ([6, 163, 9], 32 * 54), ([1, 78, 6], 8 * 6), ([33, 145, 29], 16 * 957), ([6, 1689, 36], 256 * 216)
    for sizes, threads in columns:
        p = softmax_plan(planner, BF16, 1, sizes)
        assert p["kernel"] == SINGLE_ELEMENTS and p["blocks"] * p["threads"] >= threads, sizes


def test_few_long_rows_fill_the_gpu(planner):
    for n in (1 << 22, 1 << 24, 1 << 28):
        assert reduce_plan(planner, SUM, F32, 0b10, [1, n])["ctas"] >= 2 * 132
    assert reduce_plan(planner, SUM, F32, 0b01, [1 << 20, 128])["ctas"] >= 132


def test_more_dims_than_the_maps_hold_is_one_clear_error(planner):
    sizes, strides = [2] * 40, [3**i for i in range(40)]
    with pytest.raises(subprocess.CalledProcessError) as error:
        planner([line(SUM, F32, (1 << 40) - 1, sizes, strides)])
    assert "xgemm::test: expected at most 16 dims that cannot be merged, got 40" in error.value.stderr
