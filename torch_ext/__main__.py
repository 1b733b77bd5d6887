"""``python -m torch_ext``: versions, architectures, device, and whether the library loads.

``--predict`` prints what the planner expects of six cards, and of this machine's.
"""

import sys

import torch

import torch_ext
from torch_ext import _load


def report(error: ImportError | None) -> str:
    """The text that is printed; ``error`` is why the library does not load, if it does not."""
    lines = [f"xgemm    {torch_ext.__version__}, {_load.LIBRARY.parent}"]
    lines.append(
        f"torch    {torch.__version__}, " + (f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA")
    )
    try:
        info = _load.build_info()
    except (OSError, ValueError):
        info = None  # the error says it
    if info and info["cuda"]:
        lines.append(f"kernels  {info['architectures']}, compiled with CUDA {info['cuda']}")
    elif info:
        lines.append("kernels  none: built without CUDA, tensors on the CPU only")
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        lines.append(f"device   {torch.cuda.get_device_name()}, compute capability {major}.{minor}")
    else:
        lines.append("device   no NVIDIA GPU: tensors on the CPU are computed by ATen")
    lines.append(f"library  {error}" if error else "library  loads")
    return "\n".join(lines)


def main(error: ImportError | None = None) -> int:
    """Prints the report; 1 if the library does not load."""
    if "--predict" in sys.argv[1:] and not error:
        from torch_ext import predict

        print(predict.report())
        return 0
    print(report(error))
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())
