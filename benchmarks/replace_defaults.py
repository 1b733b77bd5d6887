"""Writes torch_ext/replace/measured.py from the committed results: `python -m benchmarks.replace_defaults [--check]`.

An installed wheel has no benchmarks folder, but :func:`torch_ext.replace` leaves to torch what was measured slower.
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.results import RESULTS, ROOT, geomean, grouped

MODULE = ROOT / "torch_ext" / "replace" / "measured.py"
OPS = [
    *("matmul", "linear", "attention", "softmax", "log_softmax", "logsumexp", "cross_entropy"),
    *("sum", "amax", "argmax"),
]
HEAD = '''"""Speed of xgemm's operators against torch's own: geometric means over all benchmarked cases.

Made by `python -m benchmarks.replace_defaults` from benchmarks/results; do not edit.
"""

# GPU, operator, dtype: torch's time over xgemm's. torch's is its fastest of the same accuracy.
'''


def ratios(rows: list[dict]) -> dict[str, float]:
    """By dtype, torch's time over ours, of calls and in CUDA graphs. fp32 is measured at full precision ("highest").

    torch's time is that of `torch` or of SDPA's fastest backend: torch.compile, and FlashAttention-3 unless a program
    activates it in torch, are not what a replaced call would have run on.
    """
    found: dict[str, list[float]] = {}
    for group in grouped(rows):
        ours = group.get("xgemm")
        if ours is None or ours["mode"] not in (None, "highest"):
            continue
        peers = [row["us"] for name, row in group.items() if name == "torch" or name.startswith("sdpa_")]
        if peers:
            found.setdefault(ours["dtype"], []).append(min(peers) / ours["us"])
    return {dtype: round(geomean(values), 2) for dtype, values in sorted(found.items())}


def text(results: Path = RESULTS) -> str:
    """The module that the committed results give."""
    lines = ["SPEED: dict[str, dict[str, dict[str, float]]] = {"]
    for folder in sorted(path for path in results.iterdir() if path.is_dir()):
        documents = {op: json.loads(path.read_text()) for op in OPS if (path := folder / f"{op}.json").exists()}
        if not documents:
            continue
        gpu = next(iter(documents.values()))["gpu"]
        lines.append(f'    "{gpu}": {{')
        for op, document in documents.items():
            entries = ", ".join(f'"{dtype}": {ratio}' for dtype, ratio in ratios(document["rows"]).items())
            lines.append(f'        "{op}": {{{entries}}},')
        lines.append("    },")
    return HEAD + "\n".join([*lines, "}", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the module is stale")
    check = parser.parse_args().check
    new = text()
    if check and MODULE.read_text() != new:
        print(f"{MODULE.relative_to(ROOT)} is stale: run python -m benchmarks.replace_defaults", file=sys.stderr)
        return 1
    if not check:
        MODULE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
