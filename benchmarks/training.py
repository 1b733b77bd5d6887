"""Training steps (forward, backward, AdamW) of torch, of torch with TF32, and of torch inside torch_ext.enable().

A row is the time of one step and the losses of the first steps, from the same weights on the same data. A step is
launched from Python ("eager"), as one CUDA graph of the whole step ("graph"), and with `--compile` also from Python
with the loss function compiled ("compiled"). Other rows have the losses of small models over `--steps` steps, and their
mean distance to the same run in float64. Weights are random; nothing is downloaded. On a CPU all sizes are tiny.
"""

import contextlib
import functools
import gc
import importlib.util
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.benchmark import Measurement, TaskSpec
from torch.utils.benchmark import timer as synchronised_clock

import torch_ext
from benchmarks import common, models
from benchmarks.common import SHORT, Contender, Options, Runner, WrongResult, interleave
from benchmarks.common.benchmark import MOST_S
from benchmarks.common.command import finish, show_notes, to_stderr
from benchmarks.common.timing import quartiles_s
from benchmarks.models import Input, Model, everything_in_fp32, everything_in_tf32
from benchmarks.tables import OURS, TF32, TRAINING, training_tables

OP = TRAINING
SOURCES = ["csrc", "torch_ext"]

FLOAT64 = "torch_fp64"  # the run that loss curves are measured against
FIRST = 8  # steps whose losses the row of a timed step has
STEPS = 200  # of a loss curve
RATE, CURVE_RATE = 1e-4, 1e-3  # AdamW's
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.05}  # of our first losses, relative to torch's
BLOCK_S, BLOCKS_S, ROUNDS = 0.1, 2.0, 5  # of a contender; of all contenders' blocks; at least three rounds
CLASSES = 1000


