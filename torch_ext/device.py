"""What a GPU has, how many blocks fit on a multiprocessor, and where the roofline bends.

Pure arithmetic over a table of limits (so it works without a GPU) and, for the GPU that is there, limits read from the
driver. ``python -m torch_ext.device`` lists the GPUs that are there. The occupancy rules are those of
``cuda_occupancy.h``: registers are allocated per warp in units of 256 and per sub-partition, shared memory in units of
128 bytes with 1 KiB reserved for each block from compute capability 8 on.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

WARP = 32
SUBPARTITIONS = 4
REGISTER_UNIT = 256
SHARED_UNIT = 128


@dataclass(frozen=True)
class Limits:
    """Resources of one kind of GPU, per multiprocessor unless said otherwise."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    threads: int
    blocks: int
    registers: int = 65536
    shared_memory: int = 0
    threads_per_block: int = 1024
    fp32_cores: int = 128
    bandwidth: float = 0.0
    """Memory bandwidth of the whole GPU in bytes per second, by the datasheet."""
    fp32_flops: float = 0.0
    """Multiply-add rate of the CUDA cores in flop per second, by the datasheet."""
    fp64_flops: float = 0.0
    """The same in double precision."""
    tensor_flops: float = 0.0
    """The same of the tensor cores, bf16 (T4: fp16) with fp32 sums, dense."""

    @property
    def warps(self) -> int:
        return self.threads // WARP

    @property
    def oversubscription(self) -> float:
        """Resident threads for each core: how much latency the schedulers can hide."""
        return self.threads / self.fp32_cores

    @property
    def balance(self) -> float:
        """Flop per byte at which the roofline bends."""
        return self.fp32_flops / self.bandwidth


KIB = 1024
KNOWN: dict[str, Limits] = {
    gpu.name: replace(
        gpu, bandwidth=bandwidth * 1e9, fp32_flops=fp32 * 1e12, fp64_flops=fp64 * 1e12, tensor_flops=tensor * 1e12
    )
    for gpu, bandwidth, fp32, fp64, tensor in (
        (Limits("T4", (7, 5), 40, 1024, 16, shared_memory=64 * KIB, fp32_cores=64), 320, 8.1, 0.25, 65),
        (Limits("A100", (8, 0), 108, 2048, 32, shared_memory=164 * KIB, fp32_cores=64), 1555, 19.5, 9.7, 312),
        (Limits("RTX 3090", (8, 6), 82, 1536, 16, shared_memory=100 * KIB), 936, 35.6, 0.56, 71),
        (Limits("RTX 4090", (8, 9), 128, 1536, 24, shared_memory=100 * KIB), 1008, 82.6, 1.29, 165),
        (Limits("H100", (9, 0), 132, 2048, 32, shared_memory=228 * KIB), 3350, 67, 33.5, 990),
        (Limits("H200", (9, 0), 132, 2048, 32, shared_memory=228 * KIB), 4800, 67, 33.5, 990),
    )
}


def _unknown(properties: "torch._C._CudaDeviceProperties") -> Limits:
    """A kind that is not in the table."""
    capability = properties.major, properties.minor
    cores = 64 if capability in ((7, 0), (7, 5), (8, 0)) else 128
    clock, memory_clock, bus = (
        getattr(properties, name, 0) for name in ("clock_rate", "memory_clock_rate", "memory_bus_width")
    )
    return Limits(
        properties.name,
        capability,
        0,
        0,
        16 if properties.major < 8 else 32,
        fp32_cores=cores,
        fp32_flops=2 * cores * properties.multi_processor_count * clock * 1e3,
        bandwidth=2 * memory_clock * 1e3 * bus / 8,  # two transfers a clock
    )


