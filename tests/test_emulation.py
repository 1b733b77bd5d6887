"""The emulator of CUDA kernels (tests/emulation): correct kernels pass, planted mistakes are found.

Emulated are kernels whose threads meet through barriers of their own: TMA, mbarriers, cp.async, clusters, wgmma.
"""

import re
from pathlib import Path

import common
import pytest
from emulation.translate import translate

HERE = Path(__file__).resolve().parent
CSRC = HERE.parent / "csrc"


PLANNERS = [*sorted((CSRC / "matmul" / "plan").glob("*.cpp")), CSRC / "matmul" / "order.cpp"]
WGMMA_PRODUCTS = [
    *(path for path in sorted((CSRC / "matmul" / "wgmma").glob("*.cu")) if path.stem != "bf16"),
    *(
        CSRC / "matmul" / f"{name}.cu"
        for name in ("bf16x3/kernel", "fp16_split/passes", "simt/float", "simt/half_splits")
    ),
    *PLANNERS,
]
FP32 = ("sliced/sliced", "bf16x3/kernel", "tf32/kernel")
FP32_PRODUCTS = [*(CSRC / "matmul" / f"{name}.cu" for name in FP32), *PLANNERS]
SOFTMAX = [
    *(CSRC / "softmax" / f"softmax_{name}.cu" for name in ("shared", "columns", "elements")),
    *(CSRC / name for name in ("softmax/plan.cpp", "reduce/plan.cpp", "reduce/row_plan.cpp", "reduce/column_plan.cpp")),
]


def run(path: Path, seeds: int) -> str:
    return common.run(path, seeds, timeout=600).stdout


def by_mistake(path: Path) -> dict[str, list[str]]:
    """The results of each mistake of programs/planted.cpp, one per seed."""
    found: dict[str, list[str]] = {}
    for line in run(path, seeds=24).splitlines():
        mistake, result = re.fullmatch(r"(\w+) \d+: (.*)", line).groups()
        found.setdefault(mistake, []).append(result)
    return found


PROGRAMS = {"wgmma_products": WGMMA_PRODUCTS, "fp32_products": FP32_PRODUCTS, "softmax": SOFTMAX}
PROGRAMS |= dict.fromkeys(("fp64", "fp64_m8n8k4", "mma"), PLANNERS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_that_are_right_on_a_gpu(emulated, name):
    assert run(emulated(name, *PROGRAMS[name]), seeds=12).strip() == "passed"


def test_steps_of_the_attention_ladder(emulated):
    steps = sorted((CSRC / "lab" / "attention").glob("*.cu"))
    assert run(emulated("lab_attention", *steps), seeds=4).strip() == "passed"


@pytest.mark.parametrize(("name", "files"), [("lab_sgemm", "sgemm/07*.cu"), ("lab_tensor", "tensor/1*.cu")])
def test_steps_of_other_ladders(emulated, name, files):
    assert run(emulated(name, *sorted((CSRC / "lab").glob(files))), seeds=6).strip() == "passed"


@pytest.fixture(scope="module")
def planted(emulated) -> dict[str, list[str]]:
    return by_mistake(emulated("planted"))


def test_reads_that_a_copy_overwrites_need_a_proxy_fence(emulated, planted):
    """A missing fence is found only in programs that emulate plain loads; in others no load is late."""
    found = by_mistake(emulated("planted", reads=True))
    assert found["none"] == planted["no_proxy_fence"] == ["right"] * 24
    assert all("have read without fence.proxy.async" in result for result in found["no_proxy_fence"]), found


def test_without_a_mistake_every_seed_is_right(planted):
    assert planted["none"] == ["right"] * 24


# The message of each mistake, and the least number of the 24 seeds that show it: races need the right order.
@pytest.mark.parametrize(
    ("mistake", "shows", "seeds"),
    [
        ("no_wait_for_full", "wrong|more arrivals", 12),
        ("no_wait_for_empty", "more arrivals than the 1|completed another phase", 20),
        ("wrong_parity", "^deadlock.*waits for parity 0 of the mbarrier of planted.cpp", 24),
        ("early_release", "wrong", 6),
        ("early_read", "wrong", 24),
        ("changed_operand", "a register of A has changed while a wgmma was in flight", 24),
        ("too_many_arrivals", "wrong|more arrivals|completed another phase", 12),
        ("too_few_arrivals", "^deadlock.*1 of 5 arrivals and 0 bytes are missing", 24),
        ("too_few_bytes", "more bytes have come", 24),
        ("too_many_bytes", "^deadlock.*0 of 1 arrivals and 16 bytes are missing", 24),
        ("uninitialised_barrier", "not initialised", 24),
        ("named_count", "barrier 1 of (96|128) threads, where those before named", 24),
        ("no_store_wait", "wrong", 6),
        ("out_of_bounds", "out of bounds|behind dynamic shared memory", 24),
        ("unaligned_slots", "not aligned to 128 bytes|wrong", 18),
        ("divergent", "^deadlock.*waits in __syncwarp|mask", 24),
        ("registers", "setmaxnreg by some warps only", 24),
        ("copy_at_the_end", "a cp.async is under way when its CTA has ended", 12),
    ],
)
def test_planted_mistakes_are_found(planted, mistake, shows, seeds):
    results = planted[mistake]
    assert sum(re.search(shows, result) is not None for result in results) >= seeds, results


def test_runs_with_one_seed_are_equal(emulated):
    path = emulated("planted")
    assert run(path, seeds=3) == run(path, seeds=3)


def test_translation_keeps_lines_and_leaves_other_text_alone():
    source = (
        "void f() {\n  extern __shared__ __align__(16) unsigned char shared[];\n  __shared__ float a[2][kN], b;\n"
        '  asm volatile("mov.u32 %0, %%tid.x;"\n               : "=r"(x));\n  asm volatile("" : "+r"(y)::"memory");\n'
        '  kernel<f(), 3><<<1, 2, 3, stream>>>(a);\n  // asm("nothing")\n}\n'
    )
    out = translate(source, "x.cu").splitlines()
    assert out[0] == '#line 1 "x.cu"'
    assert out[2] == "  unsigned char* const shared = ::emulation::dynamic_shared<unsigned char, 16>();"
    assert "auto& a = ::emulation::static_shared<float[2][kN]>(" in out[3]
    assert "auto& b = ::emulation::static_shared<float>(" in out[3]
    assert out[4] == "  ::emulation::assembly::thread_index(x)" and out[5] == ";"
    assert out[6] == "  ::emulation::assembly::nothing(y);"
    assert out[7] == "  ::emulation::configured(kernel<f(), 3>, 1, 2, 3, stream)(a);"
    assert out[8] == '  // asm("nothing")'
    assert translate("int x;  // __shared__ memory\n", "x.h") is None
