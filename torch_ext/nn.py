"""Modules on xgemm's operators, drop-in for torch's: same constructor, parameters and state_dict. Forward only."""

import torch
from torch import Tensor

from torch_ext import functional as F
from torch_ext.functional._call import default_precision
from torch_ext.functional._products import ACTIVATIONS
from torch_ext.prepared import PreparedWeight


class Linear(torch.nn.Linear):
    """:class:`torch.nn.Linear`, the activation and a residual fused: ``activation(x @ weight.T + bias) + residual``.

    Args:
        in_features, out_features, bias, device, dtype: as in torch.
        activation: "none", "relu", "gelu", "gelu_tanh" or "silu".
        precision: for float32, see :mod:`torch_ext.functional`; None follows ``torch.get_float32_matmul_precision()``.
        prepared: keep the weight's copy that :func:`torch_ext.prepare` makes, for float32 weights on Hopper: as many
            bytes again as the weight for "highest", half of it for "high"; `prepared_memory` says how many there are
            now. It is made at the first call and again when the weight has been written to or moved (that call waits
            for the GPU, so that calls on other streams may use it), is not part of the state_dict, and a copied or
            pickled layer makes its own. :meth:`prepare` asks for it later. Writes through ``weight.data`` are not seen:
            call :meth:`refresh` after them.
    """

    # Class attributes too: a torch layer whose class is changed (torch_ext.replace) has none of its own.
    prepared: bool = False
    _copy: PreparedWeight | None = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        activation: str = "none",
        precision: str | None = None,
        prepared: bool = False,
    ) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"xgemm.nn.Linear: expected activation to be one of {', '.join(ACTIVATIONS)}, got {activation!r}"
            )
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation
        self.precision = precision
        self.prepared = prepared

    @classmethod
    def from_torch(
        cls, linear: torch.nn.Linear, *, activation: str | None = None, precision: str | None = None
    ) -> "Linear":
        """The same layer on xgemm; it shares the parameters of `linear`, and has its hooks.

        Args:
            linear: a torch.nn.Linear, or a layer of this class, whose activation and precision stay unless given.
        """
        _check_class("Linear", linear, torch.nn.Linear, cls)
        own = isinstance(linear, cls)
        if activation is None:
            activation = linear.activation if own else "none"
        if precision is None and own:
            precision = linear.precision
        layer = cls(linear.in_features, linear.out_features, False, "meta", activation=activation, precision=precision)
        layer.__dict__.update(_state(linear), activation=activation, precision=precision)
        return layer

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        """(..., in_features) to (..., out_features); residual broadcasts to the result."""
        weight = self._fresh_copy() if self.prepared else self.weight
        return F.linear(
            input, weight, self.bias, activation=self.activation, residual=residual, precision=self.precision
        )

    def prepare(self) -> "Linear":
        """Keeps the weight's copy from now on, and makes it now; see `prepared` above."""
        self.prepared = True
        self._fresh_copy()
        return self

    def refresh(self) -> "Linear":
        """Copies the weight again, into the same memory (a captured graph may read it). Without a copy it does nothing.

        For writes that torch's version counter does not see: those through ``weight.data``, as optimisers of other
        libraries, averages of weights and merges of adapters make them.
        """
        if self._copy is not None:
            self._copy.update(wait=True)
        return self

    @property
    def prepared_memory(self) -> int:
        """Bytes of the weight's copy that the layer holds now."""
        return 0 if self._copy is None else self._copy.memory

    def _fresh_copy(self) -> Tensor | PreparedWeight:
        """The weight with its copy; the weight alone where a copy could not be kept fresh."""
        weight, precision = self.weight, default_precision() if self.precision is None else self.precision
        if torch.compiler.is_compiling() or type(weight) is not torch.nn.Parameter or not weight.is_cuda:
            return weight
        copy = self._copy
        if copy is not None and copy.weight is weight and copy.precision == precision and copy.is_fresh():
            return copy
        if weight.is_inference() or torch.cuda.is_current_stream_capturing():  # what a graph would fill, not this call
            return weight
        if copy is not None and copy.weight is weight and copy.precision == precision:
            copy.update(wait=True)
        else:
            copy = PreparedWeight(weight, precision)
            copy.wait()  # the next call may be another thread's, on a stream that nothing orders after this one
            self._copy = copy
        return copy

    def _apply(self, fn, recurse: bool = True) -> "Linear":
        self._copy = None  # the weight moves: nothing is to hold its old memory
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), "_copy": None}  # of another weight's memory, once copied or loaded

    def extra_repr(self) -> str:
        memory = f", prepared, {self.prepared_memory} bytes" if self.prepared else ""
        return f"{super().extra_repr()}, activation={self.activation}{memory}"


