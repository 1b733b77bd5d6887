"""What a run leaves behind: result files, merged with what is there, and saved Measurements."""

import datetime
import json
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.utils.benchmark import Measurement

from benchmarks.results import RESULTS, dump, gpu_folder, merge_rows

if TYPE_CHECKING:
    from benchmarks.common.benchmark import Benchmark


def write_results(benchmark: "Benchmark") -> Path | None:
    """Merges the rows into `<op>.json` and returns its path; None where nothing was measured.

    In a mode XGEMM_ARCH=80, where a Hopper GPU runs other kernels, the file is `<op>_arch80.json`.

    Rows stay that an earlier run measured on the same sources and kernels; others go. With `--out DIR` the file is
    written there and, when DIR has none yet, starts from the committed one: a partial run brings a whole file back.
    """
    if not benchmark.rows:
        return None
    where = benchmark.where
    folder = RESULTS / gpu_folder(where.name)
    arch = os.environ.get("XGEMM_ARCH", "")
    op = f"{benchmark.op}_arch{arch}" if arch else benchmark.op
    path = (benchmark.options.out or folder) / f"{op}.json"
    sources = {"paths": benchmark.sources, "sha256": benchmark.digest}
    clocks = list(benchmark.clocks)
    old_rows: list[dict] = []
    for candidate in (path, folder / path.name):
        if candidate.exists():
            old = json.loads(candidate.read_text())
            same_kernels = old.get("machine_code") == benchmark.machine_code
            if old["sources"] == sources and same_kernels and old["gpu"] == where.name:
                old_rows, clocks = old["rows"], clocks + old["clocks_mhz"]
            break
    document = {
        "op": op,
        "gpu": where.name,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": benchmark.commit,
        "versions": {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "driver": where.gpu.driver if where.gpu else None,
        },
        "clocks_mhz": [min(clocks), max(clocks)] if clocks else [],
        "ceilings_gbps": {
            "copy": round(where.copy_gbps, 1) if where.copy_gbps else None,
            "read": round(where.read_gbps, 1) if where.read_gbps else None,
        },
        **({} if benchmark.options.cuda else {"threads": torch.get_num_threads()}),
        "sources": sources,
        "machine_code": benchmark.machine_code,
        "rows": merge_rows(old_rows, benchmark.rows),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(dump(document))
    temporary.replace(path)
    return path


def save_measurements(path: Path, measurements: list[Measurement]) -> None:
    """A pickled list, as PyTorch's benchmark recipe keeps it: `pickle.load`, then `torch.utils.benchmark.Compare`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(measurements))
