"""The kernels of the lab's single experiments on a GPU: what each must compute, and what the API says of them."""

import functools
import re
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from common import CSRC, SANITIZED, check_replays, check_side_stream, needs, poison, randn, run, runs_hopper_kernels
from lab_checks import CUDA, assert_sgemm

import torch_ext.lab
from tools import sass
from torch_ext.lab import attention, experiments, ladders, measure, memory, roofline, tiles

lab = torch.ops.xgemm_lab


@CUDA
@pytest.mark.parametrize("n", [1, 2, 127, 1000, 65539])
def test_copies(n):
    x = randn(n, device="cuda")
    index = torch.arange(n, device="cuda")
    for stride in (1, 2, 3, 32):
        for loads in (1, 8):
            poison("cuda", 1)
            assert torch.equal(lab.strided_copy(x, stride, 96, loads), x[index * stride % n])
    assert lab.empty_launch(x, 96).tolist() == [-(-n // 96), 96]
    for loads, width in ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4)):
        y = x[: n // width * width]
        for threads in (32, 100, 1024):
            for grid in ("full", "resident", "one_per_sm"):
                poison("cuda", 1)
                assert torch.equal(lab.concurrent_copy(y, threads, loads, width, grid), y)


@CUDA
@pytest.mark.parametrize("name", ["coalesced copy", "tiled dynamic 32"])
def test_best_block_size_matches_the_calculator(name):
    from torch_ext import device

    threads, grid, registers = lab.best_block_size(torch.empty(1, device="cuda"), name).tolist()
    shared = device.tile_shared_memory if name.startswith("tiled") else 0
    assert (threads, grid) == device.max_potential_block_size(device.limits(), registers, shared)


@CUDA
def test_without_contraction_a_product_is_a_loop_in_the_order_of_k():
    for m, n, k in [(1, 1, 1), (33, 31, 65), (100, 200, 37), (256, 256, 512)]:
        a, b = randn(m, k, device="cuda"), randn(k, n, device="cuda")
        assert torch.equal(lab.tiled_matmul(a, b, "uncontracted", 32), tiles.in_order(a, b)), (m, n, k)
        assert torch.equal(tiles.in_order(a, b).cpu(), tiles.in_order(a.cpu(), b.cpu()))


@functools.cache
def compiled(name: str) -> tuple[dict[str, str], str]:
    """Machine code of an experiment's kernels by mangled name, and what ptxas says of them; sm_90a."""
    try:
        program, environment = sass.cuobjdump()
    except SystemExit:
        pytest.skip("no cuobjdump")
    needs("nvcc")
    source = CSRC / "lab" / "experiments" / f"{name}.cu"
    flags = ["-std=c++20", "-O3", f"-I{CSRC}", "-arch=sm_90a", "-Xptxas=-v", "-cubin"]
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernels.cubin"
        built = run("nvcc", *flags, source, "-o", cubin, check=True)
        dump = run(program, "-sass", cubin, check=True, env=environment)
    return {kernel.split(maxsplit=1)[0]: kernel for kernel in dump.stdout.split("Function : ")[1:]}, built.stderr


def test_conflicting_and_padded_tiles_differ_in_banks_alone():
    """The same loads from shared memory and the same registers: what is left is the banks."""
    code, usage = compiled("tiling")
    found = {}
    for name in ("ELi0ELb0ELb1E", "ELi0ELb1ELb1E", "ELi1ELb1ELb1E"):  # fixed, conflicting, padded
        kernel = next(mangled for mangled in code if f"fixed_kernelILi32{name}" in mangled)
        loads = Counter(re.findall(r"\bLDS[.\w]*", code[kernel]))
        found[name] = loads, re.search(rf"{kernel}.*?Used (\d+) registers", usage, re.DOTALL)[1]
    assert all(kind == (Counter({"LDS": 32, "LDS.128": 8}), "32") for kind in found.values()), found


def test_loads_fall_by_the_tile():
    """Two loads from global memory a multiply-add without tiles, two for `tile` of them with."""
    code, _ = compiled("tiling")
    kernels = {1: "naive_kernel"} | {tile: f"fixed_kernelILi{tile}ELi0ELb0ELb1E" for tile in (8, 16, 32)}
    for tile, name in kernels.items():
        kernel = next(text for mangled, text in code.items() if name in mangled)
        used = Counter(re.findall(r"\b(?:LDG|FFMA)\b", kernel))
        assert used["LDG"] * tile == 2 * used["FFMA"] > 0, (tile, used)


def test_parity_has_the_documents_branch_instructions():
    """3 and 2 a warp, 98,304 and 65,536 in the 32,768 warps of 2^20 elements, all of them EXITs."""
    code, _ = compiled("divergence")
    warps = (1 << 20) // 32
    for name, document in (("branch_kernel", 98_304), ("arithmetic_kernel", 65_536)):
        kernel = next(text for mangled, text in code.items() if name in mangled)
        # Up to the last EXIT: behind it is a branch to itself that no warp reaches.
        reached = re.findall(r"\b(?:EXIT|BRA|RET|CALL|BRX|JMP)\b", kernel)[:-1]
        assert reached == ["EXIT"] * len(reached) and len(reached) * warps == document


def test_the_privatised_addition_is_the_same_machine_code():
    """Copies to locals first are what the compiler makes of the plain kernel."""
    code, _ = compiled("coarsening")
    instructions = [
        [line.split("*/", 1)[1] for line in text.splitlines() if re.search(r"/\*[0-9a-f]{4}\*/", line)]
        for mangled, text in code.items()
        if "plain_kernelILb1E" in mangled or "privatised_kernel" in mangled
    ]
    assert len(instructions) == 2 and instructions[0] == instructions[1]


@CUDA
@pytest.mark.parametrize("unroll", [8, 64])
@pytest.mark.parametrize("chains", [1, 2, 4, 8, 16])
def test_fma_chains(chains, unroll):
    x = randn(3 * 96, device="cuda")
    variants = (torch.tensor([-0.75, 0.3]), 3), (torch.tensor([-0.75, -0.75]), 2)
    for factors, registers in variants if (chains, unroll) == (1, 64) else variants[:1]:
        for iterations in (0, 13, 150):
            y = x.double()[:, None] + torch.arange(chains, device="cuda")
            scale = y.abs()
            for _ in range(iterations):
                y, scale = y * factors[0].item() + factors[1].item(), scale * 0.75 + factors[1].abs().item()
            out = lab.fma_chains(x, factors.cuda(), 96, chains, iterations, unroll, registers)
            assert ((out.double() - y.sum(1)).abs() <= 32 * 2**-24 * (scale.sum(1) + chains)).all()


@CUDA
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_intensity(dtype):
    for n in (0, 4, 1020, 4096, 100_000):
        x = randn(n, device="cuda").to(dtype)
        for steps in (0, 1, 7, 8, 33):
            poison("cuda", 1)
            error = (lab.intensity(x, steps).double() - roofline.alternated(x, steps)).abs()
            assert (error <= (4 + steps) * torch.finfo(dtype).eps * (x.double().abs() + 2)).all()


@CUDA
@pytest.mark.parametrize("level", ["global", "l1", "shared"])
def test_read_rate_reads_everything(level):
    for blocks in (1, 7):
        for n in (4, 1000, 70_004) if level == "global" else (blocks * memory.READ_CHUNK,):
            x = torch.randint(-8, 8, (n,), device="cuda").float()  # exact
            for repeats in (0, 1, 3):
                poison("cuda", 1)
                sums = lab.read_rate(x, level, blocks, repeats)
                assert sums.shape == (256 * blocks,) and sums.double().sum() == repeats * x.double().sum()


@CUDA
def test_pointer_chase_walks():
    walks = (1, 1, 0, True), (32, 32, 5, False), (97, 4, 1000, True), (5000, 32, 77, False)
    for lines, stride, steps, shared in walks:
        following = memory.cycle(lines, stride, "cuda")
        start = stride * (lines // 2)
        i, numbers = start, following.tolist()
        for _ in range(memory.WARM_UP + steps):
            i = numbers[i]
        end, cycles = lab.pointer_chase(following, steps, start, shared).tolist()
        assert end == i and cycles >= 10 * steps  # no memory answers within 10 cycles


@CUDA
@pytest.mark.parametrize("registers", experiments.REGISTERS)
def test_register_bound(registers):
    from torch_ext import device

    for n in (0, 1, 511, 5003, 1_000_003):
        x = randn(n, device="cuda")
        poison("cuda", 1)
        assert torch.equal(lab.register_bound(x, registers, "memory"), x)
        poison("cuda", 1)
        y = lab.register_bound(x, registers, "arithmetic", 5).double()
        assert ((y - (2 + (x.double() - 2) / 32)).abs() <= 2**-20).all()
    for bound in ("memory", "arithmetic"):
        found = torch_ext.lab.attributes(f"registers {registers} {bound}")
        assert found["registers"] == registers and found["local"] == 0 and found["threads"] == 512
        assert found["blocks"] == device.occupancy(device.limits(), 512, registers).blocks


@CUDA
def test_who_am_i():
    like = torch.empty(1, device="cuda")
    sms = torch.cuda.get_device_properties().multi_processor_count
    for block in ((70,), (5, 7), (3, 4, 5), (32, 32), (1, 1, 64)):
        seen = lab.who_am_i(like, 300, *block)
        thread = torch.arange(seen.shape[1], device="cuda")
        assert (seen[..., 0] == thread % 32).all() and (seen[..., 1] == thread - thread % 32).all()
        assert (seen[..., 2] == seen[:, :1, 2]).all() and seen[..., 2].min() >= 0 and seen[..., 2].max() < sms
        assert (seen[..., 3] <= seen[..., 4]).all()
    seen = lab.who_am_i(like, 3, 64, 1, 1, 100_000)
    assert (seen[..., 4] - seen[..., 3] >= 100_000).all()


def test_every_kernel_of_the_lab_has_a_name():
    """By which lab.attributes() knows its registers and blocks."""
    for path in (CSRC / "lab").rglob("*.cu"):
        text = path.read_text()
        for head in re.findall(r"__global__([^{;]*)\{", text):
            kernel = re.search(r"(\w+)\(", re.sub(r"__\w+__\([^()]*\)", "", head))[1]
            pattern = rf'(?:", |\b(?:step|version)<(?:\d+, )?){kernel}\b|auto kKernel = {kernel}\b'
            assert re.search(pattern, text), (path.name, kernel)


@CUDA
def test_kernel_attributes():
    names = [f"sgemm {step}" for step in ladders.SGEMM_KERNELS] + ["softmax online4", "copy 8x1", "tiled dynamic 8"]
    names += ["fma 16x64", "parity branch", "paths", "vector_add vector4", "histogram privatised", "read shared"]
    names += ["reduction v8_last_block", "reduction v9_cooperative_groups", "transpose 04_swizzled"]
    names += ["pointer_chase shared", "attention 01_materialised scores"]
    if runs_hopper_kernels():
        names += [f"attention {step} {d}" for step in attention.OURS for d in (64, 128)]
        names += [f"tensor {step}" for step in ladders.TENSOR_KERNELS] + ["fp32 scaled"]
    for name in names:
        found = torch_ext.lab.attributes(name)
        assert 8 <= found["registers"] <= 255 and found["blocks"] >= 1 and found["local"] == 0
    assert torch_ext.lab.attributes("sgemm 03_shared_tile")["shared"] == 8192
    with pytest.raises(RuntimeError, match="expected the name of a kernel of the lab, got x"):
        torch_ext.lab.attributes("x")


@CUDA
@pytest.mark.parametrize("n", [1, 33, 1000, 5003])
def test_divergence(n):
    x = torch.randint(-(2**31), 2**31 - 1, (n,), dtype=torch.int32, device="cuda")
    expected = torch.where(x % 2 == 0, x.long() * 2, x.long() + 1).to(torch.int32)
    assert torch.equal(lab.parity(x, True), expected) and torch.equal(lab.parity(x, False), expected)
    y, index = randn(n, device="cuda"), torch.arange(n, device="cuda")
    for count in (1, 3, 32):
        for per_lane in (True, False):
            chosen = ((index if per_lane else index // 32) % count).double()
            assert ((lab.paths(y, count, per_lane).double() - 2 * chosen).abs() <= 2**-20 * (2 * chosen + 1)).all()


@CUDA
@pytest.mark.parametrize("variant", ["plain", "privatised", "coarsened2", "coarsened4", "vector2", "vector4"])
def test_vector_add(variant):
    for n in (0, 1, 3, 4, 255, 1025, 100_003):
        a, b = randn(n, device="cuda"), randn(n, device="cuda")
        poison("cuda", 1)
        assert torch.equal(lab.vector_add(a, b, variant), a + b)
    a, b = randn(512, device="cuda"), randn(512, device="cuda")
    assert torch.equal(lab.vector_add(a, b, "unguarded"), a + b)


@pytest.mark.sanitize
@CUDA
@pytest.mark.parametrize("shared", [True, False])
def test_window_sum_has_a_halo(shared):
    for n in (1, 4, 255, 256, 257, 1000, 5003):
        for window in (1, 3, 5, 257, 1025):
            x = torch.randint(-100, 100, (n,), device="cuda").float()  # exact in fp32: an edge is right or wrong
            expected = experiments.window_reference(x.double(), window)
            poison("cuda", 1)
            assert torch.equal(lab.window_sum(x, window, shared).double(), expected), (n, window)


@pytest.mark.sanitize
@CUDA
@pytest.mark.parametrize("privatised", [True, False])
def test_histogram(privatised):
    for n in (0, 1, 1000, 30_011 if SANITIZED else 1_000_003):
        for bins in (1, 7, 256, 8192):
            x = torch.randint(-2, bins + 2, (n,), dtype=torch.int32, device="cuda")
            inside = x[(x >= 0) & (x < bins)]
            poison("cuda", 1)
            counts = lab.histogram(x, bins, privatised)
            assert torch.equal(counts, torch.bincount(inside, minlength=bins).int())


@pytest.mark.sanitize
@CUDA
@pytest.mark.parametrize(
    "variant", ["naive", "fixed", "dynamic", "conflicting", "padded", "uncontracted", "single_block"]
)
def test_tiled_matmul(variant):
    sizes = [(0, 3, 2), (3, 4, 0), (1, 1, 1), (5, 7, 3), (32, 32, 32), (31, 17, 100)]
    if variant != "single_block":
        sizes += [(33, 31, 65)] if SANITIZED else [(33, 31, 65), (100, 200, 37)]
    for m, n, k in sizes:
        a, b = randn(m, k, device="cuda"), randn(k, n, device="cuda")
        for tile in (8, 16, 32) if variant in ("fixed", "dynamic") else (32,):
            poison("cuda")
            assert_sgemm(lab.tiled_matmul(a, b, variant, tile), a, b)
    with pytest.raises(RuntimeError, match="m, n <= 32"):
        lab.tiled_matmul(randn(33, 2, device="cuda"), randn(2, 2, device="cuda"), "single_block", 32)


@CUDA
def test_ops_use_the_current_stream_and_graphs():
    x, y = randn(1000, 777, device="cuda"), randn(777, 1000, device="cuda")
    softmax, reduce_sum = partial(lab.softmax, variant="online"), partial(lab.reduce_sum, version=7)
    for call in (softmax, reduce_sum, partial(lab.sgemm, b=y, step=7)):
        check_side_stream(call, x)
        check_replays(partial(call, x), x)


@CUDA
@pytest.mark.parametrize("name", torch_ext.lab.EXPERIMENTS)
def test_an_experiment_runs_and_concludes(name):
    """From end to end, processes and compilers too; what the figures say, small sizes do not show."""
    rows = torch_ext.lab.run(name, quick=True, seconds=1e-3)
    if not rows:
        pytest.skip("needs compute capability 9.0, or nvcc")
    assert all(row["us"] > 0 for row in rows)
    assert "leave out" not in torch_ext.lab.conclude(rows).text


@CUDA
def test_time_us_measures_the_device():
    x = randn(1 << 26, device="cuda")
    us, (low, high) = measure.time_us(lambda: lab.vector_add(x, x, "vector4"), 0.01)
    assert low <= us <= high and us > 12 * x.numel() / 10e12 * 1e6  # no GPU moves 10 TB/s
