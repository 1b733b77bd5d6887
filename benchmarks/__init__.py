"""Benchmarks, one file an op; `python -m benchmarks.run` runs them all, `python -m benchmarks.report` shows what they wrote."""
