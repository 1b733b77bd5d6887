"""Benchmarks, one file an op; `python -m benchmarks.run` runs them, `python -m benchmarks.report` shows the results."""
