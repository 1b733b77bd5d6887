"""Every architecture of the installed transformers with ``attn_implementation="xgemm"`` beside "eager", on the CPU.

    python -m tools.transformers_sweep            # all, in one process: some ten minutes
    python -m tools.transformers_sweep llama t5   # these, with the reason of everything that was left out

One model for each configuration class, tiny and with random weights. A model with a sliding window runs twice, with a
window shorter than the text and with one longer. Compared are the outputs for a text without padding, with padding on
either side, with another last token (so that earlier positions of a causal model must not move), in splits through a
cache, and the logits of generate() with dynamic and static caches.
"""

import argparse
import contextlib
import dataclasses
import inspect
import logging
import os
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from torch import Tensor
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torch_ext.integrations import transformers as integration

WINDOW = 5  # shorter than the text
LENGTH = 11
VOCABULARY = 99
TOLERANCE = 1e-2  # of an output's standard deviation: rounding gives 1e-4, a wrong mask more than 0.1
MOST_PARAMETERS = 20_000_000
MOST_MEMORY = 12 << 30  # bytes, so that a model that is not tiny at all fails alone
SECONDS = 20  # of CPU time for one model

# A field of a configuration that has one of these names gets this value. Every expert is chosen, since rounding flips a
# choice of some.
TINY: dict[str, Any] = {
    **dict.fromkeys(["hidden_size", "d_model", "n_embd", "embed_dim", "dim", "emb_dim", "encoder_hidden_dim"], 32),
    **dict.fromkeys(["embedding_size", "hidden_dim", "projection_dim", "out_hidden_size", "word_embed_proj_dim"], 32),
    **dict.fromkeys(["num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_decoder_layers", "depth"], 2),
    **dict.fromkeys(["encoder_layers", "decoder_layers", "num_encoder_layers", "max_window_layers"], 2),
    **dict.fromkeys(["num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads"], 4),
    **dict.fromkeys(["decoder_attention_heads", "attention_heads", "num_experts", "num_local_experts"], 4),
    **dict.fromkeys(["n_routed_experts", "num_experts_per_tok", "moe_topk", "moe_num_experts", "moe_k"], 4),
    **dict.fromkeys(["num_key_value_heads", "decoder_layerdrop_heads"], 2),
    **dict.fromkeys(["intermediate_size", "ffn_dim", "d_ff", "d_inner", "n_inner", "mlp_dim", "encoder_ffn_dim"], 64),
    **dict.fromkeys(["decoder_ffn_dim", "moe_intermediate_size", "shared_expert_intermediate_size"], 64),
    **dict.fromkeys(["n_group", "topk_group", "num_expert_group", "n_shared_experts"], 1),
    **dict.fromkeys(["head_dim", "d_kv", "global_head_dim", "index_head_dim", "kv_lora_rank", "qk_rope_head_dim"], 8),
    **dict.fromkeys(["qk_nope_head_dim", "v_head_dim", "vision_head_dim"], 8),
    **dict.fromkeys(["q_lora_rank", "image_size", "max_source_positions", "num_mel_bins", "mamba_d_state"], 16),
    **dict.fromkeys(["linear_key_head_dim", "linear_value_head_dim", "mamba_d_head", "mamba_head_dim"], 16),
    **dict.fromkeys(["linear_num_key_heads", "linear_num_value_heads", "mamba_n_heads", "mamba_num_heads"], 4),
    **dict.fromkeys(["patch_size", "index_n_heads"], 4),
    **dict.fromkeys(["spatial_merge_size", "temporal_patch_size", "global_attn_every_n_layers"], 2),
    **dict.fromkeys(["vocab_size", "vocab_size_per_layer_input", "text_vocab_size"], VOCABULARY),
    **dict.fromkeys(["max_position_embeddings", "n_positions", "n_ctx", "max_target_positions", "context_length"], 128),
    **dict.fromkeys(["attention_dropout", "dropout", "hidden_dropout"], 0.0),
    "codebook_size": 64,
    "first_k_dense_replace": 1,
    "attn_layer_indices": [1],
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "full_attention_interval": 2,
    "hidden_size_per_layer_input": 8,
    "query_pre_attn_scalar": 8,
    "num_kv_shared_layers": 0,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "use_sliding_window": True,
}
WINDOWS = ("sliding_window", "attention_window", "local_attention", "attention_chunk_size", "window_size")
# Tried in this order until a model can be built and run; None leaves a field at its default.
ADJUSTED: list[dict[str, Any]] = [
    {},
    {"num_key_value_heads": 4},
    {"head_dim": None, "d_kv": None},
    {"head_dim": None, "num_key_value_heads": 4},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}},
    {"head_dim": 16, "num_hidden_layers": 4},
    {"image_size": None, "patch_size": None},
]


