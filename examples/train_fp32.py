"""A small transformer trained in float32: on torch, and on torch inside torch_ext.enable().

Run from the project's folder: python -m examples.train_fp32 [cuda | cpu]
"""

import contextlib
import statistics
import sys

import torch
from torch import nn
from torch.utils.benchmark import timer  # waits for the GPU

import torch_ext


class Model(nn.Module):
    def __init__(self, vocabulary: int, width: int, depth: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True)
        self.embed, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(tokens)))


def train(model: nn.Module, tokens: torch.Tensor, steps: int) -> tuple[float, float]:
    """Milliseconds of a step, and the last loss; the model learns to repeat its tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    times = []
    for _ in range(steps):
        start = timer()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(timer() - start)
    return 1e3 * statistics.median(times), loss.item()


def main(device: str = "cuda" if torch.cuda.is_available() else "cpu") -> None:
    gpu = device != "cpu"  # on a CPU the operators call ATen: times are near
    vocabulary, width, depth, batch, length = (32000, 1024, 8, 16, 512) if gpu else (100, 64, 2, 2, 16)
    for name, context in ("torch", contextlib.nullcontext), ("enabled", lambda: torch_ext.enable(device=device)):
        torch.manual_seed(0)
        model = Model(vocabulary, width, depth).to(device)
        tokens = torch.randint(vocabulary, (batch, length), device=device)
        with context() as enabled:
            ms, loss = train(model, tokens, steps=20)
        print(f"{name:<8} {ms:8.2f} ms a step, loss {loss:.6f} after 20 steps")
    print(enabled)


if __name__ == "__main__":
    main(*sys.argv[1:])
