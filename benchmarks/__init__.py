"""Benchmarks, one file an op; `python -m benchmarks.run` runs them, `python -m benchmarks.report` shows the results."""

import logging

# torch.utils.benchmark imports the C++ extension builder, which warns on a machine that has nvcc but no GPU.
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
