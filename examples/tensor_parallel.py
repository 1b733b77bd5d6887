"""A transformer in tensor parallel by torch's own engine: tokens a second on torch's operators and on xgemm's.

    python -m examples.tensor_parallel                       # one process a GPU, or two on the CPU with a tiny model
    torchrun --nproc-per-node 8 -m examples.tensor_parallel --width 8192 --layers 8

Run from the project's folder. Each layer is split as in Megatron: query, key, value, gate and up by columns, out and
down by rows, so that a layer takes two all-reduces.
"""

import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed.tensor import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

import torch_ext

HEAD_SIZE = 64


class Layer(torch.nn.Module):
    """Attention and SwiGLU, each behind a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        self.q, self.k, self.v, self.out = (torch.nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (torch.nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(3 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (-1, HEAD_SIZE)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # of this process' heads
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def tokens_per_second(model: torch.nn.Module, x: torch.Tensor, seconds: float) -> float:
    """The slowest process counts; all of them make the same number of calls."""

    def synchronize() -> None:
        if x.is_cuda:
            torch.cuda.synchronize()
        dist.barrier()

    def run(calls: int) -> float:
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            model(x)
        synchronize()
        taken = torch.tensor(time.perf_counter() - start, device=x.device)
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        return taken.item()

    run(3)  # warm-up
    calls = max(1, int(seconds / run(1)))
    return calls * x.shape[0] * x.shape[1] / run(calls)


def work(rank: int, size: int, meeting: str, options: argparse.Namespace) -> None:
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if cuda else "gloo", init_method=meeting, rank=rank, world_size=size)
    mesh = init_device_mesh(device.type, (size,))

    torch.manual_seed(0)  # the same weights and inputs in every process
    dtype = getattr(torch, options.dtype)
    layers = (Layer(options.width) for _ in range(options.layers))
    model = torch.nn.Sequential(*layers).to(device, dtype).eval().requires_grad_(False)
    x = torch.randn(options.batch, options.length, options.width, device=device, dtype=dtype)
    plan = {name: ColwiseParallel() for name in ("q", "k", "v", "gate", "up")}
    plan |= {name: RowwiseParallel() for name in ("out", "down")}
    for layer in model:
        parallelize_module(layer, mesh, plan)

    with torch.no_grad():
        expected, torchs = model(x), tokens_per_second(model, x, options.seconds)
        report = torch_ext.replace(model)
        actual, ours = model(x), tokens_per_second(model, x, options.seconds)
    if rank == 0:
        difference = ((actual - expected).norm() / expected.norm()).item()
        name = torch.cuda.get_device_name(device) if cuda else "CPU"
        print(f"{size} processes, {name}: {options.layers} layers of width {options.width}, ", end="")
        print(f"{options.batch} x {options.length} tokens, {options.dtype}")
        print(f"  torch {torchs:12.0f} tokens/s")
        print(f"  xgemm {ours:12.0f} tokens/s, {ours / torchs:.2f} times; the outputs differ by {difference:.1e}")
        left = {key: n for key, n in report.calls.items() if key[1] != "xgemm"}
        print(f"  calls that stayed on torch: {left or 'none'}", flush=True)
    dist.destroy_process_group()
    # DTensor's caches keep the process group, and a gloo thread of it may still hold a tensor: where Python shuts down
    # meanwhile, the thread's wait for Python's lock aborts the process (pytorch/pytorch#190489).
    os._exit(0)


def main() -> None:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=torch.cuda.device_count() if cuda else 2)
    parser.add_argument("--width", type=int, default=4096 if cuda else 256, help="a multiple of 64 x processes")
    parser.add_argument("--layers", type=int, default=4 if cuda else 2)
    parser.add_argument("--batch", type=int, default=4 if cuda else 1)
    parser.add_argument("--length", type=int, default=2048 if cuda else 128)
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each of the two is measured")
    options = parser.parse_args()
    size = int(os.environ.get("WORLD_SIZE", options.processes))  # torchrun's
    if options.width % (HEAD_SIZE * size):
        parser.error(f"--width has to be a multiple of {HEAD_SIZE} x {size} processes, got {options.width}")
    if "RANK" in os.environ:
        work(int(os.environ["RANK"]), size, "env://", options)
    else:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work, (size, f"file://{folder}/meeting", options), size)


if __name__ == "__main__":
    main()