class Softmax(torch.nn.Softmax):
    """:class:`torch.nn.Softmax`; `dim` must be given."""

    def forward(self, input: Tensor) -> Tensor:
        if self.dim is None:
            raise ValueError("xgemm.nn.Softmax: expected a dim, got None")
        return F.softmax(input, self.dim)


class LogSoftmax(torch.nn.LogSoftmax):
    """:class:`torch.nn.LogSoftmax`; `dim` must be given."""

    def forward(self, input: Tensor) -> Tensor:
        if self.dim is None:
            raise ValueError("xgemm.nn.LogSoftmax: expected a dim, got None")
        return F.log_softmax(input, self.dim)


class MultiheadAttention(torch.nn.MultiheadAttention):
    """:class:`torch.nn.MultiheadAttention` with its parameters, masks and outputs, on xgemm's linear and attention.

    All of torch's options are served: batch_first, kdim and vdim, bias_k and bias_v, add_zero_attn, unbatched inputs,
    key_padding_mask, attn_mask, is_causal, need_weights, average_attn_weights. Dropout is not (forward only): it raises
    in training. need_weights=True, torch's default, needs the (L, S) weights themselves, so it takes matmul and softmax
    with memory O(L * S); with need_weights=False it is one attention op with memory O(L + S).
    """

    def __init__(self, embed_dim: int, num_heads: int, *args, **kwargs) -> None:
        if num_heads > 0 and embed_dim % num_heads != 0:
            raise ValueError(
                f"xgemm.nn.MultiheadAttention: expected embed_dim to be a multiple of num_heads={num_heads}, "
                f"got {embed_dim}"
            )
        super().__init__(embed_dim, num_heads, *args, **kwargs)
        keep_off_fused_path(self)

    @classmethod
    def from_torch(cls, attention: torch.nn.MultiheadAttention) -> "MultiheadAttention":
        """The same layer on xgemm; it shares the parameters of `attention`."""
        _check_class("MultiheadAttention", attention, torch.nn.MultiheadAttention, cls)
        layer = cls.__new__(cls)
        layer.__dict__ = _state(attention)
        keep_off_fused_path(layer)
        return layer

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        keep_off_fused_path(self)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As in torch.

        Args:
            query: (L, N, E), (N, L, E) if batch_first, or (L, E) unbatched.
            key, value: (S, N, kdim) and (S, N, vdim), in the query's arrangement.
            key_padding_mask: (N, S); bool, True leaves a key out, or additive.
            need_weights: also return the attention weights.
            attn_mask: (L, S) or (N * heads, L, S); bool, True leaves a key out, or additive.
            average_attn_weights: average the returned weights over the heads.
            is_causal: a hint that attn_mask is the causal mask; it must be given too, as in torch.

        Returns:
            The output in the query's arrangement, and the weights, (N, L, S) or (N, heads, L, S), or None.

        Raises:
            RuntimeError: dropout in training, a nested tensor, an input that requires grad in grad mode, shapes that do
                not fit.
        """
        if self.training and self.dropout > 0:
            raise RuntimeError(
                f"xgemm.nn.MultiheadAttention: has no dropout, got dropout={self.dropout} in training; call eval()"
            )
        if query.is_nested or key.is_nested or value.is_nested:
            raise RuntimeError(
                "xgemm.nn.MultiheadAttention: expected dense tensors, got a nested one; call to_padded_tensor()"
            )
        if is_causal and attn_mask is None:
            raise RuntimeError("xgemm.nn.MultiheadAttention: is_causal is a hint about attn_mask, got no attn_mask")
        for name, x, width in (("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim)):
            if query.dim() not in (2, 3) or x.dim() != query.dim() or x.shape[-1] != width:
                dims = "2 or 3" if name == "query" else query.dim()
                raise RuntimeError(
                    f"xgemm.nn.MultiheadAttention: expected {name} of {dims} dims, the last of size {width}, "
                    f"got shape {list(x.shape)}"
                )

        # (N, L, E) from here on, as views
        self_attention = query is key and key is value
        if not (batched := query.dim() == 3):
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)

        if self_attention and self.in_proj_weight is not None:
            q, k, v = F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            q, k, v = self._project(query, key, value)
        if self.bias_k is not None:
            k = torch.cat([k, self.bias_k.expand(k.shape[0], 1, -1)], 1)
            v = torch.cat([v, self.bias_v.expand(v.shape[0], 1, -1)], 1)
        if self.add_zero_attn:
            k, v = torch.nn.functional.pad(k, (0, 0, 0, 1)), torch.nn.functional.pad(v, (0, 0, 0, 1))
        q, k, v = (x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for x in (q, k, v))

        # A causal hint spares the mask where nothing else needs one; appended keys are seen by every query.
        causal = is_causal and key_padding_mask is None and not need_weights and k.shape[2] == key.shape[1]
        mask = None if causal else self._mask(attn_mask, key_padding_mask, q, key.shape[1], k.shape[2])
        if need_weights:
            scores = F.matmul(q * self.head_dim**-0.5, k.mT)
            weights = F.softmax(scores if mask is None else scores + mask, -1)
            output = F.matmul(weights, v)
            weights = F.mean(weights, 1) if average_attn_weights else weights
            weights = weights if batched else weights[0]
        else:
            output, weights = self._attend(q, k, v, mask, causal), None
        # A caller may view the result, so it is contiguous in the query's arrangement.
        output = output.transpose(1, 2) if self.batch_first or not batched else output.permute(2, 0, 1, 3)
        output = F.linear(output.flatten(2), self.out_proj.weight, self.out_proj.bias)
        return output if batched else output[0], weights

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """(N, heads, L, head size), as q."""
        return F.attention(q, k, v, attn_mask=mask, is_causal=causal)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Three (N, length, E), by the rows of the packed weight or by separate weights."""
        if self.in_proj_weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        else:
            weights = self.in_proj_weight.chunk(3)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return tuple(F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))

    def _mask(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, q: Tensor, given: int, total: int
    ) -> Tensor | None:
        """Both masks, added, broadcastable to (N, heads, L, total); appended keys are not masked."""
        batch, heads, length, _ = q.shape
        masks = []
        if attn_mask is not None:
            if attn_mask.shape == (length, given):
                masks.append(_additive("attn_mask", attn_mask, q.dtype))
            elif attn_mask.shape == (batch * heads, length, given):
                masks.append(_additive("attn_mask", attn_mask, q.dtype).unflatten(0, (batch, heads)))
            else:
                raise RuntimeError(
                    f"xgemm.nn.MultiheadAttention: expected attn_mask of shape [{length}, {given}] or "
                    f"[{batch * heads}, {length}, {given}], got {list(attn_mask.shape)}"
                )
        if key_padding_mask is not None:
            if key_padding_mask.shape != (batch, given):
                raise RuntimeError(
                    f"xgemm.nn.MultiheadAttention: expected key_padding_mask of shape [{batch}, {given}], "
                    f"got {list(key_padding_mask.shape)}"
                )
            masks.append(_additive("key_padding_mask", key_padding_mask, q.dtype)[:, None, None])
        if not masks:
            return None
        mask = masks[0] if len(masks) == 1 else masks[0] + masks[1]
        return mask if given == total else torch.nn.functional.pad(mask, (0, total - given))