class TooLong(BaseException):
    """A model took more than its time. No handler of errors is to catch it, ours or the model's."""


@dataclasses.dataclass
class Result:
    """What was found for one configuration class.

    `status` is "equal", "differs", "refused" (by the integration), "other attention" (not looked up in transformers'
    table) or "skipped"; `worst` the largest difference in standard deviations of the output; `compared` counts outputs.
    """

    name: str
    model: str
    status: str = "skipped"
    why: str = ""
    worst: float = 0.0
    compared: int = 0


def architectures(kinds: Iterable[str] | None = None) -> dict[str, tuple[type, type]]:
    """Configuration and model class of each model type: the causal model, else encoder-decoder, else the base model."""
    names = [
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_MAPPING_NAMES,
    ]
    found = {}
    for kind in kinds or CONFIG_MAPPING.keys():
        configuration = CONFIG_MAPPING[kind]
        listed = [mapping[kind] for mapping in names if kind in mapping]
        listed = [name if isinstance(name, str) else name[0] for name in listed]
        model = next((getattr(transformers, name, None) for name in listed), None) or _own_model(configuration)
        if model is not None:
            found[kind] = (configuration, model)
    return found


def _own_model(configuration: type) -> type | None:
    """A model of a configuration that no table of transformers lists, as of a text tower."""
    file = configuration.__module__.replace(".configuration_", ".modeling_")
    with contextlib.suppress(ImportError):
        __import__(file)
    for model in list(vars(sys.modules[file]).values()) if file in sys.modules else ():
        if not isinstance(model, type) or not issubclass(model, transformers.PreTrainedModel):
            continue
        if model.config_class is configuration and not model.__name__.endswith("PreTrainedModel"):
            return model
    return None


def tiny(configuration: type, window: int, adjusted: dict[str, Any]) -> Any:
    """A tiny configuration whose windows are `window`."""
    fields = inspect.signature(configuration.__init__).parameters
    given = {name: value for name, value in (TINY | adjusted).items() if name in fields and value is not None}
    given = {name: value for name, value in given.items() if not isinstance(fields[name].default, list | tuple)}
    if "rope_parameters" in given:  # of texts; configurations write to it
        given["rope_parameters"] = dict(given["rope_parameters"]) if "vocab_size" in fields else None
    given |= {name: window for name in WINDOWS if name in fields and isinstance(fields[name].default, int | None)}
    token = VOCABULARY - 1
    for name, field in fields.items():
        if name.endswith(("_token_id", "_token_index")) and name not in TINY and isinstance(field.default, int):
            given[name], token = token, token - 1
    if parts := configuration.sub_configs:
        defaults = configuration()
        for name in parts:
            if (part := getattr(defaults, name, None)) is not None:
                given[name] = tiny(type(part), window, adjusted)
    return configuration(**given)


def build(model: type, configuration: Any, sharpness: float = 1.7) -> torch.nn.Module:
    """A model with random weights that make its attention sharp, so that an error of a mask or scale shows."""
    with torch.device("meta"):
        size = sum(p.numel() for p in model._from_config(configuration, attn_implementation="eager").parameters())
    if size > MOST_PARAMETERS:
        raise ValueError(f"its tiny model has {size // 1_000_000} million parameters")
    torch.manual_seed(0)
    built = model._from_config(configuration, attn_implementation="eager").float().eval()
    built.takes_image = False
    for parameter in built.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, sharpness / parameter[0].numel() ** 0.5)
        elif parameter.dtype is torch.float32:
            parameter.data.add_(torch.randn_like(parameter) * 0.3)
    return built


def inputs(model: torch.nn.Module, padding: str = "none", last: int | None = None) -> dict[str, Tensor]:
    """A text of two rows, or an image or a sound; `last` is another last token."""
    torch.manual_seed(1)
    fields, config, given = inspect.signature(model.forward).parameters, model.config, {}
    if "input_ids" in fields:
        tokens = torch.randint(3, 80, (2, LENGTH))
        if last is not None:
            tokens[:, -1] = last
        mask = torch.ones_like(tokens)
        if padding == "right":
            mask[1, 7:] = 0
        elif padding == "left":
            mask[1, :4] = 0
        given["input_ids"] = tokens
        if "attention_mask" in fields:
            given["attention_mask"] = mask
        if "decoder_input_ids" in fields:
            given["decoder_input_ids"] = tokens[:, :6]
        if not model.takes_image or "pixel_values" not in fields:
            return given
    vision = getattr(config, "vision_config", config)
    if "pixel_values" in fields:
        size = getattr(vision, "image_size", 32)
        height, width = (size, size) if isinstance(size, int) else tuple(size)[:2]
        return {**given, "pixel_values": torch.randn(2, getattr(vision, "num_channels", 3), height, width)}
    if "input_features" in fields:
        return {"input_features": torch.randn(2, getattr(config, "num_mel_bins", 16), 32)}
    if "input_values" in fields:
        return {"input_values": torch.randn(2, 800)}
    if "inputs_embeds" in fields and hasattr(config, "hidden_size"):
        return {"inputs_embeds": torch.randn(2, LENGTH, config.hidden_size)}
    raise ValueError(f"no input among {', '.join(list(fields)[:4])}")


