"""csrc/attention/plan, without a GPU: the choice of the kernel, tiles of rows and splits of keys."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from common import compile_program

PROGRAM = r"""
#include <iostream>
#include "attention/simt/plan.h"
using namespace xgemm::attention;
int main() {
  for (const SimtTile& t : kSimtTiles)
    std::cout << t.fp64 << ' ' << t.head_size << ' ' << t.thread_rows << ' ' << t.keys << ' ' << t.rows() << ' '
              << t.blocks << ' ' << t.shared_bytes() << '\n';
  std::cout << kSplitKeys << std::endl;
  SimtProblem p;
  while (std::cin >> p.fp64 >> p.batches >> p.rows >> p.key_end >> p.d >> p.dv >> p.sm_count) {
    const SimtPlan q = plan_simt(p);
    std::cout << q.tile << ' ' << q.row_tiles << ' ' << q.splits << ' ' << q.parallel << ' ' << q.blocks << ' '
              << q.partials << std::endl;
  }
}
"""
TILE = ("fp64", "head_size", "thread_rows", "keys", "rows", "blocks", "shared_bytes")
PLAN = ("tile", "row_tiles", "splits", "parallel", "blocks", "partials")
HEAD_SIZES = [0, 1, 31, 32, 33, 64, 65, 128, 129, 256]
H200_SMS = 132


class Planner:
    def __init__(self, program: Path) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([str(program)], stdin=pipe, stdout=pipe, text=True)
        self.tiles: list[dict[str, int]] = []
        while len(numbers := self.read()) > 1:
            self.tiles.append(dict(zip(TILE, numbers, strict=True)))
        self.split_keys = numbers[0]

    def read(self) -> list[int]:
        assert self.process.stdout
        return [int(x) for x in self.process.stdout.readline().split()]

    def __call__(
        self, *, rows: int, sk: int, d: int, dv: int | None = None, batches: int = 1, fp64: bool = False
    ) -> dict:
        assert self.process.stdin
        numbers = (int(fp64), batches, rows, sk, d, d if dv is None else dv, H200_SMS)
        self.process.stdin.write(" ".join(map(str, numbers)) + "\n")
        self.process.stdin.flush()
        return dict(zip(PLAN, self.read(), strict=True))


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Planner:
    return Planner(compile_program(tmp_path_factory.mktemp("plan"), PROGRAM, "attention/simt/plan.cpp"))


def test_tiles_fit_the_gpu(plan: Planner) -> None:
    """An H200's SM has shared memory for each tile's number of blocks, an A100's for one block."""
    for tile in plan.tiles:
        assert tile["blocks"] * (tile["shared_bytes"] + 1024) <= 228 * 1024, tile
        assert tile["shared_bytes"] <= 163 * 1024, tile
        assert plan.split_keys % tile["keys"] == 0


def every_problem(plan: Planner, check: Callable[..., None]) -> None:
    for fp64 in (False, True):
        for d in HEAD_SIZES:
            for dv in HEAD_SIZES:
                check(plan, fp64=fp64, d=d, dv=dv)


def test_the_tile_holds_the_head(plan: Planner) -> None:
    def check(plan: Planner, **problem: int) -> None:
        for rows in (1, 8, 24, 25, 64, 100_000):
            tile = plan.tiles[plan(rows=rows, sk=77, **problem)["tile"]]
            assert tile["fp64"] == problem["fp64"] and max(problem["d"], problem["dv"]) <= tile["head_size"]

    every_problem(plan, check)


def test_bits_depend_on_neither_rows_nor_batch(plan: Planner) -> None:
    """A row's order of additions (keys per step, splits) is the same for every number of rows and batches."""

    def check(plan: Planner, **problem: int) -> None:
        for sk in (1, 1024, 1025, 70_000):
            orders = set()
            for rows, batches in ((1, 1), (24, 7), (25, 1), (64, 4096), (10**6, 3)):
                p = plan(rows=rows, batches=batches, sk=sk, **problem)
                orders.add((plan.tiles[p["tile"]]["keys"], p["splits"]))
            assert len(orders) == 1, (problem, sk, orders)

    every_problem(plan, check)


