"""Speed of xgemm's operators against torch's own: geometric means over all benchmarked cases.

Made by `python -m benchmarks.replace_defaults` from benchmarks/results; do not edit.
"""

# GPU, operator, dtype: torch's time over xgemm's. torch's is its fastest of the same accuracy.
SPEED: dict[str, dict[str, dict[str, float]]] = {
    "NVIDIA H100 80GB HBM3": {
        "attention": {"bfloat16": 1.27, "float16": 1.65, "float32": 5.16},
    },
    "NVIDIA H200": {
        "matmul": {"bfloat16": 1.3, "float16": 1.17, "float32": 1.83},
        "linear": {"bfloat16": 1.14, "float32": 2.53},
        "attention": {"bfloat16": 1.12, "float16": 1.22, "float32": 3.48},
        "softmax": {"bfloat16": 2.8, "float32": 2.42},
        "log_softmax": {"bfloat16": 1.77, "float32": 1.86},
        "logsumexp": {"bfloat16": 9.04, "float32": 7.45},
        "cross_entropy": {"bfloat16": 4.1, "float32": 3.6},
        "sum": {"bfloat16": 1.41, "float32": 1.29},
        "amax": {"bfloat16": 2.12, "float32": 1.31},
        "argmax": {"bfloat16": 3.13, "float32": 1.68},
    },
}