@dataclass
class Training:
    """A model, its loss on a batch, and fixed batches. All contenders train these parameters, one after the other."""

    model: nn.Module
    loss: Callable[..., Tensor]
    batches: list[tuple[Tensor, ...]]
    rate: float = RATE

    def __post_init__(self) -> None:
        parameters = list(self.model.parameters())
        capturable = parameters[0].is_cuda
        self.optimizer = torch.optim.AdamW(parameters, lr=self.rate, fused=True, capturable=capturable)
        self.initial = [parameter.detach().clone() for parameter in parameters]

    @torch.no_grad()
    def restore(self) -> None:
        """Back to the start, in place: CUDA graphs hold the addresses of weights and optimizer state."""
        for parameter, initial in zip(self.model.parameters(), self.initial, strict=True):
            parameter.copy_(initial)
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def step(self, loss: Callable[..., Tensor], batch: int = 0) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        value = loss(*self.batches[batch % len(self.batches)])
        value.backward()
        self.optimizer.step()
        return value.detach()

    def eager(self) -> Callable[[], Tensor]:
        return partial(self.step, self.loss)

    def compiled(self) -> Callable[[], Tensor]:
        return partial(self.step, self._compiled_loss)

    @functools.cached_property
    def _compiled_loss(self) -> Callable[..., Tensor]:
        torch._dynamo.config.recompile_limit = 1000  # models share the code of their loss
        return torch.compile(self.loss, dynamic=False)

    def graph(self) -> Callable[[], Tensor]:
        """The whole step, captured; the loss that it returns is overwritten by the next one."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step(self.loss)  # what is set up once (optimizer state, workspaces) stays out of the graph
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph, stream=stream):
            loss = self.step(self.loss)

        def replay() -> Tensor:
            graph.replay()
            return loss

        return replay

    def losses(self, steps: int) -> list[float]:
        self.restore()
        return torch.stack([self.step(self.loss, i) for i in range(steps)]).tolist()


# ---- the models ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    name: str
    make: Callable[[torch.device, torch.dtype], Training]
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)
    compiles: bool = True  # torch.compile has no double backward


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    with torch.random.fork_rng(), device:
        torch.manual_seed(seed)
        yield


def transformer(model: Model, given: Input, batches: int = 1, rate: float = RATE) -> Problem:
    """A language model learns to repeat its tokens, an image classifier random labels."""

    def make(device: torch.device, dtype: torch.dtype) -> Training:
        module = model.build(device, dtype).train()

        def batch() -> tuple[Tensor, Tensor]:
            (inputs,) = given.make(model, device, dtype)
            return inputs, inputs if given.length else torch.randint(CLASSES, (given.batch,))

        def loss(inputs: Tensor, labels: Tensor) -> Tensor:
            logits = models.forward(module, inputs)
            return cross_entropy(logits.to(at_least_fp32(dtype)).flatten(0, -2), labels.flatten())

        with seeded(1, device):
            return Training(module, loss, [batch() for _ in range(batches)], rate)

    return Problem(f"{model.name} {given.name}", make)


def at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


class Mixer(nn.Module):
    """MLP-Mixer on patches that are already cut out, (batch, patches, width): Linear layers alone."""

    def __init__(self, patches: int, width: int, depth: int) -> None:
        super().__init__()

        def mlp(size: int, hidden: int) -> nn.Module:
            return nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, size))

        def block() -> nn.ModuleList:
            return nn.ModuleList(
                [nn.LayerNorm(width), mlp(patches, 2 * patches), nn.LayerNorm(width), mlp(width, 4 * width)]
            )

        self.embed = nn.Linear(width, width)
        self.blocks = nn.ModuleList(block() for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for norm1, tokens, norm2, channels in self.blocks:
            x = x + tokens(norm1(x).mT).mT
            x = x + channels(norm2(x))
        return self.head(self.norm(x).mean(1))


def mixer(batch: int, patches: int, width: int, depth: int, batches: int = 1, rate: float = RATE) -> Problem:
    def make(device: torch.device, dtype: torch.dtype) -> Training:
        with seeded(0, device):
            module = Mixer(patches, width, depth).to(dtype)
            data = [
                (torch.randn(batch, patches, width).to(dtype), torch.randint(CLASSES, (batch,))) for _ in range(batches)
            ]

        def loss(inputs: Tensor, labels: Tensor) -> Tensor:
            return cross_entropy(module(inputs).to(at_least_fp32(dtype)), labels)

        return Training(module, loss, data, rate)

    return Problem(f"MLP-Mixer {depth}x{width} {batch} images", make)


def pinn(points: int, width: int, depth: int, batches: int = 1, rate: float = RATE) -> Problem:
    """A physics-informed network: Burgers' equation at random points, whose second derivative is a double backward."""

    def make(device: torch.device, dtype: torch.dtype) -> Training:
        with seeded(0, device):
            hidden = [layer for _ in range(depth - 1) for layer in (nn.Linear(width, width), nn.Tanh())]
            module = nn.Sequential(nn.Linear(2, width), nn.Tanh(), *hidden, nn.Linear(width, 1)).to(dtype)
            data = []
            for _ in range(batches):
                inside = torch.rand(points, 2)  # x and t
                data.append((inside.to(dtype), torch.stack([inside[:, 0], torch.zeros(points)], 1).to(dtype)))

        def loss(inside: Tensor, start: Tensor) -> Tensor:
            points = inside.detach().requires_grad_()
            u = module(points)
            (first,) = torch.autograd.grad(u.sum(), points, create_graph=True)
            (second,) = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)
            residual = first[:, 1] + u[:, 0] * first[:, 0] - 0.01 * second[:, 0]
            missed = module(start)[:, 0] - torch.sin(2 * math.pi * start[:, 0])
            return residual.square().mean() + missed.square().mean()

        return Training(module, loss, data, rate)

    return Problem(f"PINN {depth}x{width} {points} points", make, (torch.float32,), compiles=False)


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT = replace(
    models.BERT,
    classes=("BertConfig", "BertForMaskedLM"),
    config=models.BERT.config | NO_DROPOUT,
    inputs=(Input(16, 512), Input(1, 128)),
)
VIT = replace(
    models.VIT,
    classes=("ViTConfig", "ViTForImageClassification"),
    config=models.VIT.config | {"num_labels": CLASSES},
    inputs=(Input(32),),
)
LLAMA = replace(
    models.LLAMA,
    name="Llama of 8 layers",
    config=models.LLAMA.config | {"num_hidden_layers": 8, "max_position_embeddings": 512},
    inputs=(Input(16, 512), Input(1, 128)),
)
SMALL = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
SMALL_BERT = Model("BERT 4x256", BERT.classes, {**BERT.config, **SMALL, "vocab_size": 4000}, BERT.tiny, ())


