"""Speed of xgemm's operators against torch's own: geometric means over all benchmarked cases.

Made by `python -m benchmarks.replace_defaults` from benchmarks/results; do not edit.
"""

# GPU, operator, dtype: torch's time over xgemm's. torch's is its fastest of the same accuracy.
SPEED: dict[str, dict[str, dict[str, float]]] = {
    "NVIDIA H200": {
        "matmul": {"bfloat16": 1.31, "float16": 1.18, "float32": 1.89},
        "linear": {"bfloat16": 1.14, "float32": 2.71},
        "attention": {"bfloat16": 1.26, "float16": 1.24, "float32": 4.52},
        "softmax": {"bfloat16": 2.6, "float32": 2.19},
        "log_softmax": {"bfloat16": 1.67, "float32": 1.72},
        "logsumexp": {"bfloat16": 9.09, "float32": 7.28},
        "cross_entropy": {"bfloat16": 4.08, "float32": 3.58},
        "sum": {"bfloat16": 1.38, "float32": 1.28},
        "amax": {"bfloat16": 2.18, "float32": 1.32},
        "argmax": {"bfloat16": 3.06, "float32": 1.7},
    },
}