def set_attention(model: torch.nn.Module, attention: str) -> None:
    """Sets every part's: some hold copies of the configuration."""
    for part in model.modules():
        if isinstance(part, transformers.PreTrainedModel):
            part.set_attn_implementation(attention)


def outputs(model: torch.nn.Module, attention: str, given: dict[str, Any]) -> list[Tensor]:
    """All outputs of a text without padding; of one with padding those for each token, without the padded positions."""
    set_attention(model, attention)
    result = model(**given)
    found = [value for value in result.values() if isinstance(value, Tensor) and value.is_floating_point()]
    mask = given.get("attention_mask")
    if mask is None or bool(mask.all()):
        return found
    more = {added: torch.nn.functional.pad(mask, (0, added), value=1) for added in (0, 1)}  # some add a last token
    kept = [value for value in found if value.dim() == 3 and value.shape[1] - LENGTH in more]
    return [value * more[value.shape[1] - LENGTH][..., None] for value in kept]


def difference(actual: list[Tensor], expected: list[Tensor]) -> float:
    """The largest difference in standard deviations of the expected tensor; inf where only one has a NaN."""
    worst = 0.0
    for x, y in zip(actual, expected, strict=True):
        if x.shape != y.shape or not torch.equal(x.isfinite(), y.isfinite()):
            return float("inf")
        x, y = (t[y.isfinite()].double() for t in (x, y))
        if y.numel() > 1:
            worst = max(worst, float((x - y).abs().max() / y.std().clamp(min=1e-6)))
    return worst


