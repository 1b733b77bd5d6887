"""Development only: checks and times the tensor-core kernels behind torch.ops.xgemm.matmul on one H200.

    python dev/hopper_check.py [--only half,fp32,time] [--seconds 60]

Checks run in two processes at once, then the timings, interleaved with torch. Only failures and one summary are shown.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
OUT = Path(os.environ.get("OUT", "/tmp"))
COUNTS = {"ok": 0, "over": 0, "FAIL": 0}


def say(*parts) -> None:
    print(*parts, flush=True)


def note(mark: str, text: str) -> None:
    COUNTS[mark] += 1
    if mark != "ok" or os.environ.get("VERBOSE"):
        say(mark, text)


def lay(x, layout: str):
    """'N': last dim contiguous; 'T': the one before."""
    return x if layout == "N" else x.mT.contiguous().mT


def poison() -> None:
    blocks = [torch.full((n,), float("nan"), device="cuda") for n in (1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 24)]
    del blocks


def errors(c, c64, scale):
    d = (c.double() - c64).abs()
    return (d.norm() / c64.norm().clamp_min(1e-300)).item(), (d / scale.clamp_min(1e-300)).max().item()


def where(c, c64, scale, limit) -> str:
    d = ~((c.double() - c64).abs() <= limit * scale.clamp_min(1e-30))
    d2 = d.reshape(-1, *d.shape[-2:]).any(0)
    rows, cols = d2.any(1).nonzero().flatten().tolist(), d2.any(0).nonzero().flatten().tolist()
    return (
        f"wrong {d.sum().item()}/{d.numel()} nan {c.isnan().sum().item()} rows {rows[:5]}..{rows[-2:]} "
        f"cols {cols[:5]}..{cols[-2:]}"
    )


def same_bits(name: str, f, full, w, sizes=((0, 1), (77, 1), (128, 16), (5, 100), (128, 300), (1000, 3000))) -> None:
    whole = f(full, w)
    bad = [(i, n) for i, n in sizes if not torch.equal(f(full[i : i + n], w), whole[i : i + n])]
    note("FAIL" if bad else "ok", f"{name} row bits depend on M: {bad}")


def check_half() -> None:
    ops = torch.ops.xgemm
    r = torch.randn
    for dtype in (torch.bfloat16, torch.float16):
        shapes = [
            (1, 128, 256, 64), (1, 256, 512, 256), (1, 1024, 1024, 1024), (1, 8, 8, 8), (1, 104, 200, 72),
            (1, 136, 264, 1000), (1, 1000, 1000, 1000), (1, 2056, 1544, 520), (3, 200, 136, 264), (1, 256, 256, 16384),
            (1, 4096, 4096, 512), (1, 1, 1, 1), (1, 7, 13, 5), (1, 127, 129, 65), (1, 257, 515, 263), (1, 1, 4096, 4096),
            (1, 3, 8, 8), (1, 512, 512, 65536), (1, 130, 1000, 4097), (1, 2049, 2051, 2053), (2, 65, 31, 127), (40, 64, 64, 64),
        ]  # fmt: skip
        for layout in ("NN", "NT", "TN", "TT") if dtype is torch.bfloat16 else ("NN", "NT"):
            for batch, m, n, k in shapes:
                sa, sb = ((batch, m, k), (batch, k, n)) if batch > 1 else ((m, k), (k, n))
                a, b = lay(r(*sa, device="cuda").to(dtype), layout[0]), lay(r(*sb, device="cuda").to(dtype), layout[1])
                poison()
                c = ops.matmul(a, b)
                again = ops.matmul(a, b)
                c64, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()
                ours, theirs = errors(c, c64, scale), errors(a @ b, c64, scale)
                ok = ours[0] <= 1.2 * theirs[0] + 1e-6 and ours[1] <= 2.4 * theirs[1] + 1e-6 and torch.equal(c, again)
                text = f"{dtype} {layout} {batch}x{m}x{n}x{k} fro {ours[0]:.2e} ({theirs[0]:.2e}) max {ours[1]:.2e} ({theirs[1]:.2e})"
                note("ok" if ok else "FAIL", text if ok else text + f" repeat {torch.equal(c, again)} " + where(c, c64, scale, 0.05))
    dtype = torch.bfloat16
    for label, a, b in (
        ("broadcast", r(5, 200, 136, device="cuda"), r(136, 264, device="cuda")),
        ("2 batch dims", r(2, 3, 70, 136, device="cuda"), r(3, 136, 264, device="cuda")),
        ("sliced", r(300, 602, device="cuda"), r(301, 606, device="cuda")),
        ("vector", r(136, device="cuda"), r(136, 264, device="cuda")),
        ("expanded rows", r(1, 136, device="cuda"), r(136, 264, device="cuda")),
    ):
        a, b = a.to(dtype), b.to(dtype)
        if label == "sliced":
            a, b = a[:, ::2], b[:, ::2]
        if label == "expanded rows":
            a = a.expand(200, -1)
        c, c64 = ops.matmul(a, b), a.double() @ b.double()
        err = ((c.double() - c64).norm() / c64.norm()).item()
        note("ok" if err < 4e-3 else "FAIL", f"bf16 {label}: {err:.1e}")
    for m, n, k in ((300, 520, 264), (129, 133, 100), (64, 4096, 1024), (1, 1000, 4096)):
        for act in ("none", "relu", "gelu", "gelu_tanh", "silu"):
            x, w = r(m, k, device="cuda").to(dtype), (r(n, k, device="cuda") / k**0.5).to(dtype)
            bias, res = r(n, device="cuda").to(dtype), r(m, n, device="cuda").to(dtype)
            f = {
                "none": lambda y: y, "relu": torch.relu, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu,
                "gelu_tanh": lambda y: torch.nn.functional.gelu(y, approximate="tanh"),
            }[act]  # fmt: skip
            for use in (None, res):
                c = ops.linear(x, w, bias, activation=act, residual=use)
                c64 = f(x.double() @ w.double().T + bias.double()) + (0 if use is None else use.double())
                err = (c.double() - c64).abs().max().item() / c64.abs().max().item()
                note("ok" if err < 6e-3 else "FAIL", f"linear {m}x{n}x{k} {act} residual {use is not None}: {err:.1e}")
    c0, a, b = r(300, 264, device="cuda").to(dtype), r(300, 136, device="cuda").to(dtype), r(136, 264, device="cuda").to(dtype)
    c, c64 = ops.addmm(c0, a, b, beta=0.5, alpha=2.0), 0.5 * c0.double() + 2 * (a.double() @ b.double())
    note("ok" if (c.double() - c64).abs().max() < 0.3 else "FAIL", "addmm")
    for n, k in ((768, 1024), (768, 8192), (4096, 4096), (100, 4100), (14336, 512)):
        same_bits(f"bf16 n {n} k {k}", ops.matmul, r(4096, k, device="cuda").to(dtype), r(k, n, device="cuda").to(dtype))
    graph, a, b = torch.cuda.CUDAGraph(), r(512, 65536, device="cuda").to(dtype), r(65536, 512, device="cuda").to(dtype)
    want = ops.matmul(a, b)
    with torch.cuda.graph(graph):
        got = ops.matmul(a, b)
    for _ in range(3):
        got.fill_(float("nan"))
        graph.replay()
        note("ok" if torch.equal(got, want) else "FAIL", "graph replay of a split product")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    outs = []
    for i in range(8):
        with torch.cuda.stream(side if i % 2 else torch.cuda.current_stream()):
            outs.append(ops.matmul(a, b))
    torch.cuda.synchronize()
    note("ok" if all(torch.equal(o, want) for o in outs) else "FAIL", "two streams at once")


def data_classes(m: int, n: int, k: int):
    g = {"device": "cuda"}
    r = torch.randn

    def wide(*s, d):
        return 10.0 ** torch.empty(*s, **g).uniform_(-d, d) * torch.sign(r(*s, **g))

    yield "normal", r(m, k, **g), r(k, n, **g)
    yield "uniform", torch.rand(m, k, **g), torch.rand(k, n, **g)
    yield "lognormal", r(m, k, **g).exp(), r(k, n, **g).exp()
    yield "lognormal3", (3 * r(m, k, **g)).exp() * torch.sign(r(m, k, **g)), (3 * r(k, n, **g)).exp()
    yield "relu", r(m, k, **g).relu(), r(k, n, **g)
    yield "wide4", wide(m, k, d=4), wide(k, n, d=4)
    yield "wide12", wide(m, k, d=12), wide(k, n, d=12)
    yield "rows15", r(m, k, **g) * wide(m, 1, d=15), r(k, n, **g) * wide(1, n, d=15)
    ks = wide(1, k, d=8).abs()
    yield "ksc8", r(m, k, **g) * ks, r(k, n, **g)
    yield "ksc_cancel", r(m, k, **g) * ks, r(k, n, **g) / ks.mT
    yield "tiny", r(m, k, **g) * 1e-35, r(k, n, **g)
    yield "denormal", r(m, k, **g) * 1e-40, r(k, n, **g)
    yield "huge", r(m, k, **g) * 1e30, r(k, n, **g) * 1e6
    one = torch.ones(m, k, **g)
    one[m // 2, k // 3] = 1e20
    yield "outlier", one, torch.ones(k, n, **g) + 0.1 * r(k, n, **g)
    keep = torch.rand(m, k, **g) < 0.05
    yield "sparse", r(m, k, **g) * keep, r(k, n, **g) * (torch.rand(k, n, **g) < 0.05)
    i, j = torch.arange(m, **g).view(-1, 1), torch.arange(k, **g).view(1, -1)
    yield "hilbert", 1.0 / (i + j + 1.0), 1.0 / (torch.arange(k, **g).view(-1, 1) + torch.arange(n, **g).view(1, -1) + 1.0)
    a, b = r(m, k, **g), r(k, n, **g)
    a[3 % m, 5 % k], a[7 % m, 1 % k] = float("inf"), float("nan")
    b[5 % k, 2 % n], b[0, n - 1] = 0.0, float("-inf")
    yield "nonfinite", a, b


def check_fp32() -> None:
    ops = torch.ops.xgemm
    r = torch.randn

    def one(label, a, b, strict, precision="highest"):
        poison()
        c, again = ops.matmul(a, b, precision=precision), ops.matmul(a, b, precision=precision)
        torch.backends.cuda.matmul.allow_tf32 = precision == "high"
        theirs_c = a @ b
        torch.backends.cuda.matmul.allow_tf32 = False
        c64, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        ok = "ok"
        if "nonfinite" in label:
            same = torch.equal(c.isnan(), theirs_c.isnan()) and torch.equal(
                c.isinf() * c.sign().nan_to_num(), theirs_c.isinf() * theirs_c.sign().nan_to_num()
            )
            finite = c64.isfinite() & c.isfinite()
            ours = errors(torch.where(finite, c, 0), torch.where(finite, c64, 0), torch.where(finite, scale, 1))
            theirs, ok = (math.nan, math.nan), "ok" if same and ours[0] < 1e-5 else "FAIL"
        else:
            ours, theirs = errors(c, c64, scale), errors(theirs_c, c64, scale)
            if strict and not (ours[0] <= theirs[0] and ours[1] <= 1.5 * theirs[1]):
                ok = "over"
            if not (ours[1] <= (4e-7 if precision == "highest" else 1e-5) + 4 * theirs[1]):
                ok = "FAIL"
        repeat = torch.equal(c.nan_to_num(), again.nan_to_num())
        text = f"{precision} {label}: fro {ours[0]:.2e} ({theirs[0]:.2e}) max {ours[1]:.2e} ({theirs[1]:.2e})"
        if ok == "FAIL" or not repeat:
            ok, text = "FAIL", text + f" repeat {repeat} " + where(c, c64, scale, 1e-4)
        note(ok, text)

    for precision in ("highest", "high"):
        for layout in ("NN", "NT", "TN", "TT"):
            for m, n, k in ((1024, 1024, 1024), (1000, 1000, 1000), (1025, 1511, 2049), (4097, 515, 257), (300, 2000, 9000)):
                a, b = lay(r(m, k, device="cuda"), layout[0]), lay(r(k, n, device="cuda"), layout[1])
                one(f"{layout} {m}x{n}x{k}", a, b, False, precision)
            a, b = lay(r(9, 530, 1200, device="cuda"), layout[0]), lay(r(9, 1200, 770, device="cuda"), layout[1])
            one(f"{layout} batch 9x530x770x1200", a, b, False, precision)
    m = 1300
    one("misaligned", r(m * 1301 + 1, device="cuda")[1:].view(m, 1301), r(1301 * 1303 + 1, device="cuda")[1:].view(1301, 1303), False)
    one("sliced", r(m, 2602, device="cuda")[:, ::2], r(1301, 2606, device="cuda")[:, ::2], False)
    one("expanded batch", r(6, 830, 1200, device="cuda"), r(1200, 870, device="cuda").expand(6, -1, -1), False)
    one("2 batch dims", r(2, 3, 830, 1200, device="cuda"), r(3, 1200, 870, device="cuda"), False)
    x, w, bias = r(2048, 1024, device="cuda"), r(1536, 1024, device="cuda"), r(1536, device="cuda")
    c, c64 = ops.linear(x, w, bias, activation="gelu"), torch.nn.functional.gelu(x.double() @ w.double().T + bias.double())
    note("ok" if (c.double() - c64).abs().max() < 1e-4 else "FAIL", "fp32 linear gelu")
    os.environ["XGEMM_BATCH_INVARIANT"] = "1"
    for n, k in ((768, 1024), (4096, 4096), (1000, 9000)):
        same_bits(f"fp32 n {n} k {k}", ops.matmul, r(4096, k, device="cuda"), r(k, n, device="cuda"))
    for m, n, k in ((1024, 1024, 1024), (1024, 1024, 8192), (512, 512, 65536)):
        for name, a, b in data_classes(m, n, k):
            one(f"{name} {m}x{n}x{k}", a, b, True)
    for name, a, b in data_classes(256, 256, 262144):
        if name in ("normal", "uniform", "lognormal", "ksc_cancel"):
            one(f"{name} 256x256x262144", a, b, True)


SHAPES = [
    ("NN", 4096, 4096, 4096), ("NT", 4096, 4096, 4096), ("TN", 4096, 4096, 4096), ("NN", 8192, 8192, 8192), ("NT", 8192, 8192, 8192),
    ("NN", 512, 512, 512), ("NN", 1024, 1024, 1024), ("NN", 2048, 2048, 2048), ("NN", 8192, 8192, 1024), ("NN", 4096, 4096, 14336),
    ("NN", 4096, 14336, 4096), ("NN", 512, 512, 65536), ("NN", 8192, 8192, 128), ("NN", 1000, 1000, 1000), ("NN", 4097, 4097, 4097),
    ("NN", 2049, 2049, 2049), ("NT", 16, 4096, 4096), ("NN", 16, 4096, 4096), ("NT", 1, 4096, 4096), ("NT", 64, 8192, 8192),
    ("NT", 128, 4096, 4096), ("NT", 128, 14336, 4096), ("NT", 128, 4096, 14336), ("NT", 2048, 768, 768), ("NT", 2048, 3072, 768),
    ("NT", 2048, 768, 3072), ("NT", 8192, 1024, 4096), ("NT", 8192, 4096, 1024), ("NT", 2048, 8192, 2048), ("NT", 8192, 2048, 8192),
    ("NT", 2048, 5120, 5120), ("NN", 256, 256, 256), ("BN", 1024, 1024, 1024), ("BN", 128, 128, 128),
]  # fmt: skip


def timed(contenders: dict, guess: float) -> dict:
    """Interleaved medians in us; replayed from graphs of ten calls where a call is short, so that launches cost nothing on the host."""
    runs, repeats = {}, {}
    for name, f in contenders.items():
        for _ in range(2):
            f()
        torch.cuda.synchronize()
        runs[name], repeats[name] = f, 1
        if guess < 300e-6:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(10):
                    f()
            runs[name], repeats[name] = graph.replay, 10
            graph.replay()
    calls = 1 if guess > 10e-3 else max(1, min(10, int(3e-3 / guess)))
    times: dict = {name: [] for name in runs}
    for _ in range(3 if guess > 20e-3 else 7):
        for name, f in runs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(calls):
                f()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / calls / repeats[name])
    return {name: statistics.median(t) for name, t in times.items()}


def bench() -> None:
    ops = torch.ops.xgemm
    rows: list = []
    ratios: dict = {}

    def tf32(a, b):
        torch.backends.cuda.matmul.allow_tf32 = True
        c = a @ b
        torch.backends.cuda.matmul.allow_tf32 = False
        return c

    def operands(layout, m, n, k, dtype):
        if layout[0] == "B":
            batch = 32 if m > 500 else 1024
            return torch.randn(batch, m, k, device="cuda").to(dtype), torch.randn(batch, k, n, device="cuda").to(dtype)
        return lay(torch.randn(m, k, device="cuda").to(dtype), layout[0]), lay(torch.randn(k, n, device="cuda").to(dtype), layout[1])

    def show(kind, case, ours, theirs):
        rows.append({"kind": kind, "case": case, "ours": ours, "torch": theirs})
        ratios.setdefault(kind, []).append(theirs / ours)
        (OUT / "hopper_times.json").write_text(json.dumps(rows))
        return f"{ours:.1f}/{theirs:.1f}={theirs / ours:.2f}"

    for layout, m, n, k in SHAPES:
        flop = 2.0 * m * n * k * (1 if layout[0] != "B" else 32 if m > 500 else 1024)
        case, line = f"{layout} {m}x{n}x{k}", ""
        a, b = operands(layout, m, n, k, torch.bfloat16)
        t = timed({"ours": lambda: ops.matmul(a, b), "torch": lambda: a @ b}, flop / 600e12 + 5e-6)
        line += " bf16 " + show("bf16", case, t["ours"], t["torch"])
        a, b = operands(layout, m, n, k, torch.float32)
        t = timed(
            {
                "ours": lambda: ops.matmul(a, b),
                "torch": lambda: a @ b,
                "high": lambda: ops.matmul(a, b, precision="high"),
                "tf32": lambda: tf32(a, b),
            },
            flop / 60e12 + 5e-6,
        )
        line += " | fp32 " + show("fp32", case, t["ours"], t["torch"]) + " | high " + show("high", case, t["high"], t["tf32"])
        say(f"{case:20s}{line}")
    for kind, r in ratios.items():
        say(f"GEOMEAN {kind} {math.exp(sum(map(math.log, r)) / len(r)):.3f} min {min(r):.2f} of {len(r)}")
    x, w, bias = (torch.randn(*s, device="cuda").bfloat16() for s in ((8192, 4096), (4096, 4096), (4096,)))
    t = timed(
        {
            "ours": lambda: ops.linear(x, w, bias, activation="gelu"),
            "torch": lambda: torch.nn.functional.gelu(torch.nn.functional.linear(x, w, bias)),
            "ours bias": lambda: ops.linear(x, w, bias),
            "torch bias": lambda: torch.nn.functional.linear(x, w, bias),
        },
        600e-6,
    )
    say("linear 8192x4096x4096 bf16", {k: round(v, 1) for k, v in t.items()})
    for name, a, b in data_classes(4096, 4096, 4096):
        if name in ("ksc_cancel", "nonfinite"):
            t = timed({"ours": lambda: ops.matmul(a, b), "torch": lambda: a @ b}, 3e-3)
            say("fallback", name, {k: round(v, 1) for k, v in t.items()})
    from torch.profiler import ProfilerActivity, profile

    for n in (1024, 4096):
        a, b = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")
        for precision in ("highest", "high"):
            with profile(activities=[ProfilerActivity.CUDA]) as p:
                for _ in range(4):
                    ops.matmul(a, b, precision=precision)
                torch.cuda.synchronize()
            parts = {e.key.split("xgemm::matmul::")[-1][:28]: f"{e.self_device_time_total / e.count:.1f}" for e in p.key_averages()}
            say(f"KERNELS fp32 {precision} {n}^3 us: {parts}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="half,fp32,time")
    parser.add_argument("--worker")
    parser.add_argument("--library", default=str(ROOT / "torch_ext" / "libxgemm.so"))
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    if args.worker:
        torch.ops.load_library(args.library)
        torch.backends.cuda.matmul.allow_tf32 = False
        start = time.time()
        try:
            {"half": check_half, "fp32": check_fp32, "time": bench}[args.worker]()
        except RuntimeError as e:
            import traceback

            say("FAIL stopped:", str(e).splitlines()[0], traceback.extract_tb(e.__traceback__)[1])
        say(f"RESULT {args.worker}: {COUNTS} in {time.time() - start:.1f} s")
        return
    for group in (["half", "fp32"], ["time"]):
        jobs = {
            name: subprocess.Popen(
                [sys.executable, "-u", __file__, "--library", args.library, "--worker", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            for name in group
            if name in args.only
        }
        start = time.time()
        for name, job in jobs.items():
            try:
                text = job.communicate(timeout=max(1.0, args.seconds - (time.time() - start)))[0]
            except subprocess.TimeoutExpired:
                job.kill()
                text = job.communicate()[0] + f"\nRESULT {name}: TIMED OUT"
            (OUT / f"hopper_{name}.log").write_text(text)
            lines = text.splitlines()
            failed = [x for x in lines if x.startswith("FAIL")]
            shown = failed[:12] + [x for x in lines if not x.startswith("FAIL")]
            say("\n".join(x[:230] for x in shown))


if __name__ == "__main__":
    main()
