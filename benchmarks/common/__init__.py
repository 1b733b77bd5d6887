"""What every benchmark shares: cases and contenders, the check before the timing, the interleaved timing, the files.

How a figure is made. Every contender's result is first compared with a float64 reference; one that is wrong is not
timed. The contenders of a case then take turns, a block of calls each, over several rounds; a figure is the median of
its blocks and the spread their quartiles. A row says where its data lay and what launched it:

- ``l2: hot, graph: false``: the same buffers again and again, launched from Python (a call costs at least its launch);
- ``l2: hot, graph: true``: the same calls back to back in a CUDA graph, without Python's launch cost;
- ``l2: cold``: inputs and outputs rotate over buffers that together exceed three times the L2 (in a graph where the
  call is short). A case whose data alone exceed four times the L2 is cold by nature and is measured once.
"""

# ruff: noqa: F401  (what benchmarks and tests take from here)
import torch_ext  # registers torch.ops.xgemm
from benchmarks.common.benchmark import Benchmark, ContextLost
from benchmarks.common.cases import (
    DTYPES,
    SHORT,
    Case,
    Contender,
    Options,
    cases_of,
    compiled,
    row_case,
    sum_tolerance,
)
from benchmarks.common.check import WrongResult, check
from benchmarks.common.command import (
    main,
    measure,
    options_of,
    options_or_estimate,
    parser,
    run_op,
    show,
    summary,
    table,
)
from benchmarks.common.files import save_measurements
from benchmarks.common.machine import Gpu, Machine, machine
from benchmarks.common.timing import Runner, eager_runner, graph_runner, interleave
