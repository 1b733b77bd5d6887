"""Plans of products without a GPU: matmul_plans.cpp, compiled once per session, links every planner of csrc/matmul and
reads the problems that `ask` writes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from common import CSRC, compiled_once, conversation

PROGRAM = Path(__file__).with_suffix(".cpp")
HIGHEST, IEEE, HIGH, MEDIUM = range(4)
F32, F16, BF16, F64 = range(4)  # DType's order
# Problems that no fp32 kernel on tensor cores takes.
NOT_FP32_ON_TENSOR_CORES = (
    *({"dtype": F16}, {"dtype": F64}, {"precision": IEEE}, {"batch_invariant": True}, {"gated": True}),
    {"forced": "simt_64x64"},
)
Answer = dict[str, float | str]
Ask = Callable[..., "Answer | None"]


def number(text: str) -> float | str:
    """A plan's value as a number; text like "2x4" stays text."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def by_name(words: list[str]) -> Answer | None:
    """A kernel's name and its plan's fields; words without a value are true."""
    if words == ["-"]:
        return None
    fields = (word.partition("=") for word in words[1:])
    return {"name": words[0]} | {name: number(value) if equals else True for name, equals, value in fields}


def plan_fixture(family: str, usually: int = HIGHEST) -> Callable:
    """A fixture that asks for the offer of `family`.

    "choice" is what takes the product, "torch" whether torch is expected to be faster, "names" says of a forced name
    whether it is known: lines of text. Else the answer is a dict, None where nothing is offered.
    `usually`: the precision where none is named.
    """

    @pytest.fixture(scope="module")
    def plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
        planners = [*CSRC.glob("matmul/plan/*.cpp"), CSRC / "matmul/order.cpp"]
        with conversation(compiled_once(tmp_path_factory, PROGRAM, *planners)) as answer:

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
                memory: float = 0,  # bytes per second; 0: an H200's
                forced: str = "-",
            ) -> "Answer | str | None":
                flags = [int(batch_invariant), int(gated), int(prepared), int(residual), major]
                a = (1, ld or m) if layout[0] == "t" else (ld or k, 1)
                b = (1, k) if layout[1] == "t" else (n, 1)
                a, b = strides or (a, b)
                gpu = sm_count, memory
                words = answer(dtype, precision, *flags, m, n, k, batch, *a, offset, *b, offset_b, *gpu, forced, family)
                return " ".join(words) if family in ("choice", "torch", "names") else by_name(words)

            yield ask

    return plan
