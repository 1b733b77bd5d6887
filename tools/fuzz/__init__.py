"""The project's seeded fuzzer: random calls of every operator, valid and not, against float64 references.

``python -m tools.fuzz`` (``make fuzz``); docs/fuzz.md says what a case is. It measures errors as the tests do and takes
their helpers, so tests/ is on the path here as it is in pytest.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT / "tests") not in sys.path:
    sys.path.append(str(ROOT / "tests"))

import torch_ext  # noqa: E402, F401  (registers torch.ops.xgemm, which the tests' helpers look up)
