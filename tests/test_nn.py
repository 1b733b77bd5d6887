"""Modules against torch's own, with torch's weights."""

import copy
import itertools

import pytest
import torch
from common import ACTIVATIONS, TorchMath, randn, saved_and_loaded

import torch_ext
from torch_ext import nn


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_linear(activation: str, bias: bool, device: torch.device) -> None:
    theirs = torch.nn.Linear(7, 5, bias=bias, device=device)
    loaded = nn.Linear(7, 5, bias=bias, device=device, activation=activation)
    loaded.load_state_dict(theirs.state_dict())
    x, residual = randn(2, 3, 7, device=device), randn(2, 3, 5, device=device)
    with torch.no_grad():
        expected = ACTIVATIONS[activation](theirs(x))
        for ours in (loaded, nn.Linear.from_torch(theirs, activation=activation)):
            torch.testing.assert_close(ours(x), expected)
            torch.testing.assert_close(ours(x, residual), expected + residual)
            assert isinstance(ours, torch.nn.Linear) and f"activation={activation}" in repr(ours)


def test_linear_from_torch_shares_parameters() -> None:
    theirs = torch.nn.Linear(3, 4).eval()
    ours = nn.Linear.from_torch(theirs)
    assert ours.weight is theirs.weight and ours.bias is theirs.bias and not ours.training
    assert nn.Linear.from_torch(torch.nn.Linear(3, 4, bias=False)).bias is None
    assert list(ours.state_dict()) == list(theirs.state_dict())


@torch.no_grad()
def test_from_torch_keeps_what_the_layer_does() -> None:
    x, layer = randn(2, 3), nn.Linear(3, 4, activation="relu", precision="ieee")
    ours = nn.Linear.from_torch(layer)
    assert ours.activation == "relu" and ours.precision == "ieee" and torch.equal(ours(x), layer(x))
    assert nn.Linear.from_torch(layer, activation="none").activation == "none"
    hooked = torch.nn.Linear(3, 4)
    hooked.register_forward_hook(lambda module, args, output: output + 1)
    for module in (hooked, torch.nn.utils.weight_norm(torch.nn.Linear(3, 4))):
        torch.testing.assert_close(nn.Linear.from_torch(module)(x), module(x))
    model = torch.nn.Sequential(torch.nn.Linear(3, 4))
    torch_ext.replace(model)
    torch_ext.replace(torch.nn.Sequential(nn.Linear.from_torch(model[0])))


def test_from_torch_refuses_what_computes_something_else() -> None:
    class Doubled(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    patched, parametrized = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)
    patched.forward = Doubled(3, 4).forward
    torch.nn.utils.parametrizations.weight_norm(parametrized)
    for module, got in (
        (Doubled(3, 4), "Doubled with a forward of its own"),
        (patched, "Linear with a forward of its own"),
        (parametrized, "ParametrizedLinear; call torch.nn.utils.parametrize.remove_parametrizations"),
    ):
        with pytest.raises(TypeError) as caught:
            nn.Linear.from_torch(module)
        assert str(caught.value) == f"xgemm.nn.Linear.from_torch: expected torch's own layer, got {got}"


def test_from_torch_refuses_another_module() -> None:
    for ours in (nn.Linear, nn.MultiheadAttention):
        name = ours.__name__
        with pytest.raises(TypeError, match=rf"^xgemm.nn.{name}.from_torch: expected a torch.nn.{name}, got Conv2d$"):
            ours.from_torch(torch.nn.Conv2d(2, 2, 1))


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected embed_dim to be a multiple of num_heads=3, got 10$"):
        nn.MultiheadAttention(10, 3)
    activations = "expected activation to be one of none, relu, gelu, gelu_tanh, silu, got 'tanh'"
    with pytest.raises(ValueError, match=activations):
        nn.Linear(3, 4, activation="tanh")


