"""Host time that torch_ext.replace adds to a forward of a tiny model: `python -m benchmarks.replace_host`.

The models have 12 layers of width 8, so that a forward is host time and nothing else. xgemm's functions are torch's own
meanwhile: what is left is the way to them. CPU time of the thread, which other programs disturb least.
"""

import argparse
import contextlib
import copy
import sys
import time
from collections.abc import Callable, Iterator
from unittest import mock

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import torch_ext
from torch_ext import functional
from torch_ext.replace.functions import Catching

NAMES = ("bert", "vit", "llama")


def model(name: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A model of transformers and its input."""
    import transformers

    sizes = {"hidden_size": 8, "num_hidden_layers": 12, "num_attention_heads": 2, "intermediate_size": 8}
    tokens = {"input_ids": torch.randint(3, 99, (1, 2))}
    if name == "bert":
        return transformers.BertModel(transformers.BertConfig(vocab_size=99, **sizes)).eval(), tokens
    if name == "vit":
        config = transformers.ViTConfig(image_size=4, patch_size=2, **sizes)
        return transformers.ViTModel(config).eval(), {"pixel_values": torch.randn(1, 3, 4, 4)}
    config = transformers.LlamaConfig(vocab_size=99, num_key_value_heads=2, **sizes)
    return transformers.LlamaModel(config).eval(), {**tokens, "use_cache": False}


@contextlib.contextmanager
def torchs_operators() -> Iterator[None]:
    """xgemm's functions of these models are torch's own."""

    def attention(q, k, v, **options):
        return F.scaled_dot_product_attention(q, k, v, **options)

    with mock.patch.multiple(functional, linear=F.linear, attention=attention, mean=torch.mean):
        yield


def count_functions(call: Callable[[], object]) -> int:
    """torch functions that a call makes."""
    seen = 0

    class Count(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            nonlocal seen
            seen += 1
            return func(*args, **(kwargs or {}))

    with Count():
        call()
    return seen


def count_caught(call: Callable[[], object]) -> int:
    """torch functions of a call that replace()'s mode sees."""
    with mock.patch.object(Catching, "__torch_function__", autospec=True, side_effect=Catching.__torch_function__) as m:
        call()
    return m.call_count


def measure(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """Microseconds of each call, interleaved: the least of all rounds."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, found in zip(calls, times, strict=True):
            start = time.thread_time()
            call()
            found.append((time.thread_time() - start) * 1e6)
    return [min(found) for found in times]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"{'model':<8}{'plain us':>10}{'replaced us':>13}{'ratio':>8}{'functions':>11}{'seen by the mode':>18}")
    for name in NAMES:
        plain, inputs = model(name)
        replaced = copy.deepcopy(plain)
        torch_ext.replace(replaced)
        calls = [lambda m=m, inputs=inputs: m(**inputs) for m in (plain, replaced)]
        with torch.inference_mode(), torchs_operators():
            before, after = measure(calls, rounds)
            seen, caught = count_functions(calls[0]), count_caught(calls[1])
        print(f"{name:<8}{before:>10.0f}{after:>13.0f}{after / before:>8.2f}{seen:>11}{caught:>18}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