def problems(cuda: bool) -> list[Problem]:
    """What is wanted most comes first, for a run with a budget."""
    inputs = [*((model, model.inputs[0]) for model in (BERT, LLAMA, VIT)), (BERT, BERT.inputs[1])]
    inputs.append((LLAMA, LLAMA.inputs[1]))
    found = [transformer(model, given if cuda else given.for_cpu()) for model, given in inputs]
    found[3:3] = [mixer(64, 196, 768, 12), pinn(65536, 256, 6)] if cuda else [mixer(2, 16, 32, 2), pinn(64, 16, 3)]
    return list({problem.name: problem for problem in found}.values())  # tiny inputs may be equal


def curve_problems(cuda: bool) -> list[Problem]:
    """No Llama: its norms compute in float32 whatever the dtype, so that it has no run in float64."""
    given, more = Input(16, 128), {"batches": 4, "rate": CURVE_RATE}
    if cuda:
        return [transformer(SMALL_BERT, given, **more), mixer(64, 64, 256, 4, **more), pinn(16384, 256, 6, **more)]
    return [transformer(SMALL_BERT, given.for_cpu(), **more), mixer(2, 16, 32, 2, **more), pinn(64, 16, 3, **more)]


# ---- what is measured ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingCase:
    """The step of a problem in one dtype and launch; with `steps`, its loss curve."""

    problem: Problem
    dtype: torch.dtype
    launch: str
    steps: int | None = None
    groups: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.problem.name + (f", {self.steps} steps" if self.steps else "")

    @property
    def key(self) -> str:
        return f"{self.name} {SHORT[self.dtype]} {self.launch}"


@contextlib.contextmanager
def enabled(device: torch.device) -> Iterator[None]:
    with everything_in_fp32(), torch_ext.enable(device=device.type):
        yield


def contexts(dtype: torch.dtype, options: Options) -> dict[str, Callable[[], contextlib.AbstractContextManager]]:
    """The contenders."""
    tf32 = {TF32: everything_in_tf32} if dtype == torch.float32 and options.cuda else {}
    return {"torch": everything_in_fp32, **tf32, OURS: partial(enabled, options.device)}


@dataclass
class StepTimer:
    """torch.utils.benchmark.Timer's part of Runner, with one step of warm-up instead of two: a step may take 0.5 s."""

    step: Callable[[], Tensor]
    spec: TaskSpec

    def timeit(self, number: int) -> Measurement:
        if number > 1:
            self.step()
        start = synchronised_clock()
        for _ in range(number):
            self.step()
        return Measurement(number, [synchronised_clock() - start], self.spec)


