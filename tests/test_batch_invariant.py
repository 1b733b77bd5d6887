"""The batch-invariant mode: a row's bits depend on its own data, on N, K, dtype and GPU alone.

Of reductions and softmax: test_batch_invariant_rows.py.
"""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from common import FLOATING, check_replays, misaligned, randn, sliced
from reductions import same_bits

import torch_ext

Rows = Callable[[torch.Tensor], torch.Tensor]  # from (rows, length) to a result whose first dim is the rows
ROWS = 300


def test_the_mode_is_set_and_set_back() -> None:
    before = torch_ext.is_batch_invariant()
    with torch_ext.batch_invariant():
        assert torch_ext.is_batch_invariant()
        assert torch_ext.set_batch_invariant(False) and not torch_ext.is_batch_invariant()
        with torch_ext.batch_invariant():
            assert torch_ext.is_batch_invariant()
        assert not torch_ext.is_batch_invariant()
    assert torch_ext.is_batch_invariant() == before
    with pytest.raises(KeyError), torch_ext.batch_invariant():
        raise KeyError
    assert torch_ext.is_batch_invariant() == before
    assert torch_ext.batch_invariant()(torch_ext.is_batch_invariant)()


def test_compiled_code_follows_the_mode() -> None:
    seen = []

    @torch.library.custom_op("xgemm_test::mode", mutates_args=())
    def probe(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch_ext.is_batch_invariant())
        return x.clone()

    probe.register_fake(lambda x: torch.empty_like(x))

    def inside(x: torch.Tensor) -> torch.Tensor:
        x = probe(x)
        with torch_ext.batch_invariant():
            x = probe(x)
        return probe(x)

    torch.compile(inside, backend="aot_eager")(torch.ones(3))
    assert seen == [False, True, False]
    seen.clear()
    compiled = torch.compile(lambda x: probe(x) * 2, backend="aot_eager", fullgraph=True)
    compiled(torch.ones(3))
    with torch_ext.batch_invariant():
        compiled(torch.ones(3))
    assert seen == [False, True]


