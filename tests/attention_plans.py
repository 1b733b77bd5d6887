"""Plans of attention without a GPU: attention_plans.cpp, compiled once per session, links csrc/attention's planners."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from common import CSRC, compiled_once, conversation

PROGRAM = Path(__file__).with_suffix(".cpp")
H200_BYTES, L40_BYTES = 227 * 1024, 99 * 1024  # of shared memory per CTA
Answer = dict[str, int]
Ask = Callable[..., "Answer | None"]


# What the program reads of each family's problem, in its order.
PROBLEMS = {
    "simt": "fp64 batches rows sk d dv",
    "simt_tile": "index",
    "tiles": "batch_invariant causal batches group sq sk d dv",
    "mma": "batches group sq sk d dv shared_bytes masked",
    "many_rows": "batch_invariant batches group sq sk d dv",
    "decode": "fp64 batches rows sk key_begin key_end d dv shared_bytes",
}
USUAL = dict.fromkeys(("fp64", "batch_invariant", "causal", "masked", "key_begin"), 0)
USUAL |= {"batches": 1, "group": 1, "d": 128, "shared_bytes": H200_BYTES}


def plan_fixture(family: str, **usual: int) -> Callable:
    """A fixture that asks for a family's plan; None: the family does not take the problem.

    Rows, keys and head sizes may be given by position. Values are as wide as keys and all keys are seen unless told.
    """
    fields = PROBLEMS[family].split()
    positions = [name for name in fields if name in ("rows", "sq", "sk", "d", "dv", "index")]

    @pytest.fixture(scope="module")
    def plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
        sources = [CSRC / "attention" / folder / "plan.cpp" for folder in ("simt", "tiles", "mma", "decode")]
        with conversation(compiled_once(tmp_path_factory, PROGRAM, *sources)) as answer:

            def ask(*sizes: int, **more: int) -> "Answer | None":
                assert more.keys() <= set(fields), more
                problem = USUAL | usual | dict(zip(positions, sizes, strict=False)) | more
                problem = {"dv": problem["d"], "key_end": problem.get("sk", 0)} | problem
                words = answer(family, *(int(problem[name]) for name in fields))
                return None if words == ["-"] else {name: int(value) for name, value in (w.split("=") for w in words)}

            yield ask

    return plan