class Trainings(common.Benchmark):
    """Measures training steps and loss curves in place of an operator's cases."""

    _made: tuple[Problem, torch.dtype, Training] | None = None  # the last one: launches of a model follow each other

    def measure(self, case: TrainingCase, share_s: float = MOST_S) -> list[dict]:
        rows: list[dict] = []
        with self._guard(case, "case"):
            rows = self._curves(case) if case.steps else self._steps(case, share_s)
        self.rows += rows
        gc.collect()
        if self.options.cuda:
            torch.cuda.empty_cache()
        return rows

    def _training(self, case: TrainingCase) -> Training:
        if self._made is None or self._made[:2] != (case.problem, case.dtype):
            self._made = None  # before the next model takes memory
            gc.collect()
            self._made = case.problem, case.dtype, case.problem.make(self.options.device, case.dtype)
        return self._made[2]

    def _steps(self, case: TrainingCase, share_s: float) -> list[dict]:
        training = self._training(case)
        runners: dict[str, Runner] = {}
        losses: dict[str, list[float]] = {}
        for name, context in contexts(case.dtype, self.options).items():
            with self._guard(case, name):
                with context():
                    runner, losses[name] = self._ready(case, training, name, context)
                if name == OURS and "torch" in losses:
                    check(case, losses[name], losses["torch"])
                runners[name] = runner
        interleave(
            list(runners.values()), min(share_s / 2, BLOCKS_S), 3 if self.options.quick else ROUNDS, self.where.gpu
        )
        return [self._row(case, runner, {"loss": losses[name]}) for name, runner in runners.items()]

    def _ready(
        self, case: TrainingCase, training: Training, name: str, context: Callable
    ) -> tuple[Runner, list[float]]:
        """A contender ready to be timed, and its first losses; the context is entered."""
        training.restore()
        step = getattr(training, case.launch)()
        training.restore()  # capturing a graph makes a step
        values = [step().clone() for _ in range(FIRST // 2)]
        start = synchronised_clock()
        values += [step().clone() for _ in range(FIRST - len(values))]
        seconds = (synchronised_clock() - start) / (FIRST - FIRST // 2)
        threads = torch.get_num_threads()
        spec = TaskSpec("step()", "", label=OP, sub_label=case.key, description=name, num_threads=threads)
        number = max(1, round((BLOCK_S / 4 if self.options.quick else BLOCK_S) / seconds))
        runner = Runner(Contender(name, step, context), StepTimer(step, spec), number=number, calibrated_s=seconds)
        return runner, digits(torch.stack(values).tolist())

    def _row(self, case: TrainingCase, runner: Runner, fields: dict) -> dict:
        measurement = runner.measurement()
        low, high = quartiles_s(measurement)
        measurement.metadata = {
            **head(case, runner.contender.name),
            "ms": round(measurement.median * 1e3, 4),
            "ms_quartiles": [round(low * 1e3, 4), round(high * 1e3, 4)],
            **runner.condition(),
            **fields,
        }
        self.measurements.append(measurement)
        self.clocks += [reading.clock_mhz for reading in runner.readings]
        return measurement.metadata

    def _curves(self, case: TrainingCase) -> list[dict]:
        contenders = contexts(case.dtype, self.options)
        with contenders["torch"]():
            exact = case.problem.make(self.options.device, torch.float64).losses(case.steps)
        rows = [head(case, FLOAT64) | {"loss": digits(exact)}]
        training = self._training(case)
        for name, context in contenders.items():
            with self._guard(case, name):
                with context():
                    found = training.losses(case.steps)
                distance = statistics.fmean(abs(a - b) for a, b in zip(found, exact, strict=True))
                if not math.isfinite(distance):
                    raise WrongResult(f"{name} on {case.key}: a loss is not finite")
                rows.append(head(case, name) | {"loss": digits(found), "distance": float(f"{distance:.4g}")})
        return rows


def head(case: TrainingCase, contender: str) -> dict:
    dtype = str(case.dtype).removeprefix("torch.")
    return {"case": case.name, "dtype": dtype, "launch": case.launch, "contender": contender}


def digits(values: list[float]) -> list[float]:
    return [float(f"{value:.9g}") for value in values]


def check(case: TrainingCase, ours: list[float], torchs: list[float]) -> None:
    """Raises WrongResult where our losses are not torch's."""
    for i, (a, b) in enumerate(zip(ours, torchs, strict=True)):
        if not abs(a - b) <= TOLERANCE[case.dtype] * abs(b):
            raise WrongResult(f"{OURS} on {case.key}: loss {a:.6g} at step {i}, torch has {b:.6g}")


def cases(options: Options, steps: int = STEPS) -> list[TrainingCase]:
    """fp32, loss curves, then bf16; `--quick`: eager alone."""
    launches = ["eager"]
    if options.cuda and not options.quick:
        launches.append("graph")
    if options.compile:
        launches.append("compiled")
    timed = [
        TrainingCase(problem, dtype, launch)
        for dtype in TOLERANCE
        for problem in problems(options.cuda)
        if dtype in problem.dtypes
        for launch in launches
        if launch != "compiled" or problem.compiles
    ]
    curves = [TrainingCase(problem, torch.float32, "eager", steps) for problem in curve_problems(options.cuda)]
    in_fp32 = sum(case.dtype == torch.float32 for case in timed)
    return timed[:in_fp32] + curves * bool(steps) + timed[in_fp32:]


def main(argv: list[str] | None = None) -> int:
    if importlib.util.find_spec("transformers") is None:
        print("benchmarks.training needs transformers: pip install transformers", file=sys.stderr)
        return 1
    command = common.parser((__doc__ or "").splitlines()[0])
    command.add_argument("--steps", type=int, default=STEPS, help="of the loss curves, 0: none (%(default)s)")
    arguments = command.parse_args(argv)
    options = common.options_of(arguments)
    benchmark = Trainings(OP, SOURCES, options, common.machine(options.device))
    benchmark.run(cases(options, arguments.steps), to_stderr)
    print(f"\n== {OP} on {benchmark.where.name}\n{training_tables(benchmark.rows)}")
    show_notes(benchmark)
    return finish(benchmark) or int(not benchmark.rows)


if __name__ == "__main__":
    sys.exit(main())