def lying(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same rows in other places: strides, alignment, transposed, as a batch."""
    return {
        "contiguous": x.contiguous(),
        "misaligned": misaligned(x),
        "transposed": x.T.contiguous().T,
        "every second element": sliced(x),
        "wider rows": torch.cat([x, x[:, :3]], 1)[:, : x.shape[1]],
    }


def check_rows(f: Rows, x: torch.Tensor) -> None:
    """Every selection of rows, however it lies, has the bits of all rows at once."""
    whole = f(x)
    order = torch.randperm(len(x), device=x.device)
    for rows in ([0], [7], range(3), range(5, 21), range(64, 129), range(len(x) - 1), order.tolist()):
        index = torch.tensor(list(rows), device=x.device)
        for how, part in lying(x[index]).items():
            assert same_bits(f(part), whole[index]), (len(index), how)


def check_batch(f: Rows, x: torch.Tensor) -> None:
    """As (rows, length), in batch dims, and in dims that no merging makes one."""
    whole = f(x)
    for shape in ((10, 30), (2, 5, 30), (2, 5, 3, 2, 5)):
        y = x.view(*shape, x.shape[1])
        assert same_bits(f(y).flatten(0, len(shape) - 1), whole), shape
        turned = y.transpose(0, len(shape) - 1)  # of the same rows in another order: in strides that do not merge
        assert same_bits(f(turned).transpose(0, len(shape) - 1).flatten(0, len(shape) - 1), whole), shape


PRECISIONS = {torch.float32: ["highest", "ieee", "high", "medium"]}
SIZES = [(1, 1), (3, 1000), (5, 4096), (64, 64), (260, 320), (300, 33), (512, 8192), (512, 65536), (1000, 257)]
SIZES += [(2048, 1024), (50257, 768), (260, 4100), (488, 3808)]


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_products(batch_invariant: None, n: int, k: int, dtype: torch.dtype) -> None:
    x, w, bias = (randn(*s, dtype=dtype, device="cuda") for s in ((ROWS, k), (n, k), (n,)))
    residual = randn(n, dtype=dtype, device="cuda").expand(ROWS, n)
    for precision in PRECISIONS.get(dtype, ["highest"]):
        options = {"activation": "gelu", "precision": precision}
        check_rows(lambda x, o=options: torch_ext.linear(x, w, bias, residual=residual[: len(x)], **o), x)
        check_rows(lambda x, p=precision: torch_ext.matmul(x, w.T.contiguous(), precision=p), x)
        check_batch(lambda x, p=precision: torch_ext.matmul(x, w.T, precision=p), x)
        # Weights that lie otherwise are the same matrix.
        whole = torch_ext.matmul(x, w.T, precision=precision)
        for how, other in lying(w).items():
            assert same_bits(torch_ext.matmul(x, other.T, precision=precision), whole), how
        # One product of a batch, and alone.
        many = torch_ext.matmul(x.view(3, 100, k), w.T.expand(3, k, n), precision=precision)
        assert same_bits(many.flatten(0, 1), whole)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize(("n", "k"), [(260, 320), (129, 200), (512, 4096)])
def test_gated_products_and_addmm(batch_invariant: None, n: int, k: int, dtype: torch.dtype) -> None:
    x, gate, up = (randn(*s, dtype=dtype, device="cuda") for s in ((ROWS, k), (n, k), (n, k)))
    check_rows(lambda x: torch_ext.gated_linear(x, gate, up), x)
    check_batch(lambda x: torch_ext.gated_linear(x, gate, up), x)
    bias = randn(n, dtype=dtype, device="cuda")
    check_rows(lambda x: torch_ext.addmm(bias, x, gate.T, beta=0.5, alpha=2), x)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("d", [64, 80, 128, 256])
@pytest.mark.parametrize("keys", [1, 100, 1000, 9000])
def test_attention(batch_invariant: None, keys: int, d: int, dtype: torch.dtype) -> None:
    """Of 1 to 1200 rows a key head, alone and in batches, of grouped and repeated heads, in any strides."""
    rows = 1200 if dtype in (torch.bfloat16, torch.float16) else 200
    q, k, v = (randn(2, 4, n, d, dtype=dtype, device="cuda") for n in (rows, keys, keys))
    whole = torch_ext.attention(q, k, v)
    for count in (1, 2, 15, 17, 63, 65, 200, rows - 1):
        assert same_bits(torch_ext.attention(q[:, :, :count], k, v), whole[:, :, :count]), count
    assert same_bits(torch_ext.attention(q[1:, 2:3, 5:9], k[1:, 2:3], v[1:, 2:3]), whole[1:, 2:3, 5:9])
    beside = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert same_bits(torch_ext.attention(*beside), whole)
    assert same_bits(torch_ext.attention(misaligned(q), misaligned(k), misaligned(v)), whole)
    grouped = torch_ext.attention(q, k[:, :2], v[:, :2], enable_gqa=True)
    repeated = torch_ext.attention(q, *(x[:, :2].repeat_interleave(2, 1) for x in (k, v)))
    assert same_bits(grouped, repeated)
    # The rows that a causal mask lets see all keys.
    causal = torch_ext.attention(q[:, :, -5:], k, v, is_causal=True, causal_alignment="bottom_right")
    assert same_bits(causal[:, :, -1:], whole[:, :, -1:])


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_attention_in_dims_that_do_not_merge(batch_invariant: None, dtype: torch.dtype) -> None:
    q, k, v = (randn(2, 2, 4, 200, 80, dtype=dtype, device="cuda") for _ in range(3))
    mask = torch.rand(2, 1, 1, 1, 200, device="cuda") > 0.3
    views = [x.transpose(-2, -3).contiguous().transpose(-2, -3) for x in (q, k, v)]
    assert same_bits(torch_ext.attention(*views, attn_mask=mask), torch_ext.attention(q, k, v, attn_mask=mask))
    first = torch_ext.attention(q[0], k[0], v[0], attn_mask=mask[0])
    assert same_bits(first, torch_ext.attention(q, k, v, attn_mask=mask)[0])


@pytest.mark.cuda
def test_a_compiled_model_and_a_graph(batch_invariant: None) -> None:
    w, u = randn(512, 320, device="cuda"), randn(320, 512, device="cuda")
    x = randn(ROWS, 320, device="cuda")

    def model(x: torch.Tensor) -> torch.Tensor:
        return torch_ext.softmax(torch_ext.linear(F.gelu(torch_ext.linear(x, w)), u), -1)

    with torch.no_grad():
        whole = model(x)
        compiled = torch.compile(model, backend="aot_eager", dynamic=True)
        for rows in (1, 17, ROWS):
            assert same_bits(compiled(x[:rows]), whole[:rows])
        few = x[:7].clone()
        assert same_bits(model(few), whole[:7])
        check_replays(lambda: model(few), few)
