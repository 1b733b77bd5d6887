"""Speed of xgemm's operators against torch's own: geometric means over all benchmarked cases.

Made by `python -m benchmarks.replace_defaults` from benchmarks/results; do not edit.
"""

# GPU, operator, dtype: torch's time over xgemm's. torch's is its fastest of the same accuracy.
SPEED: dict[str, dict[str, dict[str, float]]] = {
    "NVIDIA H200": {
        "matmul": {"bfloat16": 1.31, "float16": 1.18, "float32": 1.89},
        "linear": {"bfloat16": 1.15, "float32": 2.67},
        "attention": {"bfloat16": 1.26, "float16": 1.25, "float32": 4.52},
        "softmax": {"bfloat16": 2.72, "float32": 2.4},
        "log_softmax": {"bfloat16": 1.72, "float32": 1.82},
        "logsumexp": {"bfloat16": 8.99, "float32": 7.36},
        "cross_entropy": {"bfloat16": 4.09, "float32": 3.58},
        "sum": {"bfloat16": 1.4, "float32": 1.29},
        "amax": {"bfloat16": 2.14, "float32": 1.31},
        "argmax": {"bfloat16": 3.01, "float32": 1.68},
    },
}
