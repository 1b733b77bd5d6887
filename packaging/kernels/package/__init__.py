"""xgemm for Hugging Face's `kernels`: operators, documented functions, FlashAttention's names, layers. Forward only."""

from . import _load

_load.load()

from . import autocast, autograd, fake, layers, vmap  # noqa: E402, F401  (they register with the dispatcher)
from ._mode import batch_invariant, is_batch_invariant, set_batch_invariant  # noqa: E402
from .flash_attn import (  # noqa: E402
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from .functional import (  # noqa: E402
    addmm,
    amax,
    amin,
    argmax,
    argmin,
    attention,
    attention_varlen,
    attention_with_cache,
    cross_entropy,
    gated_linear,
    linear,
    log_softmax,
    logsumexp,
    matmul,
    mean,
    prepare,
    scaled_masked_softmax,
    softmax,
    sum,
    topk_softmax,
)

__all__ = [
    "addmm",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "attention",
    "attention_varlen",
    "attention_with_cache",
    "batch_invariant",
    "cross_entropy",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "gated_linear",
    "is_batch_invariant",
    "layers",
    "linear",
    "log_softmax",
    "logsumexp",
    "matmul",
    "mean",
    "prepare",
    "scaled_masked_softmax",
    "set_batch_invariant",
    "softmax",
    "sum",
    "topk_softmax",
]