@pytest.mark.parametrize(("ours", "theirs"), [(nn.Softmax, torch.nn.Softmax), (nn.LogSoftmax, torch.nn.LogSoftmax)])
def test_softmax(ours, theirs, device: torch.device) -> None:
    x = randn(3, 4, 5, device=device)
    for dim in (0, -1):
        torch.testing.assert_close(ours(dim)(x), theirs(dim)(x))
    with pytest.raises(ValueError, match="expected a dim, got None"):
        ours()(x)
    with pytest.raises(IndexError, match="expected dim in"):
        ours(3)(x)


E, HEADS, N, L, S = 12, 3, 2, 5, 7
VARIANTS = {
    "packed": {},
    "no bias": {"bias": False},
    "kdim and vdim": {"kdim": 6, "vdim": 9},
    "bias_k and bias_v": {"add_bias_kv": True},
    "add_zero_attn": {"add_zero_attn": True},
    "all": {"kdim": 6, "vdim": 9, "add_bias_kv": True, "add_zero_attn": True},
}


def pair(device: torch.device, **options) -> tuple[torch.nn.MultiheadAttention, nn.MultiheadAttention]:
    """torch's module with random biases and ours with its state."""
    theirs = torch.nn.MultiheadAttention(E, HEADS, device=device, **options).eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.3)
    ours = nn.MultiheadAttention(E, HEADS, device=device, **options).eval()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def inputs(device: torch.device, module: torch.nn.MultiheadAttention, batched: bool = True) -> list[torch.Tensor]:
    shapes = [(L, E), (S, module.kdim), (S, module.vdim)]
    if batched:
        shapes = [(N, *s) if module.batch_first else (s[0], N, s[1]) for s in shapes]
    return [randn(*s, device=device) for s in shapes]


def compare(theirs, ours, args, **kwargs) -> None:
    with torch.no_grad():
        expected = theirs(*args, **kwargs)
        with TorchMath() as counter:
            actual = ours(*args, **kwargs)
    assert len(counter.ours) >= 3
    assert actual[0].is_contiguous()  # a caller may view it
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)  # torch's attention may be of any backend


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_multihead_attention(variant: str, batch_first: bool, need_weights: bool, device: torch.device) -> None:
    theirs, ours = pair(device, batch_first=batch_first, **VARIANTS[variant])
    kwargs = {"need_weights": need_weights}
    compare(theirs, ours, inputs(device, theirs), **kwargs)
    compare(theirs, ours, inputs(device, theirs, batched=False), **kwargs)
    compare(theirs, ours, inputs(device, theirs), average_attn_weights=False, **kwargs)
    if theirs.kdim == theirs.vdim == E:
        x = inputs(device, theirs)[0]
        compare(theirs, ours, (x, x, x), **kwargs)  # one packed product
        compare(theirs, ours, (x, x.clone(), x), **kwargs)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("variant", ["packed", "all"])
def test_multihead_attention_masks(variant: str, need_weights: bool, device: torch.device) -> None:
    theirs, ours = pair(device, batch_first=True, **VARIANTS[variant])
    args = inputs(device, theirs)
    padding = torch.zeros(N, S, dtype=torch.bool, device=device)
    padding[1, 4:] = True
    boolean = torch.rand(L, S, device=device) < 0.3
    boolean[:, 0] = False
    additive, per_head = randn(L, S, device=device), randn(N * HEADS, L, S, device=device)
    soft = torch.zeros(N, S, device=device).masked_fill(padding, float("-inf"))
    masks = [*itertools.product((None, boolean, boolean.expand(N * HEADS, L, S)), (None, padding))]
    masks += itertools.product((None, additive, per_head), (None, soft))
    for attn_mask, key_padding_mask in masks:
        compare(theirs, ours, args, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=need_weights)


@pytest.mark.parametrize("need_weights", [False, True])
def test_multihead_attention_causal_hint(need_weights: bool, device: torch.device) -> None:
    theirs, ours = pair(device, batch_first=True)
    x = randn(N, L, E, device=device)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(L, device=device)
    padding = torch.zeros(N, L, device=device)
    padding[0, 3:] = float("-inf")
    options = {"attn_mask": mask, "is_causal": True, "need_weights": need_weights}
    for key_padding_mask in (None, padding):
        compare(theirs, ours, (x, x, x), key_padding_mask=key_padding_mask, **options)