def test_splits_cover_the_keys(plan: Planner) -> None:
    for sk in (0, 1, 1023, 1024, 1025, 2048, 2**31 - 2000):
        p = plan(rows=1, sk=sk, d=64)
        assert p["splits"] == max(1, -(-sk // plan.split_keys))


def test_few_rows_fill_the_gpu_many_need_no_workspace(plan: Planner) -> None:
    decode = plan(rows=1, batches=8, sk=65536, d=128)
    assert decode["parallel"] and decode["blocks"] == 8 * 64 and decode["partials"] == 64
    prefill = plan(rows=8192, batches=32, sk=8192, d=128)
    assert not prefill["parallel"] and prefill["blocks"] == 128 * 32 and prefill["partials"] == 1
    assert plan(rows=8192, batches=32, sk=1024, d=128)["partials"] == 0


def test_workspace_is_linear(plan: Planner) -> None:
    """Partial results: at most one per row, or splits of rows too few to fill the GPU."""
    for rows in (1, 64, 4096, 16384, 10**6):
        for batches in (1, 16, 512):
            for sk in (1024, 10**4, 10**6):
                p = plan(rows=rows, batches=batches, sk=sk, d=128)
                if p["partials"] > 1:
                    assert p["row_tiles"] * batches < 3 * H200_SMS
                assert p["blocks"] == p["row_tiles"] * batches * (p["splits"] if p["parallel"] else 1)


WGMMA_PROGRAM = r"""
#include <iostream>
#include "attention/tiles/plan.h"
#include "attention/wgmma/tiles.h"
using namespace xgemm::attention;
int main() {
  Problem p{.table = kWgmmaTiles, .possible = true, .sm_count = 132};
  while (std::cin >> p.batches >> p.group >> p.sq >> p.sk >> p.d >> p.causal) {
    p.dv = p.d, p.key_end = p.sk;
    const auto plan = plan_tiles(p);
    std::cout << plan->info().consumers << ' ' << plan->info().keys << ' ';
    std::cout << plan->splits << ' ' << plan->split_tiles << '\n';
  }
}
"""


@pytest.fixture(scope="module")
def wgmma(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[int]]:
    """Warpgroups and keys of the tile, splits and their tiles of keys."""
    program = compile_program(tmp_path_factory.mktemp("wgmma_plan"), WGMMA_PROGRAM, "attention/tiles/plan.cpp")

    def ask(heads: int, sq: int, sk: int = 0, *, group: int = 1, d: int = 64, causal: bool = False) -> list[int]:
        question = f"{heads} {group} {sq} {sk or sq} {d} {int(causal)}"
        return [int(x) for x in subprocess.check_output([str(program)], input=question, text=True).split()]

    return ask


def test_head_size_64_takes_the_tile_with_less_work(wgmma: Callable[..., list[int]]) -> None:
    many = 1024  # heads, that is tiles for every SM
    assert [wgmma(many, s)[0] for s in (192, 384, 768, 1536, 2048, 16384)] == [3] * 6
    assert [wgmma(many, s)[0] for s in (128, 197, 256, 577, 640)] == [2] * 5  # 192 rows would be more empty
    assert wgmma(16, 512)[0] == 2  # 48 tiles of 192 rows leave more SMs without work than 64 of 128
    assert [wgmma(many, s, causal=True)[0] for s in (512, 1024)] == [2, 2]
    assert [wgmma(many, s, causal=True)[0] for s in (2048, 16384)] == [3, 3]
    assert wgmma(many, 512, d=128)[0] == 2 and wgmma(many, 2048, d=128)[0] == 3


def test_order_of_additions_depends_on_no_batch(wgmma: Callable[..., list[int]]) -> None:
    for d in (64, 128, 256):
        for sq, sk in ((70, 5000), (197, 197), (300, 20000), (512, 512), (700, 16000), (5000, 5000)):
            for causal in (False, True):
                assert len({tuple(wgmma(heads, sq, sk, d=d, causal=causal)[1:]) for heads in (1, 16, 100, 5000)}) == 1