def limits(device: int | torch.device | None = None) -> Limits:
    """Limits of a GPU that is there.

    Rates are those of the table entry for the same kind. For another kind they are clock times units as the driver
    tells them, where it does (0 where not; tensor cores and double precision: 0). One name covers GPUs of several rates
    (an H100 PCIe, an A100 of 80 GB, a GH200): a rate that the driver tells otherwise by a tenth is the driver's.
    """
    properties = torch.cuda.get_device_properties(device)
    kind = next((gpu for gpu in KNOWN.values() if gpu.name in properties.name), None)
    told = _unknown(properties)
    base = kind or told
    if kind and told.bandwidth and abs(told.bandwidth / kind.bandwidth - 1) > 0.1:
        base = replace(base, bandwidth=told.bandwidth)
    if kind and told.fp32_flops and abs((scale := told.fp32_flops / kind.fp32_flops) - 1) > 0.1:
        base = replace(
            base,
            fp32_flops=told.fp32_flops,
            fp64_flops=scale * kind.fp64_flops,
            tensor_flops=scale * kind.tensor_flops,
        )
    return replace(
        base,
        multiprocessors=properties.multi_processor_count,
        threads=properties.max_threads_per_multi_processor,
        registers=properties.regs_per_multiprocessor,
        shared_memory=properties.shared_memory_per_multiprocessor,
    )


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel are resident on a multiprocessor, and what stops more."""

    blocks: int
    warps: int
    max_warps: int
    threads: int
    max_threads: int
    limited_by: str

    @property
    def fraction(self) -> float:
        """Resident warps over the most there can be: what the CUDA API reports."""
        return self.warps / self.max_warps

    @property
    def thread_fraction(self) -> float:
        """The same by threads; smaller when the last warp of a block is padded."""
        return self.threads / self.max_threads


def _round_up(x: int, unit: int) -> int:
    return -(-x // unit) * unit


def occupancy(gpu: Limits, threads_per_block: int, registers: int = 16, shared_memory: int = 0) -> Occupancy:
    """Occupancy of a kernel with this block size, registers per thread and shared memory per block (bytes).

    Raises ValueError for a block size outside 1..1024 or negative resources. ``blocks == 0``: it cannot launch.
    """
    if not 1 <= threads_per_block <= gpu.threads_per_block:
        raise ValueError(f"expected threads_per_block in [1, {gpu.threads_per_block}], got {threads_per_block}")
    if registers < 0 or shared_memory < 0:
        raise ValueError(f"expected registers and shared_memory >= 0, got {registers} and {shared_memory}")
    warps = _round_up(threads_per_block, WARP) // WARP
    by = {"threads": gpu.warps // warps, "blocks": gpu.blocks}
    if registers:
        per_warp = _round_up(registers * WARP, REGISTER_UNIT)
        fits = registers <= 255 and per_warp * _round_up(warps, SUBPARTITIONS) <= gpu.registers
        resident_warps = gpu.registers // SUBPARTITIONS // per_warp * SUBPARTITIONS
        by["registers"] = resident_warps // warps if fits else 0
    reserved = KIB if gpu.capability[0] >= 8 else 0
    if gpu.shared_memory and shared_memory + reserved:
        by["shared memory"] = gpu.shared_memory // _round_up(shared_memory + reserved, SHARED_UNIT)
    limit = min(by, key=lambda resource: by[resource])
    blocks = by[limit]
    return Occupancy(blocks, blocks * warps, gpu.warps, blocks * threads_per_block, gpu.threads, limit)


def max_potential_block_size(
    gpu: Limits, registers: int = 16, shared_memory: int | Callable[[int], int] = 0
) -> tuple[int, int]:
    """The block size of highest occupancy, the largest among equals, and the grid that fills the GPU with it.

    ``shared_memory`` is bytes per block, or a function of the block size as in
    cudaOccupancyMaxPotentialBlockSizeVariableSMem.
    """
    need = shared_memory if callable(shared_memory) else lambda _: shared_memory
    sizes = range(gpu.threads_per_block, 0, -WARP)
    best = max(sizes, key=lambda n: (occupancy(gpu, n, registers, need(n)).threads, n))
    return best, occupancy(gpu, best, registers, need(best)).blocks * gpu.multiprocessors


def largest_power_of_four(n: int) -> int:
    """4^floor(log4 n): the largest square power-of-two tile of at most n threads."""
    if n < 1:
        raise ValueError(f"expected n >= 1, got {n}")
    return 1 << (n.bit_length() - 1) // 2 * 2


def tile_shared_memory(threads_per_block: int, element_size: int = 4) -> int:
    """Bytes of the two tiles of a shared-memory matrix product with one thread an output element."""
    return 2 * threads_per_block * element_size


def matmul_intensity(m: int, n: int, k: int, element_size: int = 4) -> float:
    """Flop per byte of C = A B when each matrix crosses memory once: 2mnk / (bytes of A, B and C)."""
    return 2 * m * n * k / (element_size * (m * k + k * n + m * n))


def pointwise_intensity(ops: float, reads: int, writes: int, element_size: int) -> float:
    """Flop per byte of an elementwise function: ReLU in fp16 is 1 / (2 + 2)."""
    return ops / (element_size * (reads + writes))


def naive_matmul_traffic(m: int, n: int, k: int) -> int:
    """Bytes requested by one fp32 thread an output element with no reuse: 2 K loads and one store each."""
    return m * n * (2 * 4 * k + 4)


def attainable(gpu: Limits, intensity: float) -> float:
    """The roofline: flop per second that a kernel of this intensity (flop per byte) can reach at most."""
    return min(gpu.fp32_flops, intensity * gpu.bandwidth)


def floor_seconds(flops: float, bytes_moved: float, flop_rate: float, bandwidth: float) -> float:
    """No kernel is faster than its operations or its bytes allow: max(W t_f, Q t_m)."""
    return max(flops / flop_rate, bytes_moved / bandwidth)


def littles_law(latency: float, rate: float) -> float:
    """Concurrency needed to keep a unit busy: latency times throughput."""
    return latency * rate


def tile_utilisation(m: int, n: int, tile_m: int, tile_n: int) -> float:
    """Share of the tiles' elements that exist: what ragged edges cost (tile quantisation)."""
    return m * n / (_round_up(m, tile_m) * _round_up(n, tile_n))


