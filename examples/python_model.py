"""A small transformer on xgemm: eager, compiled, and a torch model swapped in place.

Run from the project's folder: python -m examples.python_model
"""

import torch

import torch_ext


class Block(torch.nn.Module):
    """A pre-norm transformer block: attention, then a feed-forward layer whose activation and residual are fused."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.heads = heads
        self.qkv = torch_ext.nn.Linear(width, 3 * width)
        self.out = torch_ext.nn.Linear(width, width)
        self.up = torch_ext.nn.Linear(width, 4 * width, activation="gelu")
        self.down = torch_ext.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # (batch, length, 3 * width) -> three (batch, heads, length, size), as views: the operators take any strides
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = torch_ext.attention(q, k, v, is_causal=True)
        x = self.out(y.transpose(1, 2).flatten(2), residual=x)
        return self.down(self.up(self.norm2(x)), residual=x)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(*(Block(256, 8) for _ in range(4))).to(device).eval()
    x = torch.randn(2, 128, 256, device=device)

    with torch.no_grad():
        eager = model(x)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
        print(f"{device}: eager and compiled differ by {(eager - compiled).abs().max().item():.1e}")

        # A model written for torch needs no change
        layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, device=device)
        torchs = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
        expected = torchs(x)
        report = torch_ext.replace(torchs)
        print(f"torch's encoder on xgemm differs from torch by {(torchs(x) - expected).abs().max().item():.1e}")
        print(report)

    try:
        model(x)  # grad mode is on, and the parameters require grad
    except RuntimeError as error:
        print(f"outside no_grad: {error}")


if __name__ == "__main__":
    main()
