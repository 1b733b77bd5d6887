"""topk_softmax's host logic without a GPU: where rows and results lie, lanes, blocks; compiled from plan.cpp itself."""

import random
from collections.abc import Callable

import pytest
import torch
from test_reduce_plan import BF16, F16, F32, F64, TOPK, fields, line, numbers, planner  # noqa: F401


@pytest.fixture
def plans(planner: Callable) -> Callable[[list[tuple]], list[tuple[dict, list[int]]]]:  # noqa: F811
    """Of problems (dtype, sizes, strides, dim, k): the plan, and where each row and its result lie."""

    def ask(problems: list[tuple]) -> list[tuple[dict, list[int]]]:
        lines = [line(TOPK, dtype, dim, sizes, strides, sms=k) for dtype, sizes, strides, dim, k in problems]
        answers = planner(lines)
        return [(fields(plan), numbers(where)) for plan, where in zip(answers[::2], answers[1::2], strict=True)]

    return ask


def test_every_row_is_found_where_it_lies(plans):
    generator = random.Random(1)
    problems, wanted = [], []
    for _ in range(200):
        rank = generator.randint(1, 5)
        sizes = [generator.randint(1, 6) for _ in range(rank)]
        order = generator.sample(range(rank), rank)
        x = torch.empty([sizes[d] for d in order]).permute([order.index(d) for d in range(rank)])
        x = x[tuple(slice(None, None, generator.choice((1, 1, 2))) for _ in range(rank))]
        dim = generator.randrange(rank)
        k = generator.randint(1, x.shape[dim])
        problems.append((F32, list(x.shape), list(x.stride()), dim, k))
        y = torch.empty([k if d == dim else n for d, n in enumerate(x.shape)])
        heads = torch.cartesian_prod(*(torch.arange(1 if d == dim else n) for d, n in enumerate(x.shape)))
        strides = torch.tensor([x.stride(), y.stride()])
        wanted.append((heads.reshape(-1, rank) @ strides.mT).flatten().tolist())
    for (plan, offsets), where, problem in zip(plans(problems), wanted, problems, strict=True):
        assert offsets == where, problem
        assert plan["rows"] * 2 == len(where)


def test_plans_hold_the_row_and_fit(plans):
    problems = [
        (dtype, [rows, n], [n, 1], 1, k)
        for dtype in (F32, F16, BF16, F64)
        for n in (1, 8, 9, 63, 64, 65, 128, 129, 512, 1025, 5000, 50257, 200000, 2**31 - 1)
        for k in {min(n, k) for k in (1, 32, 33, 64)}
        for rows in (1, 1000, 2**40)
    ]
    by_row: dict[tuple, tuple] = {}
    for (plan, _), (dtype, sizes, _, _, k) in zip(plans(problems), problems, strict=True):
        n = sizes[1]
        assert plan["shared"] <= 48 << 10 and 0 < plan["blocks"] < 2**31
        assert plan["threads"] % plan["lanes"] == 0 and plan["threads"] % 32 == 0
        if plan["kernel"] == 0:
            assert plan["lanes"] * plan["values"] >= n and plan["lanes"] <= 32
        else:
            warps = plan["lanes"] // 32
            assert 1 <= warps <= 8 and -(-k // warps) <= 32
            assert plan["threads"] == plan["lanes"] or warps == 1
        # The order of additions does not depend on the number of rows.
        order = tuple(plan[name] for name in ("kernel", "values", "lanes"))
        assert by_row.setdefault((dtype, n, k), order) == order


def test_vectors_and_alignment(plans):
    cases = [
        *(((F32, [3, 8], [8, 1], 1, 2), (1, 1)), ((F32, [3, 7], [7, 1], 1, 2), (1, 0))),
        *(((BF16, [3, 12], [12, 1], 1, 2), (1, 0)), ((F32, [3, 8], [16, 2], 1, 2), (0, 0))),
        ((F64, [3, 8], [1, 3], 1, 2), (0, 0)),
    ]
    for (plan, _), (_, wanted) in zip(plans([problem for problem, _ in cases]), cases, strict=True):
        assert (plan["vector"], plan["aligned"]) == wanted
