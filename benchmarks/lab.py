"""The lab's runner in a checkout: `torch_ext.lab` with results in benchmarks/results and their sources beside them.

``python -m benchmarks.lab --redraw`` makes conclusions and plots anew from the rows that are kept; it needs no GPU.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.results import RESULTS, commit, dump, machine_code, sources_digest
from torch_ext import _load, lab
from torch_ext.lab import measure
from torch_ext.lab.__main__ import main


def describe(sources: Sequence[str]) -> dict[str, Any]:
    paths = list(sources)
    return {
        "commit": commit(),
        "sources": {"paths": paths, "sha256": sources_digest(paths)},
        "machine_code": machine_code(paths, _load.LIBRARY),
    }


def redraw() -> None:
    """Conclusions and plots of all kept rows."""
    for path in sorted(RESULTS.glob("*/lab_*.json")):
        experiment = lab.EXPERIMENTS.get(path.stem.removeprefix("lab_"))
        if experiment is None:
            print(f"{path.relative_to(RESULTS)}: no such experiment any more")
            continue
        document, rows = json.loads(path.read_text()), lab.load(path)
        path.write_text(dump(document | lab.heading(rows)))
        if experiment.plot:
            lab.plot(rows, document["gpu"]).savefig(path.with_suffix(".png"), metadata={"Software": None})
        print(f"{path.relative_to(RESULTS)}: {lab.conclude(rows).text}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--redraw"]:
        redraw()
        sys.exit(0)
    sys.exit(main(folder=lambda: RESULTS / measure.gpu_folder(), describe=describe))
