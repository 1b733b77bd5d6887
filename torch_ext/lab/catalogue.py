"""All experiments and ladders of the lab, by name."""

from torch_ext.lab import attention, conclusions, experiments, ladders, memory, plots, roofline, spilling, tiles
from torch_ext.lab.experiment import Experiment, Measure

_SINGLE = ("csrc/device", "csrc/lab/experiments")


def _experiment(measure: Measure, *about: object) -> Experiment:
    """Its conclusion and, if it has one, its plot have the name of what measures it."""
    name = measure.__name__
    return Experiment(measure, *about, conclude=getattr(conclusions, name), plot=getattr(plots, name, None))


# fmt: off
EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        _experiment(
            ladders.sgemm, "SGEMM ladder", "from 1 % to most of cuBLAS in ten steps", ("xgemm",),
            ("csrc/device", "csrc/lab/sgemm", "csrc/matmul"), "n of square matrices", (128, 256, 512, 1024, 2048, 4096),
            (256, 1024), ladders.SGEMM_STEPS,
        ),
        _experiment(
            ladders.tensor, "Tensor-core ladder, bf16",
            "what WMMA, mma.sync, wgmma, TMA, warp specialisation and clusters each add", ("xgemm",),
            ("csrc/device", "csrc/lab/tensor", "csrc/matmul"), "n of square matrices, a multiple of 256",
            (1024, 2048, 4096, 8192), (1024,), ladders.TENSOR_STEPS,
        ),
        _experiment(
            ladders.fp32, "fp32 from fp16 products", "fp32's accuracy at several times cuBLAS's speed", (),
            ("csrc/device", "csrc/lab/fp32", "csrc/lab/tensor", "csrc/matmul"),
            "n of square matrices, a multiple of 256", (1024, 4096), (1024,), ladders.FP32_VARIANTS,
        ),
        _experiment(
            ladders.reduction, "Reduction ladder", "from divergence and bank conflicts to the rate of a copy",
            ("tuning",), ("csrc/device", "csrc/lab/reduction", "csrc/lab/experiments", "csrc/reduce"), "elements",
            (1 << 24, 1 << 28), (1 << 24,), ladders.REDUCTION_VERSIONS,
        ),
        _experiment(
            ladders.reduction_grid, "Reduction v6: blocks and loads in flight",
            "bytes in flight decide, however they come about", ("tuning",), ("csrc/device", "csrc/lab/reduction"),
            "elements", (1 << 20, 1 << 24, 1 << 28), (1 << 24,),
        ),
        _experiment(
            ladders.transpose, "Transpose ladder", "corner turning in shared memory, and its bank conflicts",
            ("lecture8",), ("csrc/device", "csrc/lab/experiments"), "n of square matrices",
            (1024, 4096, 8191, 8192, 16384), (1024,), ladders.TRANSPOSE_STEPS,
        ),
        _experiment(
            ladders.softmax, "Softmax ladder",
            "online softmax saves a pass: up to 1.3x where a row does not stay in a cache", ("lecture8",),
            ("csrc/device", "csrc/lab/softmax", "csrc/softmax"), "columns (of 4096 rows)",
            (256, 1024, 2048, 4096, 8192, 16384, 32768), (1024, 8192), ladders.SOFTMAX_VARIANTS,
        ),
        _experiment(
            attention.attention, "Attention ladder", "memory that grows with S and not S^2, and tensor cores kept busy",
            ("lecture8",), ("csrc/device", "csrc/lab/attention", "csrc/attention"), "S (16384 positions in all)",
            (1024, 4096, 16384), (1024,), attention.ATTENTION_STEPS,
        ),
        _experiment(
            memory.coalescing, "Coalescing",
            "the further apart a warp's accesses, the more sectors are read for the same bytes", ("xgemm", "lecture8"),
            _SINGLE, "elements", (1 << 26,), (1 << 24,),
        ),
        _experiment(
            experiments.fma, "Instruction-level parallelism, arithmetic",
            "independent chains replace threads (Little's law)", ("tuning",), _SINGLE, "steps of a chain", (1 << 18,),
            (1 << 14,),
        ),
        _experiment(
            memory.copy, "Instruction-level parallelism, memory",
            "bytes in flight decide, as threads, loads or wider loads", ("tuning",), _SINGLE, "elements", (1 << 26,),
            (1 << 22,),
        ),
        _experiment(
            experiments.divergence, "Divergence", "k ways within a warp cost k passes, between warps one",
            ("lecture8", "pmpp4"), _SINGLE, "elements", (1 << 20,), (1 << 18,),
        ),
        _experiment(
            experiments.first_launch, "The first launch in a process", "what is launched first is slow, whatever it is",
            ("lecture8",), _SINGLE, "elements", (1 << 20,), (1 << 20,),
        ),
        _experiment(
            experiments.coarsening, "Thread coarsening", "more elements a thread pay only in vector accesses",
            ("lecture8",), _SINGLE, "elements, beside 1024 and 2^20", (1 << 26,), (1 << 24,),
        ),
        _experiment(
            experiments.privatisation, "Privatisation", "private copies pay where many threads meet at few addresses",
            ("lecture8",), _SINGLE, "elements of the histogram", (1 << 26,), (1 << 22,),
        ),
        _experiment(
            tiles.tiling, "Sheffield's lab 6", "tiles in shared memory, their size, bank conflicts", ("sheffield6",),
            _SINGLE, "n of square matrices", (1024,), (512,),
        ),
        _experiment(
            tiles.quantisation, "Tile and wave quantisation, padding",
            "a tile too many starts a wave, a column too many a tile", ("lecture8",), ("csrc/device", "csrc/lab/sgemm"),
            "k", (1024,), (128,),
        ),
        _experiment(
            tiles.padding, "Padding for tensor cores",
            "a k whose rows are no multiples of 16 bytes keeps torch off its fast kernels", ("lecture8",),
            ("csrc/device", "csrc/matmul"), "m, n and about k", (4096,), (512,),
        ),
        _experiment(
            memory.latency, "Latency of the memory hierarchy", "L1, L2 and memory as steps of a staircase",
            ("lecture8",), _SINGLE, "bytes", tuple(1 << e for e in range(12, 31)), tuple(1 << e for e in (14, 22, 28)),
        ),
        _experiment(
            memory.bandwidth, "Bandwidth of the memory hierarchy",
            "only registers feed multiply-adds; each level below delivers several times less", ("tuning",), _SINGLE,
            "elements of the array in memory", (1 << 28,), (1 << 25,),
        ),
        _experiment(
            experiments.scheduling, "Warps and blocks",
            "32 consecutive threads are a warp; a block waits for room on an SM", ("xgemm", "pmpp4"), _SINGLE,
            "nanoseconds that a block stays", (20_000,), (20_000,),
        ),
        _experiment(
            experiments.registers, "The register cliff", "two registers too many cost a resident block",
            ("xgemm", "pmpp4"), _SINGLE, "elements", (1 << 26,), (1 << 22,),
        ),
        _experiment(
            spilling.spilling, "Registers that spill",
            "fewer registers raise the occupancy, and time as soon as values move to local memory",
            ("pmpp4", "sheffield6"), ("torch_ext/lab",), "threads, a multiple of 256", (1 << 21,), (1 << 18,),
        ),
        _experiment(
            roofline.roofline, "Roofline and energy",
            "rate over operations a byte: a slope, a knee, a ceiling; energy has no knee", ("tuning", "lecture8"),
            ("csrc/device", "csrc/lab", "csrc/matmul"), "elements", (1 << 26,), (1 << 24,),
        ),
    )
}
# fmt: on
