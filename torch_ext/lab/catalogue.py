"""All experiments and ladders of the lab, by name."""

from torch_ext.lab import attention, conclusions, experiments, ladders, memory, plots, roofline, spilling, tiles
from torch_ext.lab.experiment import Experiment

_SINGLE = ("csrc/device", "csrc/lab/experiments")

# fmt: off
EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        Experiment(
            "sgemm", "SGEMM ladder", "from 1 % to most of cuBLAS in ten steps", ("xgemm",),
            ("csrc/device", "csrc/lab/sgemm", "csrc/matmul"), ladders.sgemm, "n of square matrices",
            (128, 256, 512, 1024, 2048, 4096), (256, 1024), conclusions.sgemm, plots.sgemm,
            tuple(ladders.SGEMM_STEPS),
        ),
        Experiment(
            "tensor", "Tensor-core ladder, bf16",
            "what WMMA, mma.sync, wgmma, TMA, warp specialisation and clusters each add", ("xgemm",),
            ("csrc/device", "csrc/lab/tensor", "csrc/matmul"), ladders.tensor,
            "n of square matrices, a multiple of 256", (1024, 2048, 4096, 8192), (1024,), conclusions.tensor,
            plots.tensor, tuple(ladders.TENSOR_STEPS),
        ),
        Experiment(
            "fp32", "fp32 from fp16 products", "fp32's accuracy at several times cuBLAS's speed", (),
            ("csrc/device", "csrc/lab/fp32", "csrc/lab/tensor", "csrc/matmul"), ladders.fp32,
            "n of square matrices, a multiple of 256", (1024, 4096), (1024,), conclusions.fp32, plots.fp32,
            tuple(ladders.FP32_VARIANTS),
        ),
        Experiment(
            "reduction", "Reduction ladder", "from divergence and bank conflicts to the rate of a copy", ("tuning",),
            ("csrc/device", "csrc/lab/reduction", "csrc/lab/experiments", "csrc/reduce"), ladders.reduction,
            "elements", (1 << 24, 1 << 28), (1 << 24,), conclusions.reduction, plots.reduction,
            tuple(ladders.REDUCTION_VERSIONS),
        ),
        Experiment(
            "reduction_grid", "Reduction v6: blocks and loads in flight",
            "bytes in flight decide, however they come about", ("tuning",), ("csrc/device", "csrc/lab/reduction"),
            ladders.reduction_grid, "elements", (1 << 20, 1 << 24, 1 << 28), (1 << 24,), conclusions.reduction_grid,
            plots.reduction_grid,
        ),
        Experiment(
            "transpose", "Transpose ladder", "corner turning in shared memory, and its bank conflicts", ("lecture8",),
            ("csrc/device", "csrc/lab/experiments"), ladders.transpose, "n of square matrices",
            (1024, 4096, 8191, 8192, 16384), (1024,), conclusions.transpose, plots.transpose,
            tuple(ladders.TRANSPOSE_STEPS),
        ),
        Experiment(
            "softmax", "Softmax ladder",
            "online softmax saves a pass: up to 1.3x where a row does not stay in a cache", ("lecture8",),
            ("csrc/device", "csrc/lab/softmax", "csrc/softmax"), ladders.softmax, "columns (of 4096 rows)",
            (256, 1024, 2048, 4096, 8192, 16384, 32768), (1024, 8192), conclusions.softmax, plots.softmax,
            tuple(ladders.SOFTMAX_VARIANTS),
        ),
        Experiment(
            "attention", "Attention ladder", "memory that grows with S and not S^2, and tensor cores kept busy",
            ("lecture8",), ("csrc/device", "csrc/lab/attention", "csrc/attention"), attention.attention,
            "S (16384 positions in all)", (1024, 4096, 16384), (1024,), conclusions.attention, plots.attention,
            tuple(attention.ATTENTION_STEPS),
        ),
        Experiment(
            "coalescing", "Coalescing",
            "the further apart a warp's accesses, the more sectors are read for the same bytes",
            ("xgemm", "lecture8"), _SINGLE, memory.coalescing, "elements", (1 << 26,), (1 << 24,),
            conclusions.coalescing, plots.coalescing,
        ),
        Experiment(
            "fma", "Instruction-level parallelism, arithmetic", "independent chains replace threads (Little's law)",
            ("tuning",), _SINGLE, experiments.fma, "steps of a chain", (1 << 18,), (1 << 14,), conclusions.fma,
            plots.fma,
        ),
        Experiment(
            "copy", "Instruction-level parallelism, memory",
            "bytes in flight decide, as threads, loads or wider loads", ("tuning",), _SINGLE, memory.copy, "elements",
            (1 << 26,), (1 << 22,), conclusions.copy, plots.copy,
        ),
        Experiment(
            "divergence", "Divergence", "k ways within a warp cost k passes, between warps one",
            ("lecture8", "pmpp4"), _SINGLE, experiments.divergence, "elements", (1 << 20,), (1 << 18,),
            conclusions.divergence, plots.divergence,
        ),
        Experiment(
            "first_launch", "The first launch in a process", "what is launched first is slow, whatever it is",
            ("lecture8",), _SINGLE, experiments.first_launch, "elements", (1 << 20,), (1 << 20,),
            conclusions.first_launch,
        ),
        Experiment(
            "coarsening", "Thread coarsening", "more elements a thread pay only in vector accesses", ("lecture8",),
            _SINGLE, experiments.coarsening, "elements, beside 1024 and 2^20", (1 << 26,), (1 << 24,),
            conclusions.coarsening, plots.coarsening,
        ),
        Experiment(
            "privatisation", "Privatisation", "private copies pay where many threads meet at few addresses",
            ("lecture8",), _SINGLE, experiments.privatisation, "elements of the histogram", (1 << 26,), (1 << 22,),
            conclusions.privatisation, plots.privatisation,
        ),
        Experiment(
            "tiling", "Sheffield's lab 6", "tiles in shared memory, their size, bank conflicts", ("sheffield6",),
            _SINGLE, tiles.tiling, "n of square matrices", (1024,), (512,), conclusions.tiling, plots.tiling,
        ),
        Experiment(
            "quantisation", "Tile and wave quantisation, padding",
            "a tile too many starts a wave, a column too many a tile", ("lecture8",),
            ("csrc/device", "csrc/lab/sgemm"), tiles.quantisation, "k", (1024,), (128,), conclusions.quantisation,
            plots.quantisation,
        ),
        Experiment(
            "padding", "Padding for tensor cores",
            "a k whose rows are no multiples of 16 bytes keeps torch off its fast kernels", ("lecture8",),
            ("csrc/device", "csrc/matmul"), tiles.padding, "m, n and about k", (4096,), (512,), conclusions.padding,
            plots.padding,
        ),
        Experiment(
            "latency", "Latency of the memory hierarchy", "L1, L2 and memory as steps of a staircase", ("lecture8",),
            _SINGLE, memory.latency, "bytes", tuple(1 << e for e in range(12, 31)),
            tuple(1 << e for e in (14, 22, 28)), conclusions.latency, plots.latency,
        ),
        Experiment(
            "bandwidth", "Bandwidth of the memory hierarchy",
            "only registers feed multiply-adds; each level below delivers several times less", ("tuning",), _SINGLE,
            memory.bandwidth, "elements of the array in memory", (1 << 28,), (1 << 25,), conclusions.bandwidth,
            plots.bandwidth,
        ),
        Experiment(
            "scheduling", "Warps and blocks", "32 consecutive threads are a warp; a block waits for room on an SM",
            ("xgemm", "pmpp4"), _SINGLE, experiments.scheduling, "nanoseconds that a block stays", (20_000,),
            (20_000,), conclusions.scheduling, plots.scheduling,
        ),
        Experiment(
            "registers", "The register cliff", "two registers too many cost a resident block", ("xgemm", "pmpp4"),
            _SINGLE, experiments.registers, "elements", (1 << 26,), (1 << 22,), conclusions.registers,
            plots.registers,
        ),
        Experiment(
            "spilling", "Registers that spill",
            "fewer registers raise the occupancy, and time as soon as values move to local memory",
            ("pmpp4", "sheffield6"), ("torch_ext/lab",), spilling.spilling, "threads, a multiple of 256", (1 << 21,),
            (1 << 18,), conclusions.spilling, plots.spilling,
        ),
        Experiment(
            "roofline", "Roofline and energy",
            "rate over operations a byte: a slope, a knee, a ceiling; energy has no knee", ("tuning", "lecture8"),
            ("csrc/device", "csrc/lab", "csrc/matmul"), roofline.roofline, "elements", (1 << 26,), (1 << 24,),
            conclusions.roofline, plots.roofline,
        ),
    )
}
# fmt: on
