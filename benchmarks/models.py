"""Whole models with random weights: torch, torch with TF32, and the same model after torch_ext.replace.

A row is the time of one forward and the error of its output against the same weights and inputs in float64. Each is
launched from Python and, on a GPU, in a CUDA graph; `--compile` adds torch.compile of each. The configurations are in
this file and the weights are random: nothing is downloaded. On a CPU the same models run with tiny sizes.
"""

import contextlib
import copy
import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

import torch_ext
from benchmarks import common
from benchmarks.common import Case, Contender, Options
from benchmarks.matmul import tf32

OP = "models"
SOURCES = ["csrc", "torch_ext"]

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.25}  # of the output's largest element, after all layers
TF32_TOLERANCE = 0.05


@dataclass(frozen=True)
class Model:
    """A model of transformers: its classes, what its configuration sets, and the inputs, the large one first."""

    name: str
    classes: tuple[str, str]  # of the configuration and of the model
    config: dict
    tiny: dict  # what a CPU's run sets instead
    inputs: tuple["Input", ...]

    def settings(self, device: torch.device) -> dict:
        return self.config if device.type == "cuda" else self.config | self.tiny

    def build(self, device: torch.device, dtype: torch.dtype) -> torch.nn.Module:
        import transformers

        config_class, model_class = (getattr(transformers, name) for name in self.classes)
        with torch.random.fork_rng(), device:
            torch.manual_seed(0)
            return model_class(config_class(**self.settings(device))).eval().to(dtype)