def wave_utilisation(tiles: int, slots: int) -> float:
    """Share of the GPU's block slots that hold a tile, over all waves (wave quantisation)."""
    return tiles / _round_up(tiles, slots)


def naive_occupancy(gpu: Limits, threads_per_block: int) -> float:
    """A lab sheet's formula as printed: wrong, the number of multiprocessors has no place in it."""
    return gpu.blocks * threads_per_block / (gpu.threads * gpu.multiprocessors)


def occupancy_bound(gpu: Limits, threads_per_block: int) -> float:
    """The same as it was meant: an upper bound that knows neither registers nor shared memory."""
    return min(1.0, gpu.blocks * threads_per_block / gpu.threads)


def boundary_share(n: int) -> float:
    """Share of the warps that diverge at the test ``i < n`` of a thread-per-element kernel."""
    return (n % WARP != 0) / -(-n // WARP)


def _attributes(index: int, *numbers: int) -> tuple[int, ...]:
    """Attributes of a GPU by their numbers in CUdevice_attribute, which torch's properties do not have."""
    driver, handle, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), index):
        raise RuntimeError(f"xgemm: the driver does not know GPU {index}")
    found = []
    for number in numbers:
        driver.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        found.append(value.value)
    return tuple(found)


def describe(index: int) -> dict[str, object]:
    """What a device query prints of a GPU, and what the occupancy calculator needs."""
    p = torch.cuda.get_device_properties(index)
    return {
        "name": p.name,
        "compute capability": f"{p.major}.{p.minor}",
        "integrated": bool(p.is_integrated),
        "multiprocessors": p.multi_processor_count,
        "clock, MHz": p.clock_rate // 1000,
        "warp size": p.warp_size,
        "threads per block": p.max_threads_per_block,
        "threads per multiprocessor": p.max_threads_per_multi_processor,
        "block dimensions": _attributes(index, 2, 3, 4),
        "grid dimensions": _attributes(index, 5, 6, 7),
        # A block may use all of them on every GPU from compute capability 7.0 on.
        "registers per multiprocessor": p.regs_per_multiprocessor,
        "shared memory per multiprocessor": p.shared_memory_per_multiprocessor,
        "shared memory per block": p.shared_memory_per_block_optin,
        "L2 cache": p.L2_cache_size,
        "memory": p.total_memory,
        "memory clock, MHz": p.memory_clock_rate // 1000,
        "memory bus, bits": p.memory_bus_width,
    }


def best() -> int:
    """The GPU with the most resources: not integrated, then multiprocessors times clock, then memory.

    Raises RuntimeError where there is none.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("xgemm: there is no NVIDIA GPU")

    def resources(index: int) -> tuple[bool, int, int]:
        p = torch.cuda.get_device_properties(index)
        return not p.is_integrated, p.multi_processor_count * p.clock_rate, p.total_memory

    return max(range(torch.cuda.device_count()), key=resources)


def main() -> int:
    """Prints every GPU's fields and names the best one."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    print(f"{count} GPU{'s' * (count != 1)}")
    for index in range(count):
        fields = describe(index)
        print(f"\n{index}: {fields.pop('name')}")
        for field, value in fields.items():
            print(f"  {field:<34}{value:,}" if type(value) is int else f"  {field:<34}{value}")
    if count > 1:
        print(f"\nThe most resources: {best()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
