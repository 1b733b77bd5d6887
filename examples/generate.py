"""A small server: continuous batching of requests over a paged cache, by attention_with_cache.

Run from the project's folder: python -m examples.generate

A Llama of transformers' configuration with random weights serves requests: prompts and answers of different lengths.
Each new request's prompt is one call of the model, then it joins the batch in which all running requests get a token a
call; a request that is done leaves its pages to the next. The tokens are those of transformers' generate() with torch's
scaled_dot_product_attention, which pads prompts and waits for the longest answer. In batch-invariant mode the bits of a
request's log-probabilities are the same alone and in the batch.
"""

import argparse
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import transformers
from torch import Tensor

import torch_ext

PAGE = 16  # rows


@dataclass(eq=False)
class Request:
    """Wants `new` tokens after its prompt. Each call adds a token and its log-probability, which stay on the device."""

    prompt: Tensor
    new: int
    slot: int = -1  # row of the engine's table
    pages: list[int] = field(default_factory=list)
    tokens: list[Tensor] = field(default_factory=list)
    logprobs: list[Tensor] = field(default_factory=list)


class Engine:
    """Serves requests: `slots` at once, from a pool of pages."""

    def __init__(self, model: transformers.PreTrainedModel, slots: int, pages: int) -> None:
        config, like = model.config, model.lm_head.weight
        shape = (pages, PAGE, config.num_key_value_heads, config.head_dim)
        self.model, self.device = model, like.device
        self.caches = [(like.new_zeros(shape), like.new_zeros(shape)) for _ in range(config.num_hidden_layers)]
        self.free_pages, self.free_slots = list(range(pages)), list(range(slots))
        self.table = torch.zeros(slots, pages, dtype=torch.int32, device=self.device)
        self.lengths = torch.zeros(slots, dtype=torch.int32, device=self.device)
        transformers.AttentionInterface.register("paged_cache", self.attend)
        transformers.AttentionMaskInterface.register("paged_cache", lambda *_, **__: None)

    def attend(self, layer, query: Tensor, key: Tensor, value: Tensor, mask: None, *, scaling: float, **_) -> tuple:
        """What each layer calls: appends its keys and values to the cache, and attends to all that is there."""
        query, key, value = (t.transpose(1, 2) for t in (query, key, value))
        output = torch_ext.attention_with_cache(
            query,
            *self.caches[layer.layer_idx],
            self.lengths_of_batch,
            key=key,
            value=value,
            block_table=self.table_of_batch,
            scale=scaling,
            is_causal=True,
        )
        return output, None

    def call(self, requests: list[Request], tokens: Tensor) -> None:
        """The next token of each request, whose `tokens` (requests, length) are not in the cache yet."""
        slots = torch.tensor([r.slot for r in requests], device=self.device)
        self.lengths_of_batch, self.table_of_batch = self.lengths[slots], self.table[slots]
        positions = self.lengths_of_batch[:, None] + torch.arange(tokens.shape[1], device=self.device)
        logits = self.model(tokens, position_ids=positions, use_cache=False, logits_to_keep=1).logits[:, -1]
        self.lengths[slots] += tokens.shape[1]
        best = torch.log_softmax(logits.float(), -1).max(-1)
        for i, request in enumerate(requests):
            request.tokens.append(best.indices[i])
            request.logprobs.append(best.values[i])

    def admit(self, request: Request) -> bool:
        """Gives the request a slot and pages for prompt and answer, if there are."""
        count = -(-(len(request.prompt) + request.new) // PAGE)
        if not self.free_slots or count > len(self.free_pages):
            return False
        request.slot = self.free_slots.pop()
        request.pages = [self.free_pages.pop() for _ in range(count)]
        self.table[request.slot, :count] = torch.tensor(request.pages, dtype=torch.int32)
        self.lengths[request.slot] = 0
        return True

    def leave(self, request: Request) -> None:
        self.free_slots.append(request.slot)
        self.free_pages += request.pages

    @torch.inference_mode()
    def run(self, requests: list[Request]) -> list[Request]:
        self.model.set_attn_implementation("paged_cache")
        waiting, running = deque(requests), []
        while waiting or running:
            while waiting and self.admit(waiting[0]):
                request = waiting.popleft()
                self.call([request], request.prompt[None])
                running.append(request)
            for request in [r for r in running if len(r.tokens) == r.new]:
                self.leave(request)
                running.remove(request)
            if running:
                self.call(running, torch.stack([r.tokens[-1] for r in running])[:, None])
            elif waiting and len(self.free_slots) == len(self.table):
                raise RuntimeError(f"expected a request of up to {len(self.free_pages)} pages")
        return requests


def make_model(device: str, width: int, layers: int, dtype: torch.dtype) -> transformers.PreTrainedModel:
    config = transformers.LlamaConfig(
        vocab_size=1000,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=max(1, width // 128),
        head_dim=64,
        initializer_range=0.1,  # logits that differ by more than roundings
        pad_token_id=0,
        eos_token_id=None,
    )
    return transformers.LlamaForCausalLM(config).to(device, dtype).eval()


def make_requests(count: int, longest: int, device: str, seed: int = 0) -> list[Request]:
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    sizes = [(rng.randint(1, longest), rng.randint(1, longest)) for _ in range(count)]
    return [Request(torch.randint(1, 1000, (n,), generator=generator).to(device), new) for n, new in sizes]


@torch.inference_mode()
def by_torch(model: transformers.PreTrainedModel, requests: list[Request]) -> list[list[int]]:
    """transformers' generate() with SDPA: prompts padded on the left, as many steps as the longest answer."""
    model.set_attn_implementation("sdpa")
    longest = max(len(r.prompt) for r in requests)
    pad = torch.nn.functional.pad
    tokens = torch.stack([pad(r.prompt, (longest - len(r.prompt), 0)) for r in requests])
    most = max(r.new for r in requests)
    mask = (tokens != 0).long()
    answers = model.generate(tokens, attention_mask=mask, max_new_tokens=most, do_sample=False)[:, longest:]
    return [a[: r.new].tolist() for a, r in zip(answers, requests, strict=True)]


def together_and_alone(engine: Engine, requests: Callable[[], list[Request]]) -> tuple[list[Tensor], list[Tensor]]:
    """Log-probabilities of the requests' tokens, in one batch and one request after the other."""
    with torch_ext.enable(device=engine.device.type), torch_ext.batch_invariant():
        together, alone = engine.run(requests()), [engine.run([r])[0] for r in requests()]
    return tuple([torch.stack(r.logprobs) for r in all_of] for all_of in (together, alone))


def main(arguments: list[str] | None = None) -> None:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--width", type=int, default=1024 if cuda else 128)
    parser.add_argument("--layers", type=int, default=8 if cuda else 2)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--longest", type=int, default=512 if cuda else 24, help="prompt, and answer")
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    model = make_model(given.device, given.width, given.layers, torch.float32)
    pages = 16 * -(-2 * given.longest // PAGE)

    def requests() -> list[Request]:
        return make_requests(given.requests, given.longest, given.device)

    def timed(call) -> tuple[float, list]:
        call()  # allocations
        start = time.perf_counter()
        results = call()  # ends in .tolist(), which waits for the device
        return time.perf_counter() - start, results

    torchs, expected = timed(lambda: by_torch(model, requests()))
    engine = Engine(model, slots=16, pages=pages)
    ours, answers = timed(lambda: [torch.stack(r.tokens).tolist() for r in engine.run(requests())])
    total = sum(r.new for r in requests())
    equal = sum(a == b for a, b in zip(answers, expected, strict=True))
    print(f"{given.device}: {equal} of {given.requests} answers are the tokens of torch's SDPA")
    print(f"tokens a second: {total / ours:.0f} here, {total / torchs:.0f} by generate() with SDPA")

    if cuda:  # on the CPU the bits are ATen's
        same = sum(torch.equal(a, b) for a, b in zip(*together_and_alone(engine, requests), strict=True))
        print(f"batch-invariant mode: {same} of {given.requests} answers have the same bits alone and in the batch")


if __name__ == "__main__":
    main()
