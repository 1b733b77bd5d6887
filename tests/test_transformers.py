"""attn_implementation="xgemm" in transformers: tiny models with random weights against "eager" and "sdpa"."""

import inspect
import itertools
import os
import runpy
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from common import Recorder, randn
from test_docs import ROOT, blocks

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")
masking_utils = pytest.importorskip("transformers.masking_utils")

import torch_ext  # noqa: E402
from tools import transformers_sweep as sweep  # noqa: E402
from torch_ext import flash_attn  # noqa: E402
from torch_ext.integrations import transformers as integration  # noqa: E402

integration.register()
pytestmark = pytest.mark.usefixtures("no_grad")  # but for tests that enable it

needs_offsets = pytest.mark.skipif(
    "q_offset" not in inspect.signature(masking_utils.sdpa_mask).parameters,
    reason="the installed transformers does not tell a mask where its queries stand",
)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {"vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GQA = {"num_key_value_heads": 2, "head_dim": 8}
WINDOW = 5  # shorter than the texts
LENGTH = 11


def of(kind: str, head: str, config: str = "", **more: object) -> tuple[type, object]:
    options = more if "num_layers" in more else {**SIZES, **more}
    return getattr(transformers, kind + head), getattr(transformers, f"{kind}{config}Config")(**options)


def causal(kind: str, config: str = "", **more: object) -> tuple[type, object]:
    return of(kind, "ForCausalLM", config, **TEXT, **GQA, **more)


LAYERS = ["sliding_attention", "full_attention"]
WINDOWED, EXPERTS = {"sliding_window": WINDOW}, {"num_local_experts": 2}
QWEN = {"use_sliding_window": True, "num_experts": 2}
QWEN |= {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
# All have 2 layers, the encoder-decoder 2 and 2. Every expert is chosen, since rounding may flip a choice of one.
MODELS = {
    "llama": causal("Llama"),
    "mistral": causal("Mistral", **WINDOWED),
    # Softcap, one layer with a window and one without, a scale of its own.
    "gemma2": causal("Gemma2", **WINDOWED, attn_logit_softcapping=2.0, query_pre_attn_scalar=3),
    "gemma3": causal("Gemma3", "Text", **WINDOWED, query_pre_attn_scalar=3, layer_types=LAYERS),
    "gpt_oss": causal("GptOss", **WINDOWED, **EXPERTS, num_experts_per_tok=2),  # attention sinks
    # The window is in the mask only: their layers do not pass it on.
    "qwen2_moe": causal("Qwen2Moe", **WINDOWED, **QWEN, num_experts_per_tok=2),
    "phimoe": causal("Phimoe", **WINDOWED, **EXPERTS),
    "bert": of("Bert", "ForMaskedLM", **TEXT),
    # A window to both sides.
    "modernbert": of("ModernBert", "ForMaskedLM", **TEXT, local_attention=4, global_attn_every_n_layers=2),
    "t5": of(  # position bias, encoder and decoder
        *("T5", "ForConditionalGeneration"),
        **{"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0, **TEXT},
    ),
    "vit": of("ViT", "ForImageClassification", image_size=16, patch_size=4, num_labels=7),
}
ONLY_EAGER = ["gemma2", "gpt_oss"]  # "sdpa" leaves out softcap and sinks
SLIDING = ["mistral", "gemma2", "gemma3", "gpt_oss", "qwen2_moe", "phimoe"]
CAUSAL = ["llama", *SLIDING]


def build(name: str, device: torch.device, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    cls, config = MODELS[name]
    model = cls._from_config(config, attn_implementation="eager").to(device, dtype).eval()
    for parameter in model.parameters():  # sharp attention, so that an error of the mask or scale shows
        parameter.data.copy_(randn(*parameter.shape, dtype=dtype) * (0.3 if parameter.dim() > 1 else 1))
    return model


def inputs(name: str, device: torch.device, padding: str = "none") -> dict[str, torch.Tensor]:
    if name == "vit":
        return {"pixel_values": randn(2, 3, 16, 16, device=device)}
    tokens = torch.randint(3, 99, (2, LENGTH), device=device)
    mask = torch.ones_like(tokens)
    if padding == "right":
        mask[1, 7:] = 0
    elif padding == "left":
        mask[1, :4] = 0
    given = {"input_ids": tokens, "attention_mask": mask}
    return {**given, "decoder_input_ids": tokens[:, :6]} if name == "t5" else given


def set_attention(model: torch.nn.Module, attention: str) -> None:
    """Sets every part's: T5's encoder and decoder hold copies of the configuration that 5.17 does not update."""
    for part in model.modules():
        if isinstance(part, transformers.PreTrainedModel):
            part.set_attn_implementation(attention)


def logits(model: torch.nn.Module, attention: str, given: dict[str, torch.Tensor]) -> torch.Tensor:
    set_attention(model, attention)
    result = model(**given).logits
    if result.shape[1] == LENGTH and "attention_mask" in given:  # no one reads a padded query's output
        result = result * given["attention_mask"][..., None]
    return result


@torch.enable_grad()
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["bert", "vit", "llama", "mistral"])
def test_enabled_models_train_as_eager_ones(name: str, attention: str, device: torch.device) -> None:
    """Logits and every gradient of whole models, with a window (Mistral) and padding, under torch_ext.enable()."""
    model = build(name, device)
    for padding in ("none",) if name == "vit" else ("none", "right", "left"):
        given = inputs(name, device, padding)

        def step(kind: str, given: dict = given) -> list[torch.Tensor]:
            model.zero_grad()
            result = logits(model, kind, given)
            result.square().mean().backward()
            return [result.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

        expected = step("eager")
        with torch_ext.enable(device=device.type) as enabled:
            actual = step(attention)
        assert enabled.calls["mm", "xgemm"] > 0
        largest = max(y.abs().max().item() for y in expected[1:])  # a bias of keys has none: terms of this size cancel
        for x, y in zip(actual, expected, strict=True):
            assert x.stride() == y.stride()
            torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4 * largest)


def skip_without_table(model: torch.nn.Module) -> None:
    if not hasattr(sys.modules[type(model).__module__], "ALL_ATTENTION_FUNCTIONS"):  # as T5 before 5.15
        pytest.skip(f"the installed transformers has no table of the attention of {type(model).__name__}")


@pytest.mark.parametrize("name", MODELS)
def test_logits(name: str, device: torch.device) -> None:
    model = build(name, device)
    skip_without_table(model)
    for padding in ("none",) if name == "vit" else ("none", "right", "left"):
        given = inputs(name, device, padding)
        with Recorder(".*scaled_dot_product.*") as calls:
            actual = logits(model, "xgemm", given)
        layers = 6 if name == "t5" else 2  # T5: encoder, decoder, cross-attention
        assert calls.counts == {"xgemm.attention.default": layers}
        assert torch.isfinite(actual).all()
        for reference in ("eager",) if name in ONLY_EAGER else ("eager", "sdpa"):
            expected = logits(model, reference, given)
            assert expected.std() > 0.1
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "bert"])
def test_half_precision(name: str, device: torch.device) -> None:
    """Of eight models, since one's error is up to 1.65 times eager's by chance (400 draws), eight's 1.13 times."""
    errors = torch.zeros(2)
    for _ in range(8):
        model, given = build(name, device, torch.bfloat16), inputs(name, device, "right")
        found = [logits(model, attention, given) for attention in ("xgemm", "eager")]
        expected = logits(model.float(), "eager", given)
        assert found[0].dtype is torch.bfloat16
        errors += torch.stack([((x.float() - expected).norm() / expected.norm()).square().cpu() for x in found])
    assert errors[0].sqrt() <= 1.3 * errors[1].sqrt()


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", CAUSAL)
def test_generate(name: str, cache: str, device: torch.device) -> None:
    model, given = build(name, device), inputs(name, device, "left")
    skip_without_table(model)
    tokens = {}
    for attention in ("eager", "xgemm"):
        set_attention(model, attention)
        options = {"do_sample": False, "cache_implementation": cache, "disable_compile": True}
        tokens[attention] = model.generate(**given, max_new_tokens=6, **options)
    assert torch.equal(tokens["xgemm"], tokens["eager"])


@needs_offsets
@pytest.mark.parametrize("name", SLIDING)
def test_no_mask_for_a_window(name: str, device: torch.device) -> None:
    """Without padding no mask is made, even for several queries with a cache."""
    model, given = build(name, device), inputs(name, device)
    set_attention(model, "eager")
    expected = model(**given).logits
    set_attention(model, "xgemm")
    with mock.patch.object(torch_ext, "attention", wraps=torch_ext.attention) as attention:
        torch.testing.assert_close(model(**given).logits, expected, rtol=1e-4, atol=1e-4)
    assert [call.kwargs["attn_mask"] for call in attention.call_args_list] == [None, None]
    cache, tokens = transformers.DynamicCache(config=model.config), given["input_ids"]
    chunks = [model(input_ids=chunk, past_key_values=cache).logits for chunk in tokens.split([7, 3, 1], 1)]
    torch.testing.assert_close(torch.cat(chunks, 1), expected, rtol=1e-4, atol=1e-4)


def test_packed_sequences(device: torch.device) -> None:
    """Two texts in one row, told apart by their positions."""
    model = build("llama", device)
    tokens = torch.randint(3, 99, (1, 9), device=device)
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]], device=device)
    given = {"input_ids": tokens, "position_ids": positions, "use_cache": False}
    packed = logits(model, "xgemm", given)
    apart = [logits(model, "eager", {"input_ids": t, "use_cache": False}) for t in (tokens[:, :4], tokens[:, 4:])]
    torch.testing.assert_close(packed, torch.cat(apart, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss"])
def test_packed_sequences_by_their_offsets(name: str, positions: bool, device: torch.device) -> None:
    """As for flash attention: one call of attention_varlen a layer, and no mask."""
    model, lengths = build(name, device), [7, 1, 9]
    tokens = torch.randint(3, 99, (1, sum(lengths)), device=device)
    ends = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)
    given = {"input_ids": tokens, "use_cache": False, "cu_seq_lens_q": ends, "cu_seq_lens_k": ends}
    given |= {"max_length_q": 9, "max_length_k": 9}
    spans = lengths if positions else [sum(lengths)]  # rotary embeddings see differences of positions only
    given["position_ids"] = torch.cat([torch.arange(n, device=device) for n in spans])[None]
    with Recorder(".*scaled_dot_product.*") as calls:
        packed = logits(model, "xgemm", given)
    assert calls.counts["xgemm.attention_varlen.default"] == 2
    apart = [logits(model, "eager", {"input_ids": t, "use_cache": False}) for t in tokens.split(lengths, 1)]
    torch.testing.assert_close(packed, torch.cat(apart, 1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("mask", [None, "window", "bool", "additive", "bias", "wide"])
@pytest.mark.filterwarnings("ignore:xgemm attention. torch computes heads")
def test_offsets_beside_a_mask(mask: str | None) -> None:
    """Each query sees keys of its own sequence only, whatever else hides keys."""
    q, k = (randn(1, heads, 6, 264 if mask == "wide" else 8) for heads in (4, 2))
    ends = torch.tensor([0, 4, 6])
    packed = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": 4, "max_length_k": torch.tensor(4)}
    allowed, given, options = torch.ones(6, 6, dtype=torch.bool).tril(), None, {}
    if mask == "window":
        given, allowed = rule_mask((1, 1, 6, 6), (1, 0), "bottom_right"), allowed.triu(-1)
    elif mask in ("bool", "additive"):
        allowed = (torch.rand(6, 6) > 0.5) | torch.eye(6, dtype=torch.bool)
        given = allowed[None, None]
        given = given if mask == "bool" else torch.zeros(given.shape).masked_fill(~given, float("-inf"))
    elif mask == "bias":
        options["position_bias"] = torch.zeros(1, 4, 6, 6)
    own = torch.arange(6) >= 4
    actual = integration.attention(layer(), q, k, k, given, **packed, **options)[0]
    expected = integration.attention(layer(), q, k, k, (allowed & (own[:, None] == own))[None, None])[0]
    torch.testing.assert_close(actual, expected)
    with pytest.raises(RuntimeError, match=r"^xgemm attention: expected one row of packed sequences .*, got 2$"):
        integration.attention(layer(), q.expand(2, -1, -1, -1), k, k, None, **packed)


def test_compiles_and_exports(device: torch.device) -> None:
    model, given = build("llama", device), inputs("llama", device, "right")
    expected = logits(model, "xgemm", given)
    compiled = torch.compile(model, backend="aot_eager")
    actual = compiled(**given).logits * given["attention_mask"][..., None]
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    program = torch.export.export(model, (), {**given, "use_cache": False})
    assert "torch.ops.xgemm.attention.default" in program.graph_module.code
    exported = program.module()(**given, use_cache=False).logits * given["attention_mask"][..., None]
    torch.testing.assert_close(exported, expected, rtol=1e-4, atol=1e-4)


def test_compiled_layers(device: torch.device) -> None:
    """Each layer compiled alone gets a mask that was made outside."""
    model, given = build("gemma3", device), inputs("gemma3", device)
    expected = logits(model, "eager", given)
    for part in model.model.layers:
        part.compile(backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(logits(model, "xgemm", given), expected, rtol=1e-4, atol=1e-4)


def layer(**attributes: object) -> torch.nn.Module:
    module = torch.nn.Module()
    vars(module).update(attributes)
    return module


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dropout": 0.1}, r"has no dropout, got dropout=0.1; call eval\(\) on the model"),
        ({"output_attentions": True}, 'does not return weights, .*; use "eager"'),
        ({"cache": object()}, "has no paged cache.*"),
        # Layers that choose keys mask the others for the names "eager" and "sdpa" only.
        ({"indices": torch.zeros(1, 6, 2).long()}, '.* sparse attention, got indices; use "sdpa"'),
        ({"block_indices": torch.zeros(1, 6, 2).long()}, '.*, got block_indices; use "sdpa"'),
    ],
)
def test_what_is_not_served_is_one_line(arguments: dict, message: str) -> None:
    q, k = randn(1, 4, 6, 8), randn(1, 2, 6, 8)
    with pytest.raises(RuntimeError, match=rf"^xgemm attention: {message}\Z"):
        integration.attention(layer(), q, k, k, None, **arguments)


@torch.enable_grad()
def test_training_is_one_line() -> None:
    q = randn(1, 4, 6, 8).requires_grad_()
    with pytest.raises(RuntimeError, match=r"^xgemm::attention: has no backward"):
        integration.attention(layer(), q, q, q, None)


def rule_mask(shape: tuple[int, ...], window: tuple[int, int], alignment: str) -> integration.RuleMask:
    return integration.RuleMask(torch.Size(shape), window, alignment, torch.empty(0, dtype=torch.bool))


@pytest.mark.filterwarnings("ignore:xgemm attention. torch computes heads")
@pytest.mark.parametrize("is_causal", [None, False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mask", [None, "bool", "additive", "window", "window to both sides", "causal", "nothing"])
@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("size", [8, 264])  # torch computes heads of more than 256
def test_arguments(
    size: int, sinks: bool, softcap: float | None, mask: str | None, bias: bool, is_causal: bool | None
) -> None:
    """Every combination against the formula in float64. A sliding_window of the layer means nothing without a mask."""
    q, k, v, s_aux = randn(2, 4, 5, size), randn(2, 2, 6, size), randn(2, 2, 6, size), randn(4)
    taken, scale = torch.ones(2, 1, 5, 6, dtype=torch.bool), 2 / size
    away = torch.arange(6) - torch.arange(1, 6)[:, None]  # the last query is at the last key's position
    given, position_bias = None, randn(1, 4, 5, 6) if bias else None
    if mask is None:
        taken = taken.tril() if is_causal is not False else taken
    elif mask in ("bool", "additive"):
        taken = (torch.rand(2, 1, 5, 6) > 0.4).index_fill_(-1, torch.tensor(0), True)
        given = taken if mask == "bool" else torch.zeros(taken.shape).masked_fill(~taken, float("-inf"))
    else:
        window = {"window": (2, 0), "window to both sides": (2, 2), "causal": (-1, 0), "nothing": (-1, -1)}[mask]
        if mask != "nothing":
            taken = taken & (away <= window[1]) & ((away >= -window[0]) | (window[0] < 0))
        given = rule_mask((2, 1, 5, 6), window, "bottom_right")
    scores = q.double() @ k.double().repeat_interleave(2, 1).mT * scale
    scores = scores if softcap is None else softcap * (scores / softcap).tanh()
    scores = scores.masked_fill(~taken, float("-inf")) + (position_bias.double() if bias else 0)
    sink = s_aux.double()[:, None, None].expand(2, 4, 5, 1) if sinks else scores[..., :0]
    expected = (torch.cat([scores, sink], -1).softmax(-1)[..., :6] @ v.double().repeat_interleave(2, 1)).transpose(1, 2)
    options = {"scaling": scale, "softcap": softcap, "position_bias": position_bias, "is_causal": is_causal}
    options |= {"sliding_window": 3, "s_aux": s_aux if sinks else None}
    actual, weights = integration.attention(layer(), q, k, v, given, **options)
    assert weights is None and actual.is_contiguous()
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)


def test_wide_heads_are_said_once() -> None:
    integration._say_once.cache_clear()
    q = randn(1, 1, 2, 300)
    message = r"^xgemm attention: torch computes heads wider than 256 \(here 300\)$"
    with pytest.warns(UserWarning, match=message) as said:
        for _ in range(2):
            integration.attention(layer(), q, q, q, None)
    assert len(said) == 1


def test_half_precision_heads_are_wide_here() -> None:
    q = randn(1, 1, 2, 300).bfloat16()
    with Recorder(".*scaled_dot_product.*") as calls:
        integration.attention(layer(), q, q, q, None)
    assert calls.counts["xgemm.attention.default"] == 1


@pytest.mark.skipif(not hasattr(transformers, "ContinuousBatchingConfig"), reason="no such continuous batching")
@pytest.mark.skipif(torch.cuda.is_available(), reason="takes the GPU for a model on the CPU")
@pytest.mark.parametrize("implementation", ["sdpa", "xgemm/flash"])
def test_continuous_batching(implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers' own, in a thread of its own: "sdpa" under enable(), and FlashAttention's functions as those of a
    repository that `kernels` has loaded."""
    from transformers import modeling_flash_attention_utils as flash
    from transformers.generation.continuous_batching import cache
    from transformers.integrations.flash_attention import flash_attention_forward

    functions = ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache")
    loaded = (*(getattr(flash_attn, name) for name in functions), flash._pad_input, flash._unpad_input)
    monkeypatch.setattr(flash, "_lazy_imports", lambda *_, **__: loaded)
    monkeypatch.setattr(flash, "_loaded_implementation", None)
    transformers.AttentionInterface.register("xgemm/flash", flash_attention_forward)
    monkeypatch.setattr(cache, "get_device_and_memory_breakdown", lambda: (device, 1 << 28, 0, 0))  # asks for psutil
    device = torch.device("cpu")
    model = build("llama", device)
    prompts = [torch.randint(3, 99, (n,)).tolist() for n in (5, 9, 3)]
    greedy = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": -1, "pad_token_id": 0}
    expected = [model.generate(torch.tensor([p]), **greedy)[0, len(p) :].tolist() for p in prompts]
    model.config._attn_implementation = implementation
    batching = transformers.ContinuousBatchingConfig(page_size=16, num_blocks=8, max_batch_tokens=32)
    with torch_ext.enable(device="cpu") as enabled:
        served = model.generate_batch(prompts, transformers.GenerationConfig(**greedy), batching, progress_bar=False)
    assert [served[f"req_{i}"].generated_tokens for i in range(3)] == expected
    assert enabled.calls["mm", "xgemm"]


PADDINGS = {"none": None, "no": [True] * 12, "left": [False] * 2 + [True] * 10, "short": [True] * 8}


@needs_offsets
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("kind", ["causal", "window", "both sides", "nothing", "chunks", "windows to be changed"])
@pytest.mark.parametrize(
    ("length", "keys", "first", "first_key"),
    [(7, 7, 0, 0), (3, 9, 6, 0), (1, 9, 8, 0), (4, 9, 0, 0), (3, 9, 4, 0), (3, 6, 7, 4), (1, 9, 4, 0), (7, 4, 0, 0)],
)
def test_masks(length: int, keys: int, first: int, first_key: int, kind: str, padding: str) -> None:
    """What a mask means is what transformers' own function makes, as a rule and as bools."""
    functions = {
        "causal": masking_utils.causal_mask_function,
        "nothing": masking_utils.bidirectional_mask_function,
        "both sides": masking_utils.sliding_window_bidirectional_mask_function(2),
        "chunks": masking_utils.chunked_causal_mask_function(3, torch.zeros(2, dtype=torch.long)),
    }
    function = functions.get(kind, masking_utils.sliding_window_causal_mask_function(3))
    seen = None if PADDINGS[padding] is None else torch.tensor([[True] * len(PADDINGS[padding]), PADDINGS[padding]])
    given = {"batch_size": 2, "q_length": length, "kv_length": keys, "q_offset": first, "kv_offset": first_key}
    given |= {"mask_function": function, "attention_mask": seen, "local_size": 3}
    never = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    skips = never if kind == "windows to be changed" else dict.fromkeys(never, True)
    expected = masking_utils.sdpa_mask(**given, **never)
    mask = transformers.AttentionMaskInterface()["xgemm"](**given, **skips)
    is_rule = isinstance(mask, integration.RuleMask)
    if kind in ("chunks", "windows to be changed") or (padding == "left" and first_key < 2):
        assert not is_rule
    if padding == "none" and first - first_key == keys - length and kind in ("causal", "window", "both sides"):
        assert is_rule
    q, k, v = randn(2, 4, length, 8), randn(2, 4, keys, 8), randn(2, 4, keys, 8)
    by_mask = integration.attention(layer(is_causal=kind == "nothing"), q, k, v, mask)[0]
    by_bools = integration.attention(layer(), q, k, v, expected)[0]
    torch.testing.assert_close(by_mask, by_bools)
    if mask is not None:
        assert mask.shape == expected.shape and mask.dtype is torch.bool
        torch.testing.assert_close(mask & True, expected)


def test_a_rule_that_a_layer_changes() -> None:
    """Written to, also through a view, it is a mask of bools for every layer after."""
    mask = rule_mask((1, 1, 4, 4), (1, 0), "top_left")
    assert "window=(1, 0)" in repr(mask)
    mask[:, :, 3, :2].fill_(True)
    expected = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    q, k = randn(1, 2, 4, 8), randn(1, 2, 4, 8)
    actual = integration.attention(layer(), q, k, k, mask)[0]
    torch.testing.assert_close(actual, integration.attention(layer(), q, k, k, expected[None, None])[0])
    torch.testing.assert_close(mask.clone(), expected[None, None])


# One model of each mechanism, and what tools/transformers_sweep.py finds.
SWEPT = {
    **dict.fromkeys(("gpt2", "gemma4_text", "modernbert", "whisper", "clip_text_model"), "equal"),
    "llama4_text": "equal",  # chunks
    "doge": "equal",  # its layers add to the mask
    "deepseek_v2": "equal",  # heads of values that are narrower than those of keys
    "qwen3_next": "equal",  # linear attention between
    "openai_privacy_filter": "equal",  # sinks, a window to both sides; declares flash attention only
    "pegasus_x": "equal",  # declares flash attention only
    # These declare neither.
    **dict.fromkeys(("nllb-moe", "bigbird_pegasus", "splinter", "align_text_model", "clap_text_model"), "refused"),
    "deepseek_v32": "refused",  # sparse
    "bloom": "other attention",
}


@needs_offsets
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", SWEPT)
def test_sweep(name: str) -> None:
    sweep.quiet()
    result = sweep.sweep(name, *sweep.architectures([name])[name])
    assert result.status == SWEPT[name], result.why
    if result.status == "equal":
        assert result.compared >= 3 and result.worst < 1e-3


@needs_offsets
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("mistake", ["no mask", "causal"])
def test_the_sweep_finds_a_mistake(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = integration.attention

    def attention(module, query, key, value, mask, **kwargs):
        kwargs["is_causal"] = mistake == "causal"
        return ours(module, query, key, value, None, **kwargs)

    monkeypatch.setattr(integration, "attention", attention)
    name = "bert" if mistake == "causal" else "llama"
    result = sweep.sweep(name, *sweep.architectures([name])[name])
    assert result.status == "differs" and "sdpa by" in result.why


def test_the_pages_lines_run(tmp_path: Path) -> None:
    kind, configuration = MODELS["bert"]
    kind(configuration).save_pretrained(tmp_path)
    (code,) = [code for code in blocks(ROOT / "docs" / "integrations.md") if "transformers" in code]
    names = {"name": str(tmp_path), "inputs": {"input_ids": torch.ones(1, 4, dtype=torch.long)}}
    exec(code, names)
    assert names["model"].config._attn_implementation == "xgemm"


def test_torch_ext_does_not_need_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """test_loading.py: importing torch_ext does not import it."""
    monkeypatch.setitem(sys.modules, "transformers", None)  # its import fails
    module = runpy.run_path(integration.__file__)
    message = r"^xgemm.integrations.transformers: needs transformers with AttentionInterface"
    with pytest.raises(ImportError, match=message):
        module["register"]()
