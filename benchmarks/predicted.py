"""What the planner's model expects of the GPU at hand beside what was measured (`make bench` prints it)."""

from collections.abc import Iterable

from torch_ext import predict


def headline_case(op: str, row: dict) -> str | None:
    """The case of `python -m torch_ext --predict` that a row of ours measures, if any."""
    if row["contender"] != "xgemm" or row["graph"]:
        return None
    shape, dtype = row["shape"], row["dtype"]
    if op == "matmul" and shape["layout"] == "nn" and shape["batch"] == 1 and shape["m"] == shape["n"] == shape["k"]:
        return f"matmul {dtype} {row['mode']} {shape['n']}^3" if row["mode"] else f"matmul {dtype} {shape['n']}^3"
    if op == "attention" and row["case"] == f"S4096 D{shape['d']} causal":
        return f"attention {dtype} causal 4096, D {shape['d']}"
    if op in ("softmax", "sum") and row["case"] == "8192x8192 dim1":
        return f"{op} {dtype} 8192 x 8192" + (", dim 1" if op == "sum" else "")
    return None


def beside(gpu: predict.Gpu, measured: Iterable[tuple[str, list[dict]]]) -> list[str]:
    """A line for each headline case among the rows of each op: microseconds predicted, measured, and their ratio."""
    expected = {case: 1e6 * seconds for case, (seconds, _, _) in predict.headline(gpu).items()}
    if gpu.arch == 90:  # attention is predicted of mma.sync's kernels, which Hopper's do not use
        expected = {case: us for case, us in expected.items() if not case.startswith("attention")}
    found: dict[str, float] = {}
    for op, rows in measured:
        for row in rows:
            if (case := headline_case(op, row)) in expected:
                found.setdefault(case, row["us"])
    return [
        f"{case:36}{expected[case]:10,.0f} us predicted{us:10,.0f} measured, {us / expected[case]:.2f} times"
        for case, us in found.items()
    ]