@torch.no_grad()
def sweep(name: str, configuration: type, model: type) -> Result:
    """Compares one model of a configuration class in all its variants."""
    result = Result(name, model.__name__)
    fields = inspect.signature(configuration.__init__).parameters
    windows = [WINDOW, 4096] if any("window" in field for field in fields) or configuration.sub_configs else [WINDOW]
    calls = Counter()

    def count(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        calls["attention"] += 1
        return integration.attention(*args, **kwargs)

    transformers.AttentionInterface.register(integration.NAME, count)
    try:
        for window in windows:
            _sweep(result, configuration, model, window, calls)
    except TooLong:
        result.why = f"not done after {SECONDS} s"
        result.status = result.status if result.compared else "skipped"
    finally:
        transformers.AttentionInterface.register(integration.NAME, integration.attention)
    return result


def _sweep(result: Result, configuration: type, model: type, window: int, calls: Counter) -> None:
    try:
        built = _built(configuration, model, window)
        expected = outputs(built, "eager", inputs(built))
    except Exception as error:
        result.why = result.why or _line(error)
        return
    calls.clear()
    try:
        actual = outputs(built, "xgemm", inputs(built))
    except RuntimeError as error:
        if not str(error).startswith("xgemm"):
            raise
        result.status, result.why = "refused", _line(error)
        return
    if not calls["attention"]:
        result.status, result.why = "other attention", "its layers do not look their function up in transformers' table"
        return
    if not all(tensor.isfinite().all() for tensor in expected):
        result.why = "its tiny model gives NaN in eager"
        return
    result.status = "equal" if result.status == "skipped" else result.status
    _judge(result, built, f"window {window}", actual, expected, lambda a: outputs(built, a, inputs(built)))
    for what, given in _variants(built):
        _compare(result, built, f"window {window}, {what}", lambda a, given=given: outputs(built, a, given()))
    if not _generates(built):
        return
    for cache in ("dynamic", "static"):
        _compare(result, built, f"window {window}, {cache} cache", lambda a, cache=cache: _generated(built, a, cache))
    _compare(result, built, f"window {window}, in splits", lambda a: _in_splits(built, a))


def _variants(model: torch.nn.Module) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    if "input_ids" in inputs(model):
        for padding in ("right", "left"):
            yield f"padding {padding}", lambda padding=padding: inputs(model, padding)
        yield "another last token", lambda: inputs(model, last=81)


def _compare(result: Result, model: torch.nn.Module, what: str, run: Callable[[str], list[Tensor]]) -> None:
    """Compares nothing where eager itself fails or gives NaN."""
    try:
        expected = run("eager")
    except Exception:
        return
    if not expected or not all(tensor.isfinite().all() for tensor in expected):
        return
    try:
        actual = run("xgemm")
    except Exception as error:
        result.status, result.why = "differs", f"{what}: {_line(error)}"
        return
    _judge(result, model, what, actual, expected, run)


def _judge(
    result: Result,
    model: torch.nn.Module,
    what: str,
    actual: list[Tensor],
    expected: list[Tensor],
    run: Callable[[str], list[Tensor]],
) -> None:
    worst = difference(actual, expected)
    result.compared += 1
    if worst <= TOLERANCE:
        result.worst = max(result.worst, worst)
        return
    with contextlib.suppress(Exception):
        if difference(run("eager"), expected) > TOLERANCE:
            result.status, result.why = "skipped", f"{what}: eager differs from itself"
            return
    beside = "transformers has no sdpa for it"
    with contextlib.suppress(Exception):
        beside = f"sdpa by {difference(run('sdpa'), expected):.2g}"
    if result.status != "differs":
        result.status, result.why = "differs", f"{what}: by {worst:.2g}, {beside}"


def _built(configuration: type, model: type, window: int) -> torch.nn.Module:
    """Built with as many tiny fields as the class takes."""
    first = None
    for adjusted in ADJUSTED:
        try:
            built = build(model, tiny(configuration, window, adjusted))
        except Exception as error:
            first = first or error
            continue
        images = "pixel_values" in inspect.signature(built.forward).parameters
        for built.takes_image in (False, True) if images else (False,):
            try:
                outputs(built, "eager", inputs(built))
                return built
            except Exception as error:
                first = first or error
    raise first


def _generates(model: torch.nn.Module) -> bool:
    return (
        model.can_generate()
        and "input_ids" in inputs(model)
        and "past_key_values" in str(inspect.signature(model.forward))
    )


def _generated(model: torch.nn.Module, attention: str, cache: str) -> list[Tensor]:
    """Logits of tokens that eager chose, for a text with padding on the left."""
    set_attention(model, attention)
    given = {k: v for k, v in inputs(model, "left").items() if k != "decoder_input_ids"}
    result = model.generate(
        **given,
        max_new_tokens=4,
        min_new_tokens=4,
        do_sample=False,
        num_beams=1,
        cache_implementation=cache,
        disable_compile=True,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return [torch.stack(result.logits)]


def _in_splits(model: torch.nn.Module, attention: str) -> list[Tensor]:
    """A text given in splits through a cache, as with speculative decoding."""
    set_attention(model, attention)
    if model.config.is_encoder_decoder:
        raise ValueError("an encoder-decoder")
    cache = transformers.DynamicCache(config=model.config)
    tokens = inputs(model)["input_ids"]
    return [torch.cat([model(input_ids=x, past_key_values=cache).logits for x in tokens.split([6, 3, 1, 1], 1)], 1)]


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raises TooLong after so many seconds of CPU time."""

    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def quiet() -> None:
    """transformers says much about tiny models."""
    transformers.logging.set_verbosity(logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="model types; none: all")
    arguments = parser.parse_args()
    quiet()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    integration.register()
    found, start = architectures(arguments.names), time.process_time()
    results = []
    for name in found:
        began = time.process_time()
        try:
            with limited(SECONDS):
                result = sweep(name, *found[name])
        except TooLong:
            result = Result(name, found[name][1].__name__, why=f"not built after {SECONDS} s")
        except Exception as error:
            result = Result(name, found[name][1].__name__, "differs", _line(error))
        results.append(result)
        seconds = time.process_time() - began
        print(f"{result.status:16}{result.worst:9.1e}{seconds:6.1f} s  {name} {result.model}  {result.why}", flush=True)
    print(summary(results, time.process_time() - start))
    return 1 if any(result.status == "differs" for result in results) else 0


def summary(results: list[Result], seconds: float) -> str:
    """The figures of docs/integrations.md."""
    by = {status: [r for r in results if r.status == status] for status in sorted({r.status for r in results})}
    worst = max(by.get("equal", []), key=lambda r: r.worst, default=None)
    lines = [
        f"transformers {transformers.__version__}: {len(results)} model types, "
        f"{sum(r.status != 'skipped' for r in results)} built, {sum(r.compared > 0 for r in results)} compared in "
        f"{sum(r.compared for r in results)} outputs, {seconds:.0f} s of CPU time"
    ]
    if worst:
        lines.append(f"worst difference of those equal: {worst.worst:.1e} standard deviations ({worst.name})")
    lines += [f"{status}: {len(group)}" for status, group in by.items()]
    named = (status for status in ("differs", "refused", "other attention") if status in by)
    lines += [f"{status}: {', '.join(r.name for r in by[status])}" for status in named]
    reasons = Counter(r.why.split(":")[0] for r in by.get("skipped", []))
    lines += [f"skipped, {why}: {n}" for why, n in reasons.most_common()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