@pytest.mark.parametrize("need_weights", [False, True])
def test_multihead_attention_with_every_key_masked(need_weights: bool, device: torch.device) -> None:
    """0 as in torch's attention, NaN as in its softmax."""
    theirs, ours = pair(device, batch_first=True)
    args = inputs(device, theirs)
    padding = torch.ones(N, S, dtype=torch.bool, device=device)
    with torch.no_grad():
        expected = theirs(*args, key_padding_mask=padding, need_weights=need_weights)[0]
        actual = ours(*args, key_padding_mask=padding, need_weights=need_weights)[0]
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_multihead_attention_from_torch_shares_parameters() -> None:
    theirs, _ = pair(torch.device("cpu"), **VARIANTS["all"])
    ours = nn.MultiheadAttention.from_torch(theirs)
    assert all(a is b for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert list(ours.state_dict()) == list(theirs.state_dict()) and not ours.training
    compare(theirs, ours, inputs(torch.device("cpu"), theirs))


def test_multihead_attention_survives_copies_and_pickles() -> None:
    theirs, ours = pair(torch.device("cpu"))
    for again in (copy.deepcopy(ours), saved_and_loaded(ours)):
        compare(theirs, again, inputs(torch.device("cpu"), theirs))


def test_multihead_attention_refuses() -> None:
    _, ours = pair(torch.device("cpu"), dropout=0.1, batch_first=True)
    x = randn(N, L, E)
    with torch.no_grad():
        ours(x, x, x)  # eval: no dropout
        for error, call in (
            ("expected attn_mask of shape", lambda: ours(x, x, x, attn_mask=randn(L, L + 1))),
            ("expected key_padding_mask of shape", lambda: ours(x, x, x, key_padding_mask=randn(N, L + 1))),
            ("expected attn_mask of dtype bool", lambda: ours(x, x, x, attn_mask=torch.ones(L, L, dtype=torch.int64))),
            ("is_causal is a hint about attn_mask", lambda: ours(x, x, x, is_causal=True)),
            ("expected key of 3 dims, the last of size 12", lambda: ours(x, x[..., :4], x)),
            ("expected query of 2 or 3 dims, the last of size 12", lambda: ours(x[None], x[None], x[None])),
            ("has no dropout, got dropout=0.1 in training", lambda: ours.train()(x, x, x)),
        ):
            with pytest.raises(RuntimeError, match=rf"^xgemm.nn.MultiheadAttention: {error}.*\Z"):  # one line
                call()
        ours.eval()(x, x, x)


@pytest.mark.parametrize("norm_first", [False, True])
def test_inside_torchs_transformer_encoder(norm_first: bool, device: torch.device) -> None:
    """torch's fused encoder kernel must not bypass our forward."""
    layer = torch.nn.TransformerEncoderLayer(E, 2, 20, batch_first=True, norm_first=norm_first, device=device)
    theirs = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    ours = copy.deepcopy(theirs)
    for block in ours.layers:
        block.self_attn = nn.MultiheadAttention.from_torch(block.self_attn)
        block.linear1, block.linear2 = nn.Linear.from_torch(block.linear1), nn.Linear.from_torch(block.linear2)
    x, padding = randn(N, L, E, device=device), torch.zeros(N, L, dtype=torch.bool, device=device)
    padding[1, 3:] = True
    with torch.no_grad():
        for kwargs in ({}, {"src_key_padding_mask": padding}):
            expected = theirs(x, **kwargs)
            with TorchMath() as counter:
                actual = ours(x, **kwargs)
            assert len(counter.ours) == 2 * 5  # packed projection, attention, output, two linears
            torch.testing.assert_close(actual[0], expected[0], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(actual[1, :3], expected[1, :3], rtol=1e-4, atol=1e-5)


def test_precision_argument() -> None:
    layer = nn.Linear(4, 4, precision="ieee")
    with torch.no_grad():
        torch.testing.assert_close(layer(torch.eye(4)), torch_ext.linear(torch.eye(4), layer.weight, layer.bias))
        layer.precision = "exact"
        with pytest.raises(ValueError, match="precision"):
            layer(torch.eye(4))