def _check_class(name: str, module: torch.nn.Module, expected: type, ours: type) -> None:
    """Raises TypeError for another class, or one that computes something else: its own forward or parametrizations."""
    if not isinstance(module, expected):
        raise TypeError(f"xgemm.nn.{name}.from_torch: expected a torch.nn.{name}, got {type(module).__name__}")
    of_class = isinstance(module, ours) or type(module).forward is expected.forward
    if not of_class or "forward" in module.__dict__:
        got = f"{type(module).__name__} with a forward of its own"
    elif "parametrizations" in module._modules:
        got = f"{type(module).__name__}; call torch.nn.utils.parametrize.remove_parametrizations"
    else:
        return
    raise TypeError(f"xgemm.nn.{name}.from_torch: expected torch's own layer, got {got}")


def _state(module: torch.nn.Module) -> dict[str, object]:
    """For a layer that shares parameters and submodules, but not the dicts of them and of hooks."""
    state = {name: value.copy() if isinstance(value, dict) else value for name, value in module.__dict__.items()}
    state.pop("_xgemm_report", None)  # of a module that torch_ext.replace has swapped
    return state


def _additive(name: str, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """torch's module leaves out where a boolean mask is True: -inf there, 0 elsewhere."""
    if mask.dtype is torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))
    if not mask.is_floating_point():
        raise RuntimeError(f"xgemm.nn.MultiheadAttention: expected {name} of dtype bool or floating, got {mask.dtype}")
    return mask.to(dtype)


def keep_off_fused_path(attention: torch.nn.MultiheadAttention) -> None:
    """Makes nn.TransformerEncoderLayer call forward: on this flag it would run torch's own kernel on the weights."""
    attention._qkv_same_embed_dim = False