@dataclass(frozen=True)
class Input:
    """A batch of token sequences, or of images where `length` is None; `decoder`: tokens of the decoder."""

    batch: int
    length: int | None = None
    decoder: int | None = None

    @property
    def name(self) -> str:
        if self.length is None:
            return f"{self.batch} image{'s' * (self.batch > 1)}"
        return f"{self.batch}x{self.length}" + (f" to {self.decoder}" if self.decoder else "")

    def for_cpu(self) -> "Input":
        lengths = (length and min(length, CPU_LENGTH) for length in (self.length, self.decoder))
        return Input(min(self.batch, CPU_BATCH), *lengths)

    def make(self, model: Model, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        settings = model.settings(device)
        if self.length is None:
            size = settings["image_size"]
            return (torch.randn(self.batch, 3, size, size, device=device, dtype=dtype),)
        shapes = [(self.batch, length) for length in (self.length, self.decoder) if length]
        return tuple(torch.randint(5, settings["vocab_size"], shape, device=device) for shape in shapes)


ENCODER = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
BERT = Model(
    "BERT-large",
    ("BertConfig", "BertModel"),
    {**ENCODER, "vocab_size": 30522, "max_position_embeddings": 512},
    {**TINY, "vocab_size": 100},
    (Input(32, 512), Input(1, 128)),
)
VIT = Model(
    "ViT-L",
    ("ViTConfig", "ViTModel"),
    {**ENCODER, "image_size": 224, "patch_size": 16},
    {**TINY, "image_size": 32, "patch_size": 8},
    (Input(64), Input(1)),
)
LLAMA = Model(
    "Llama-1B-like",
    ("LlamaConfig", "LlamaForCausalLM"),
    {
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 8192,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "use_cache": False,
    },
    {**TINY, "num_key_value_heads": 2, "vocab_size": 100},
    (Input(4, 2048), Input(1, 128)),
)


def both_sides(width: int, layers: int, heads: int, wide: int) -> dict[str, int]:
    """Of an encoder and a decoder alike."""
    sizes = {"layers": layers, "attention_heads": heads, "ffn_dim": wide}
    return {"d_model": width} | {f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in sizes.items()}


BART = Model(
    "BART-large",
    ("BartConfig", "BartModel"),
    {**both_sides(1024, 12, 16, 4096), "vocab_size": 50265, "use_cache": False},
    {**both_sides(64, 2, 4, 128), "vocab_size": 100},
    (Input(16, 512, decoder=128), Input(1, 128, decoder=32)),
)
MODELS = [BERT, VIT, LLAMA, BART]
CPU_BATCH, CPU_LENGTH = 2, 16  # at most


def forward(model: torch.nn.Module, *inputs: torch.Tensor) -> torch.Tensor:
    """The model's first output: hidden states or logits. A second input goes to the decoder."""
    decoder = {"decoder_input_ids": inputs[1]} if len(inputs) > 1 else {}
    return model(inputs[0], return_dict=False, **decoder)[0]


class Subject:
    """One model in one dtype, built when it is first called: torch's, its copy on xgemm, and both compiled."""

    def __init__(self, model: Model, device: torch.device, dtype: torch.dtype) -> None:
        self.model, self.device, self.dtype = model, device, dtype

    @functools.cached_property
    def torchs(self) -> torch.nn.Module:
        return self.model.build(self.device, self.dtype)

    @functools.cached_property
    def ours(self) -> torch.nn.Module:
        model = copy.deepcopy(self.torchs)
        torch_ext.replace(model)
        return model

    def contender(self, name: str, tolerance: float, context: Callable) -> list[Contender]:
        """Called as it is, and compiled."""
        attribute = "ours" if name == "xgemm" else "torchs"

        def call(*inputs: torch.Tensor) -> torch.Tensor:
            return forward(getattr(self, attribute), *inputs)

        @functools.cache
        def compiled() -> Callable[..., torch.Tensor]:
            torch._dynamo.config.recompile_limit = 1000  # each input is a shape of its own
            return torch.compile(partial(forward, getattr(self, attribute)), dynamic=False)

        return [
            Contender(name, call, context, tolerance),
            Contender(f"{name}_compile", lambda *inputs: compiled()(*inputs), context, tolerance),
        ]

    def reference(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The output in float64, and its largest magnitude as the scale of every element."""
        model = copy.deepcopy(self.torchs).double()
        result = forward(model, *(x.double() if x.is_floating_point() else x for x in inputs))
        return result, result.abs().max().expand_as(result)


def convolutions(allow_tf32: bool) -> contextlib.AbstractContextManager:
    """cuDNN's own setting: it is on by default, whatever torch's float32 matmul precision is."""
    kept = dict.fromkeys(("enabled", "benchmark", "benchmark_limit", "deterministic", "fp32_precision"))
    return torch.backends.cudnn.flags(allow_tf32=allow_tf32, **kept)


@contextlib.contextmanager
def no_masks() -> Iterator[None]:
    """transformers makes no mask: no input here has padding, and SDPA's `is_causal` says the rest.

    Its own function asks the tensors whether they have padding. While a CUDA graph is captured it cannot, and makes a
    mask of ones whose last stride is 0, which torch's fused attention refuses: the graph would hold other kernels.
    """
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS as table

    before = table["sdpa"]
    table.register("sdpa", lambda *args, **kwargs: None)
    try:
        yield
    finally:
        table.register("sdpa", before)


@contextlib.contextmanager
def everything_in_fp32() -> Iterator[None]:
    with convolutions(allow_tf32=False), no_masks():
        yield


@contextlib.contextmanager
def everything_in_tf32() -> Iterator[None]:
    with tf32(), convolutions(allow_tf32=True), no_masks():
        yield


def case(subject: Subject, given: Input, options: Options) -> Case:
    model, dtype = subject.model, subject.dtype
    contenders = subject.contender("torch", 0.0, everything_in_fp32)
    if dtype == torch.float32 and options.cuda:
        contenders += subject.contender("torch_tf32", TF32_TOLERANCE, everything_in_tf32)
    contenders += subject.contender("xgemm", 0.0, everything_in_fp32)
    return Case(
        name=f"{model.name} {given.name}",
        shape={"model": model.name, "batch": given.batch, "length": given.length, "decoder": given.decoder},
        dtype=dtype,
        make=lambda device: given.make(model, device, dtype),
        contenders=[each for each in contenders if options.compile or not each.name.endswith("_compile")],
        reference=subject.reference,
        tolerance=TOLERANCE[dtype],
        read=0,
        written=0,
        whole_model=True,
    )


def cases(options: Options) -> list[Case]:
    """What is wanted most comes first, for a run with a budget: fp32 before bf16, large inputs before small ones."""
    found = []
    for dtype in TOLERANCE:
        subjects = [Subject(model, options.device, dtype) for model in MODELS]
        for place in range(2):
            for subject in subjects:
                given = subject.model.inputs[place]
                found.append(case(subject, given if options.cuda else given.for_cpu(), options))
    return found


def main(argv: list[str] | None = None) -> int:
    if importlib.util.find_spec("transformers") is None:
        print("benchmarks.models needs transformers: pip install transformers", file=sys.stderr)
        return 1
    return common.main(sys.modules[__name__], argv)


if __name__ == "__main__":
    sys.exit(main())
