"""Development only: checks and times every wgmma variant (torch.ops.xgemm_dev) on one H200.

    python dev/hopper_check.py [--library PATH] [--skip-time] [--only bf16,f16,tf32,fp32] [--sanitize]

Each variant is checked in a process of its own (all at once, with a time limit), then all sound ones are timed, interleaved with torch.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

BF16, F16, TF32 = [0, 1, 2, 3, 4], [0], [0]
FP32 = [0, 1, 2, 3, 4, 5, 6]
VARIANTS = (
    [("bf16", v) for v in BF16] + [("f16", v) for v in F16] + [("tf32", v) for v in TF32] + [("fp32", v) for v in FP32]
)


def say(*parts) -> None:
    print(*parts, flush=True)


def load(library: str):
    import torch

    torch.ops.load_library(library)
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def product(torch, kind: str, variant: int, a, b):
    return (
        torch.ops.xgemm_dev.gemm_fp32(a, b, variant, 7) if kind == "fp32" else torch.ops.xgemm_dev.gemm(a, b, variant)
    )


def lay(x, layout: str):
    """'N': last dim contiguous; 'T': the one before."""
    return x if layout == "N" else x.mT.contiguous().mT


def poison(torch) -> None:
    blocks = [torch.full((n,), float("nan"), device="cuda") for n in (1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 24)]
    del blocks


def errors(torch, c, c64, scale):
    d = (c.double() - c64).abs()
    fro = (d.norm() / c64.norm().clamp_min(1e-300)).item()
    return fro, (d / scale.clamp_min(1e-300)).max().item()


def check_half(torch, kind: str, variant: int) -> int:
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "tf32": torch.float32}[kind]
    bad = 0
    cases = []
    for layout in ("NN", "NT", "TN", "TT"):
        cases += [
            (layout, 1, 128, 256, 64),
            (layout, 1, 256, 512, 256),
            (layout, 1, 1024, 1024, 1024),
            (layout, 1, 8, 8, 8),
            (layout, 1, 104, 200, 72),
            (layout, 1, 136, 264, 1000),
            (layout, 1, 1000, 1000, 1000),
            (layout, 1, 2056, 1544, 520),
            (layout, 3, 200, 136, 264),
            (layout, 1, 256, 256, 16384),
            (layout, 1, 4096, 4096, 512),
        ]
    cases += [("NT", 1, 1, 133, 64), ("NT", 1, 257, 515, 264), ("NN", 1, 1, 4096, 4096), ("NN", 1, 3, 8, 8)]
    for layout, batch, m, n, k in cases:
        if kind == "tf32" and layout != "NT":
            continue
        shape_a, shape_b = ((batch, m, k), (batch, k, n)) if batch > 1 else ((m, k), (k, n))
        a = lay(torch.randn(*shape_a, device="cuda").to(dtype), layout[0])
        b = lay(torch.randn(*shape_b, device="cuda").to(dtype), layout[1])
        label = f"{kind} v{variant} {layout} {batch}x{m}x{n}x{k}"
        try:
            poison(torch)
            c = product(torch, kind, variant, a, b)
            again = product(torch, kind, variant, a, b)
            torch.cuda.synchronize()
        except RuntimeError as e:
            if "no variant" in str(e):
                continue
            say(f"FAIL {label}: {str(e).splitlines()[0]}")
            return bad + 1
        c64 = a.double() @ b.double()
        scale = a.double().abs() @ b.double().abs()
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        theirs = errors(torch, a @ b, c64, scale)
        torch.backends.cuda.matmul.allow_tf32 = False
        ours = errors(torch, c, c64, scale)
        slack = 4.0 if kind == "tf32" else 1.2  # tf32 here truncates its inputs
        ok = ours[0] <= slack * theirs[0] + 1e-6 and ours[1] <= 2 * slack * theirs[1] + 1e-6 and torch.equal(c, again)
        ok = ok and not c.isnan().any().item()
        bad += not ok
        detail = f"fro {ours[0]:.2e} (torch {theirs[0]:.2e}) max {ours[1]:.2e} ({theirs[1]:.2e})"
        if not ok:
            d = (c.double() - c64).abs() > 0.05 * scale.clamp_min(1e-30)
            where = d.reshape(-1, m, n).any(0)
            rows, cols = where.any(1).nonzero().flatten().tolist(), where.any(0).nonzero().flatten().tolist()
            detail += f" wrong {d.sum().item()}/{d.numel()} nan {c.isnan().sum().item()}"
            detail += f" repeat {torch.equal(c, again)} rows {rows[:6]}..{rows[-2:]} cols {cols[:6]}..{cols[-2:]}"
        say(f"{'ok  ' if ok else 'FAIL'} {label}: {detail}")
    if kind == "bf16" and bad == 0:
        a = torch.randn(5, 200, 136, device="cuda").to(dtype)
        b = torch.randn(136, 264, device="cuda").to(dtype).expand(5, -1, -1)
        c = product(torch, kind, variant, a, b)
        fro = ((c.double() - a.double() @ b.double()).norm() / c.double().norm()).item()
        full = torch.randn(4096, 1024, device="cuda").to(dtype)
        w = torch.randn(1024, 768, device="cuda").to(dtype)
        whole = product(torch, kind, variant, full, w)
        same = all(
            torch.equal(product(torch, kind, variant, full[i : i + n], w), whole[i : i + n])
            for i, n in ((0, 1), (77, 1), (128, 300), (1000, 3000))
        )
        ok = fro < 5e-3 and same
        bad += not ok
        say(
            f"{'ok  ' if ok else 'FAIL'} {kind} v{variant} broadcast batch fro {fro:.1e}; row bits independent of M {same}"
        )
    return bad


def data_classes(torch, m: int, n: int, k: int):
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
    hilbert = 1.0 / (i + j + 1.0)
    yield "hilbert", hilbert, (1.0 / (torch.arange(k, **g).view(-1, 1) + torch.arange(n, **g).view(1, -1) + 1.0))
    a = r(m, k, **g)
    a[3 % m, 5 % k] = float("inf")
    a[7 % m, 1 % k] = float("nan")
    b = r(k, n, **g)
    b[5 % k, 2 % n] = 0.0
    b[0, n - 1] = float("-inf")
    yield "nonfinite", a, b


def check_fp32(torch, variant: int) -> int:
    bad = 0

    def one(label, a, b, strict):
        nonlocal bad
        try:
            poison(torch)
            c = product(torch, "fp32", variant, a, b)
            again = product(torch, "fp32", variant, a, b)
            torch.cuda.synchronize()
        except RuntimeError as e:
            if "no variant" in str(e):
                return True
            say(f"FAIL fp32 v{variant} {label}: {str(e).splitlines()[0]}")
            bad += 1
            return False
        theirs_c = a @ b
        c64 = a.double() @ b.double()
        scale = a.double().abs() @ b.double().abs()
        if "nonfinite" in label:
            same = (c.isnan() == theirs_c.isnan()).all() & (c.isinf() == theirs_c.isinf()).all()
            ok = same.item() and torch.equal(
                c.isinf() * c.sign().nan_to_num(), theirs_c.isinf() * theirs_c.sign().nan_to_num()
            )
            finite = c64.isfinite() & c.isfinite()
            zero = torch.zeros_like(c64)
            ours = errors(
                torch, torch.where(finite, c, 0), torch.where(finite, c64, zero), torch.where(finite, scale, zero + 1)
            )
            ok = ok and ours[0] < 1e-5
            theirs = (float("nan"), float("nan"))
        else:
            ours, theirs = errors(torch, c, c64, scale), errors(torch, theirs_c, c64, scale)
            ok = (ours[0] <= theirs[0] and ours[1] <= 1.5 * theirs[1]) if strict else ours[1] <= 4e-7 + 2 * theirs[1]
            if strict and not ok:
                ok = None  # inaccurate rather than wrong
                if ours[1] > 4e-7 + 4 * theirs[1]:
                    ok = False
        if not torch.equal(c.nan_to_num(), again.nan_to_num()):
            ok = False
            label += " NOT REPEATABLE"
        bad += ok is False
        mark = {True: "ok  ", None: "over", False: "FAIL"}[ok]
        detail = f"fro {ours[0]:.2e} (sgemm {theirs[0]:.2e}) max {ours[1]:.2e} ({theirs[1]:.2e})"
        if ok is False:
            d = (c.double() - c64).abs() > 1e-4 * scale.clamp_min(1e-300)
            where = d.reshape(-1, *d.shape[-2:]).any(0)
            rows, cols = where.any(1).nonzero().flatten().tolist(), where.any(0).nonzero().flatten().tolist()
            detail += f" wrong {d.sum().item()}/{d.numel()} nan {c.isnan().sum().item()}"
            detail += f" rows {rows[:6]}..{rows[-2:]} cols {cols[:6]}..{cols[-2:]}"
        say(f"{mark} fp32 v{variant} {label}: {detail}")
        return True

    r = torch.randn
    for layout in ("NN", "NT", "TN", "TT"):
        for m, n, k in (
            (128, 128, 64),
            (256, 384, 256),
            (1, 1, 1),
            (131, 197, 67),
            (1000, 1000, 1000),
            (1025, 511, 2049),
        ):
            a, b = lay(r(m, k, device="cuda"), layout[0]), lay(r(k, n, device="cuda"), layout[1])
            if not one(f"{layout} {m}x{n}x{k}", a, b, False):
                return bad
        one(
            f"{layout} batch 3x130x70x200",
            lay(r(3, 130, 200, device="cuda"), layout[0]),
            lay(r(3, 200, 70, device="cuda"), layout[1]),
            False,
        )
    one(
        "misaligned",
        r(300 * 301 + 1, device="cuda")[1:].view(300, 301),
        r(301 * 303 + 1, device="cuda")[1:].view(301, 303),
        False,
    )
    one("sliced", r(300, 602, device="cuda")[:, ::2], r(301, 606, device="cuda")[:, ::2], False)
    one("expanded batch", r(4, 130, 200, device="cuda"), r(200, 70, device="cuda").expand(4, -1, -1), False)
    full, w = r(4096, 1024, device="cuda"), r(1024, 768, device="cuda")
    whole = product(torch, "fp32", variant, full, w)
    same = all(
        torch.equal(product(torch, "fp32", variant, full[i : i + n], w), whole[i : i + n])
        for i, n in ((0, 1), (77, 1), (128, 300), (1000, 3000))
    )
    bad += not same
    say(f"{'ok  ' if same else 'FAIL'} fp32 v{variant} row bits independent of M {same}")
    for m, n, k in ((512, 384, 1024), (512, 384, 8192)):
        for name, a, b in data_classes(torch, m, n, k):
            one(f"{name} {m}x{n}x{k}", a, b, True)
    for name, a, b in data_classes(torch, 128, 128, 65536):
        if name in ("normal", "uniform", "lognormal", "relu", "ksc8"):
            one(f"{name} 128x128x65536", a, b, True)
    return bad


def check(kind: str, variant: int, library: str) -> None:
    torch = load(library)
    start = time.time()
    bad = check_fp32(torch, variant) if kind == "fp32" else check_half(torch, kind, variant)
    say(f"RESULT {kind} v{variant}: {'sound' if bad == 0 else f'{bad} FAILED'} in {time.time() - start:.1f} s")
    sys.exit(1 if bad else 0)


def tiny(library: str) -> None:
    """One small case of every variant, for compute-sanitizer."""
    torch = load(library)
    r = torch.randn
    for kind, variant in VARIANTS:
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}.get(kind, torch.float32)
        a = r(264, 200, device="cuda").to(dtype)
        b = lay(r(200, 392, device="cuda").to(dtype), "T" if kind == "tf32" else "N")
        c = product(torch, kind, variant, a, b)
        fro = ((c.double() - a.double() @ b.double()).norm() / c.double().norm()).item()
        say(kind, variant, f"{fro:.1e}")


SHAPES_HALF = [
    ("NN", 4096, 4096, 4096),
    ("NT", 4096, 4096, 4096),
    ("NN", 8192, 8192, 8192),
    ("NT", 8192, 8192, 8192),
    ("NN", 1024, 1024, 1024),
    ("NN", 2048, 2048, 2048),
    ("NN", 8192, 8192, 1024),
    ("NN", 4096, 4096, 14336),
    ("NN", 4096, 14336, 4096),
    ("NN", 512, 512, 65536),
    ("NN", 8192, 8192, 128),
    ("NN", 16384, 16384, 16384),
]
SHAPES_FP32 = [
    ("NN", 4096, 4096, 4096),
    ("NT", 4096, 4096, 4096),
    ("NN", 8192, 8192, 8192),
    ("NT", 8192, 8192, 8192),
    ("NN", 512, 512, 512),
    ("NN", 1024, 1024, 1024),
    ("NN", 2048, 2048, 2048),
    ("NN", 8192, 8192, 1024),
    ("NN", 4096, 4096, 14336),
    ("NN", 4096, 14336, 4096),
    ("NN", 512, 512, 65536),
    ("NN", 8192, 8192, 128),
    ("NN", 1000, 1000, 1000),
    ("NN", 4097, 4097, 4097),
    ("NN", 16384, 16384, 16384),
]


def timed(torch, contenders: dict, flop: float) -> dict:
    """Interleaved medians in us. Short work is replayed from graphs, so that launches cost nothing on the host."""
    runs, repeats = {}, {}
    guess = flop / (60e12 if len(contenders) and "torch fp32" in contenders else 600e12)
    for name, f in contenders.items():
        try:
            for _ in range(2):
                f()
            torch.cuda.synchronize()
            if guess < 300e-6:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    for _ in range(10):
                        f()
                runs[name], repeats[name] = graph.replay, 10
                graph.replay()
            else:
                runs[name], repeats[name] = f, 1
        except RuntimeError as e:
            if "no variant" not in str(e):
                raise
    calls = 1 if guess > 20e-3 else max(2, min(10, int(4e-3 / guess)))
    rounds = 3 if guess > 50e-3 else 7
    times: dict = {name: [] for name in runs}
    for _ in range(rounds):
        for name, f in runs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(calls):
                f()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / calls / repeats[name])
    return {name: statistics.median(t) for name, t in times.items()}


def bench(library: str, sound: list, out: str, only: list) -> None:
    torch = load(library)
    table = []

    def show(kind, layout, m, n, k, result, base):
        flop = 2.0 * m * n * k
        say(f"TIME {kind} {layout} {m}x{n}x{k}")
        for name, us in sorted(result.items(), key=lambda x: x[1]):
            say(f"   {name:14s} {us:10.1f} us {flop / us / 1e6:7.1f} TFLOP/s  {result[base] / us:5.2f}x")
            table.append({"kind": kind, "layout": layout, "m": m, "n": n, "k": k, "name": name, "us": us})
        Path(out).write_text(json.dumps(table))

    for layout, m, n, k in SHAPES_FP32 if "fp32" in only else []:
        a, b = lay(torch.randn(m, k, device="cuda"), layout[0]), lay(torch.randn(k, n, device="cuda"), layout[1])
        contenders = {"torch fp32": lambda a=a, b=b: a @ b}
        for kind, v in sound:
            if kind == "fp32" and (m < 16384 or v in (1, 4)):
                contenders[f"fp16x3 v{v}"] = lambda v=v, a=a, b=b: product(torch, "fp32", v, a, b)
        show("fp32", layout, m, n, k, timed(torch, contenders, 2.0 * m * n * k), "torch fp32")
    for kind, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16), ("tf32", torch.float32)):
        for layout, m, n, k in SHAPES_HALF if kind in only else []:
            if kind == "tf32":
                layout = "NT"
            if kind != "bf16" and (m, n, k) not in ((4096, 4096, 4096), (8192, 8192, 8192)):
                continue
            a = lay(torch.randn(m, k, device="cuda").to(dtype), layout[0])
            b = lay(torch.randn(k, n, device="cuda").to(dtype), layout[1])
            torch.backends.cuda.matmul.allow_tf32 = True
            contenders = {f"torch {kind}": lambda a=a, b=b: a @ b}
            for other, v in sound:
                if other == kind:
                    contenders[f"{kind} v{v}"] = lambda v=v, a=a, b=b, kind=kind: product(torch, kind, v, a, b)
            show(kind, layout, m, n, k, timed(torch, contenders, 2.0 * m * n * k), f"torch {kind}")
            torch.backends.cuda.matmul.allow_tf32 = False
    if "fp32" not in only:
        return
    try:  # where the time of the fp32 product goes
        from torch.profiler import ProfilerActivity, profile

        for n in (1024, 4096):
            a, b = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")
            for kind, v in sound:
                if kind != "fp32":
                    continue
                with profile(activities=[ProfilerActivity.CUDA]) as p:
                    for _ in range(4):
                        product(torch, "fp32", v, a, b)
                    torch.cuda.synchronize()
                parts = {e.key[:40]: f"{e.self_device_time_total / e.count:.1f}" for e in p.key_averages()}
                say(f"KERNELS fp32 v{v} {n}^3 us: {parts}")
    except Exception as e:
        say("profiler:", type(e).__name__, e)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default=str(Path(__file__).with_name("libxgemm_hopper.so")))
    parser.add_argument("--worker", nargs=2)
    parser.add_argument("--bench")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--skip-time", action="store_true")
    parser.add_argument("--skip-check", action="store_true")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--only", default="fp32,bf16,f16,tf32")
    parser.add_argument("--seconds", type=float, default=75)
    args = parser.parse_args()
    only = args.only.split(",")
    out = os.path.join(os.environ.get("OUT", "/tmp"), "hopper_times.json")
    if args.worker:
        return check(args.worker[0], int(args.worker[1]), args.library)
    if args.tiny:
        return tiny(args.library)
    if args.bench:
        return bench(args.library, json.loads(args.bench), out, only)
    me = [sys.executable, "-u", str(Path(__file__).resolve()), "--library", args.library, "--only", args.only]
    if args.sanitize:
        jobs = {
            t: subprocess.Popen(
                ["compute-sanitizer", "--tool", t, "--kernel-name", "kernel_substring=xgemm", *me, "--tiny"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for t in ("memcheck", "racecheck", "synccheck")
        }
        for t, job in jobs.items():
            try:
                text = job.communicate(timeout=200)[0]
            except subprocess.TimeoutExpired:
                job.kill()
                text = job.communicate()[0] + "\nTIMED OUT"
            say(f"== {t}\n" + "\n".join(text.splitlines()[:40] + ["..."] + text.splitlines()[-12:]))
        return None
    variants = [v for v in VARIANTS if v[0] in only]
    sound = list(variants)
    if not args.skip_check:
        start = time.time()
        jobs = {
            v: subprocess.Popen(
                [*me, "--worker", v[0], str(v[1])], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            for v in variants
        }
        sound, log = [], []
        for v, job in jobs.items():
            try:
                text = job.communicate(timeout=max(1.0, args.seconds - (time.time() - start)))[0]
            except subprocess.TimeoutExpired:
                job.kill()
                text = job.communicate()[0] + f"\nRESULT {v[0]} v{v[1]}: TIMED OUT"
            log.append(text)
            lines = text.splitlines()
            failed = [x for x in lines if x.startswith("FAIL")]
            over = [x for x in lines if x.startswith("over")]
            other = [x for x in lines if not x.startswith(("ok", "FAIL", "over"))]
            say("\n".join(failed[:4] + over[: 12 if v[1] < 3 else 4] + other[-3:]))
            if job.returncode == 0:
                sound.append(v)
            elif failed and all("Error" not in x and "CUDA" not in x for x in lines):
                sound.append(v)  # wrong somewhere, but it ends: its speed still tells
        Path(os.path.dirname(out), "hopper_check.log").write_text("\n".join(log))
        say(f"checks took {time.time() - start:.0f} s; to time: {sound}")
    if not args.skip_time and sound:
        try:
            subprocess.run([*me, "--bench", json.dumps(sound)], timeout=150)
        except subprocess.TimeoutExpired:
            say("timing ran out of time")


if __name__ == "__main__":
    main()
