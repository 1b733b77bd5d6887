"""Plans of products, asked without a GPU: a C++ program for each plan reads problems as `ask` writes them.

The planners of csrc/matmul are compiled once for all these programs.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from common import CSRC, by_name, compile_host_code, compile_program, conversation

HIGHEST, IEEE, HIGH, MEDIUM = range(4)
Ask = Callable[..., "dict[str, float | str] | str | None"]

# A plan's program follows: it includes its plan's header, and answers each Question that it reads by a line.
READER = r"""
#include <iostream>
#include <string>
#include "matmul/simt/plan.h"
using namespace xgemm;
using namespace xgemm::matmul;
struct Question {
  Problem p;
  DeviceProperties gpu{.smem_per_block = 227 * 1024, .smem_per_sm = 228 * 1024};
  std::string forced;
};
bool read(Question& q) {
  int dtype, precision, major;
  bool prepared, residual;
  std::int64_t a_offset, b_offset;
  q = {};
  Problem& p = q.p;
  std::cin >> dtype >> precision >> p.batch_invariant >> p.gated >> prepared >> residual >> major;
  std::cin >> p.m >> p.n >> p.k >> p.batches;
  std::cin >> p.a.row_stride >> p.a.col_stride >> a_offset >> p.b.row_stride >> p.b.col_stride >> b_offset;
  if (!(std::cin >> q.gpu.sm_count >> q.forced))
    return false;
  if (q.forced == "-")
    q.forced.clear();
  q.gpu.major = major;
  p.dtype = static_cast<DType>(dtype);
  p.precision = static_cast<Precision>(precision);
  p.batch_dims = p.batches > 1;
  p.batch[0] = p.batches;
  p.a.batch_stride[0] = p.batches > 1 ? p.m * p.k : 0, p.b.batch_stride[0] = p.batches > 1 ? p.n * p.k : 0;
  p.a.data = reinterpret_cast<const void*>(4096 + a_offset);
  p.b.data = reinterpret_cast<const void*>(4096 + b_offset);
  if (p.gated)
    p.up = p.b;
  if (prepared)
    p.prepared_b = p.b.data;
  if (residual)
    p.residual = {.data = p.a.data, .row_stride = p.n, .col_stride = 1};
  return true;
}
"""


def planners(factory: pytest.TempPathFactory) -> list[Path]:
    """Object files of the planners and of the choice between them."""
    folder = factory.getbasetemp() / "matmul_planners"
    if not folder.exists():
        folder.mkdir()
        for source in CSRC.glob("matmul/**/plan.cpp"):
            compile_host_code(folder, "-c", source, "-o", f"{source.parent.name}.o")
    return sorted(folder.glob("*.o"))


def plan_fixture(program: str, fields: Sequence[str] = (), usually: int = HIGHEST) -> Callable:
    """A fixture that asks `program`, which follows READER; `usually`: the precision where none is named.

    The answer is a dict of `fields`, or the line itself where there are none.
    """

    @pytest.fixture(scope="module")
    def plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
        compiled = compile_program(tmp_path_factory.mktemp("plan"), READER + program, *planners(tmp_path_factory))
        with conversation(compiled) as answer:

            def ask(
                m: int,
                n: int,
                k: int,
                batch: int = 1,
                *,
                layout: str = "nn",
                ld: int = 0,  # of A, where not the contiguous one
                strides: "tuple[tuple[int, int], tuple[int, int]] | None" = None,  # of A and B, instead of the layout's
                offset: int = 0,  # of A, in bytes
                offset_b: int = 0,
                dtype: int = 0,
                precision: int = usually,
                batch_invariant: bool = False,
                gated: bool = False,
                prepared: bool = False,
                residual: bool = False,
                major: int = 9,
                sm_count: int = 132,
                forced: str = "-",
            ) -> "dict[str, float | str] | str | None":
                flags = [int(batch_invariant), int(gated), int(prepared), int(residual), major]
                a = (1, ld or m) if layout[0] == "t" else (ld or k, 1)
                b = (1, k) if layout[1] == "t" else (n, 1)
                a, b = strides or (a, b)
                words = answer(dtype, precision, *flags, m, n, k, batch, *a, offset, *b, offset_b, sm_count, forced)
                return by_name(fields, words) if fields else " ".join(words)

            yield ask

    return plan
