"""The plan of kernels/direct_fp32.cuh, without a GPU: direct_plan.cpp is compiled and asked."""

from collections.abc import Callable

import pytest
from common import by_name, compile_program, conversation
from hypothesis import given, settings
from hypothesis import strategies as st

PROGRAM = r"""
#include <iostream>
#include <string>
#include "matmul/direct_plan.h"
using namespace xgemm;
using namespace xgemm::matmul;
// Reads: dtype precision batch_invariant gated major m n k batch b_row b_col b_offset sm_count forced("-": none).
int main() {
  int dtype, precision, major;
  std::int64_t offset;
  std::string forced;
  while (true) {
    Problem p;
    DeviceProperties gpu{.smem_per_block = 227 * 1024, .smem_per_sm = 228 * 1024};
    std::cin >> dtype >> precision >> p.batch_invariant >> p.gated >> major >> p.m >> p.n >> p.k >> p.batches;
    if (!(std::cin >> p.b.row_stride >> p.b.col_stride >> offset >> gpu.sm_count >> forced))
      return 0;
    gpu.major = major;
    p.dtype = static_cast<DType>(dtype);
    p.precision = static_cast<Precision>(precision);
    p.batch_dims = 1;
    p.batch[0] = p.batches;
    p.a.row_stride = p.k, p.a.col_stride = 1, p.a.batch_stride[0] = p.m * p.k, p.b.batch_stride[0] = p.n * p.k;
    p.a.data = reinterpret_cast<const void*>(4096);
    p.b.data = reinterpret_cast<const void*>(4096 + offset);
    const auto d = plan_direct(p, gpu, forced == "-" ? "" : forced);
    if (d)
      std::cout << info(d->tile).name << ' ' << info(d->tile).rows << ' ' << d->b_tma << ' '
                << d->tiles << ' ' << d->blocks << ' ' << d->granule
                << ' ' << d->units << ' ' << d->ctas << ' ' << d->partial_bytes << ' '
                << d->seconds << std::endl;
    else
      std::cout << "-" << std::endl;
  }
}
"""
FIELDS = ["name", "rows", "tma", "tiles", "blocks", "granule", "units", "ctas", "partial_bytes", "seconds"]
HIGHEST, IEEE, HIGH = 0, 1, 2
Ask = Callable[..., "dict[str, float | str] | None"]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory):
    program = compile_program(tmp_path_factory.mktemp("plan"), PROGRAM, "matmul/plan.cpp", "matmul/direct_plan.cpp")
    with conversation(program) as answer:

        def ask(
            m: int,
            n: int,
            k: int,
            batch: int = 1,
            *,
            k_major: bool = False,
            offset: int = 0,
            dtype: int = 0,
            precision: int = HIGHEST,
            batch_invariant: bool = False,
            gated: bool = False,
            major: int = 9,
            sm_count: int = 132,
            forced: str = "-",
        ) -> "dict[str, float | str] | None":
            strides = (1, k) if k_major else (n, 1)
            return by_name(
                FIELDS,
                answer(
                    dtype,
                    precision,
                    int(batch_invariant),
                    int(gated),
                    major,
                    m,
                    n,
                    k,
                    batch,
                    *strides,
                    offset,
                    sm_count,
                    forced,
                ),
            )

        yield ask


def test_only_where_it_applies(plan: Ask) -> None:
    assert plan(64, 256, 256)["name"].startswith("direct_")
    for other in (
        {"dtype": 1},
        {"dtype": 3},
        {"precision": IEEE},
        {"batch_invariant": True},
        {"gated": True},
        {"major": 8},
        {"forced": "simt_64x64"},
    ):
        assert plan(64, 256, 256, **other) is None, other
    assert plan(64, 256, 256, forced="direct_32x128")["rows"] == 32
    assert plan(16, 256, 256, forced="direct_64x128")["rows"] == 64
    assert plan(64, 256, 256, precision=HIGH) == plan(64, 256, 256)  # three parts whatever the precision


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_unit_has_one_owner_and_shared_tiles_have_memory(plan: Ask, data: st.DataObject) -> None:
    m, n, k = (data.draw(st.integers(1, 9000)) for _ in range(3))
    batch, sm_count = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 140))
    p = plan(m, n, k, batch, sm_count=sm_count)
    assert p["tiles"] == -(-m // p["rows"]) * -(-n // 128) * batch
    assert p["blocks"] == -(-k // 64)
    assert p["units"] == -(-p["blocks"] // p["granule"])
    total = p["tiles"] * p["units"]
    assert 1 <= p["ctas"] <= min(sm_count, total)  # no CTA without work
    starts = [cta * total // p["ctas"] for cta in range(p["ctas"] + 1)]
    shares = any(start % p["units"] for start in starts)
    assert not shares or p["partial_bytes"] == 2 * p["ctas"] * p["rows"] * 128 * 4


def test_few_tiles_share_and_alignment_changes_no_tile(plan: Ask) -> None:
    few = plan(16, 4096, 4096)  # 32 tiles for 132 multiprocessors
    assert few["ctas"] > 100
    assert few["partial_bytes"] > 0
    aligned, odd = plan(100, 1000, 3000), plan(100, 1000, 3000, offset=4)
    assert aligned["tma"]
    assert not odd["tma"]
    assert {key: aligned[key] for key in FIELDS if key not in ("tma", "seconds")} == {
        key: odd[key] for key in FIELDS if key not in ("tma", "seconds")
    }
    assert odd["seconds"] > aligned["seconds"]
