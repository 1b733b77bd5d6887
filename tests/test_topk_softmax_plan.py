"""topk_softmax's host logic without a GPU: where rows and results lie, lanes, blocks; compiled from plan.cpp itself."""

import random
import subprocess

import pytest
import torch
from common import compile_program

F32, F16, BF16, F64 = range(4)

DRIVER = r"""
#include <cstdio>
#include <iostream>
#include <vector>
#include "topk_softmax/plan.h"
using namespace xgemm;
// a line: dtype dim k rank, sizes, strides
int main() {
  int dtype, dim, k, rank;
  while (std::cin >> dtype >> dim >> k >> rank) {
    std::vector<std::int64_t> sizes(rank), strides(rank);
    for (auto& s : sizes) std::cin >> s;
    for (auto& s : strides) std::cin >> s;
    const auto in = static_cast<DType>(dtype);
    const auto p = topk_softmax::make_plan("test", {nullptr, in, sizes, strides}, dim, k, true, in);
    std::printf("%d %d %d %d %d %d %lld %lld %lld %lld %lld %zu", int(p.kernel), p.vector, p.aligned, p.values, p.lanes,
                p.threads, (long long)p.rows, (long long)p.length, (long long)p.stride, (long long)p.out_stride,
                (long long)p.blocks, p.shared_bytes);
    for (std::int64_t r = 0; r < std::min<std::int64_t>(p.rows, 2000); ++r)
      std::printf(" %lld %lld", (long long)p.kept.offsets(r).in, (long long)p.kept.offsets(r).out);
    std::printf("\n");
  }
}
"""

NAMES = ["kernel", "vector", "aligned", "values", "lanes", "threads", "rows", "length", "stride", "out_stride"]
NAMES += ["blocks", "shared"]


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    maps = (f"reduce/{name}.cpp" for name in ("plan", "row_plan", "column_plan"))
    program = compile_program(tmp_path_factory.mktemp("plan"), DRIVER, "topk_softmax/plan.cpp", *maps)

    def run(problems: list[tuple]) -> list[tuple[dict, list[int]]]:
        text = "".join(
            f"{dtype} {dim} {k} {len(sizes)} {' '.join(map(str, (*sizes, *strides)))}\n"
            for dtype, sizes, strides, dim, k in problems
        )
        output = subprocess.run([str(program)], input=text, capture_output=True, text=True, check=True).stdout
        rows = [list(map(int, line.split())) for line in output.splitlines()]
        return [(dict(zip(NAMES, row[:12], strict=True)), row[12:]) for row in rows]

    return run


def test_every_row_is_found_where_it_lies(plans):
    generator = random.Random(1)
    problems, wanted = [], []
    for _ in range(200):
        rank = generator.randint(1, 5)
        sizes = [generator.randint(1, 6) for _ in range(rank)]
        order = generator.sample(range(rank), rank)
        x = torch.empty([sizes[d] for d in order]).permute([order.index(d) for d in range(rank)])
        x = x[tuple(slice(None, None, generator.choice((1, 1, 2))) for _ in range(rank))]
        dim = generator.randrange(rank)
        k = generator.randint(1, x.shape[dim])
        problems.append((F32, list(x.shape), list(x.stride()), dim, k))
        y = torch.empty([k if d == dim else n for d, n in enumerate(x.shape)])
        heads = torch.cartesian_prod(*(torch.arange(1 if d == dim else n) for d, n in enumerate(x.shape)))
        strides = torch.tensor([x.stride(), y.stride()])
        wanted.append((heads.reshape(-1, rank) @ strides.mT).flatten().tolist())
    for (plan, offsets), where, problem in zip(plans(problems), wanted, problems, strict=True):
        assert offsets == where, problem
        assert plan["rows"] * 2 == len(where)


def test_plans_hold_the_row_and_fit(plans):
    problems = [
        (dtype, [rows, n], [n, 1], 1, k)
        for dtype in (F32, F16, BF16, F64)
        for n in (1, 8, 9, 63, 64, 65, 128, 129, 512, 1025, 5000, 50257, 200000, 2**31 - 1)
        for k in {min(n, k) for k in (1, 32, 33, 64)}
        for rows in (1, 1000, 2**40)
    ]
    by_row: dict[tuple, tuple] = {}
    for (plan, _), (dtype, sizes, _, _, k) in zip(plans(problems), problems, strict=True):
        n = sizes[1]
        assert plan["shared"] <= 48 << 10 and 0 < plan["blocks"] < 2**31
        assert plan["threads"] % plan["lanes"] == 0 and plan["threads"] % 32 == 0
        if plan["kernel"] == 0:
            assert plan["lanes"] * plan["values"] >= n and plan["lanes"] <= 32
        else:
            warps = plan["lanes"] // 32
            assert 1 <= warps <= 8 and -(-k // warps) <= 32
            assert plan["threads"] == plan["lanes"] or warps == 1
        # The order of additions does not depend on the number of rows.
        order = tuple(plan[name] for name in ("kernel", "values", "lanes"))
        assert by_row.setdefault((dtype, n, k), order) == order


def test_vectors_and_alignment(plans):
    cases = [
        *(((F32, [3, 8], [8, 1], 1, 2), (1, 1)), ((F32, [3, 7], [7, 1], 1, 2), (1, 0))),
        *(((BF16, [3, 12], [12, 1], 1, 2), (1, 0)), ((F32, [3, 8], [16, 2], 1, 2), (0, 0))),
        ((F64, [3, 8], [1, 3], 1, 2), (0, 0)),
    ]
    for (plan, _), (_, wanted) in zip(plans([problem for problem, _ in cases]), cases, strict=True):
        assert (plan["vector"], plan["aligned"]) == wanted
