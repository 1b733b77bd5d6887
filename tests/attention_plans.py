"""Plans of attention without a GPU: attention_plans.cpp, compiled once per session, links csrc/attention's planners."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from common import CSRC, compiled_once, conversation

PROGRAM = Path(__file__).with_suffix(".cpp")
H200_BYTES, L40_BYTES = 227 * 1024, 99 * 1024  # of shared memory per CTA
Answer = dict[str, int]
Ask = Callable[..., "Answer | None"]


@contextmanager
def planner(factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """A function of a family and its problem's numbers (attention_plans.cpp); None: the family does not take it."""
    sources = [CSRC / "attention" / family / "plan.cpp" for family in ("simt", "tiles", "mma", "decode")]
    with conversation(compiled_once(factory, PROGRAM, *sources)) as answer:

        def ask(family: str, *problem: int) -> "Answer | None":
            words = answer(family, *map(int, problem))
            return None if words == ["-"] else {name: int(value) for name, value in (w.split("=") for w in words)}

        yield ask
