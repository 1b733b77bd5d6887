"""Exports a small model on xgemm's operators and compiles it ahead of time (AOTInductor) for main.cpp.

Run from any folder: python export.py model.pt2
"""

import sys

import torch

import torch_ext


class Model(torch.nn.Module):
    """Returns what xgemm's operators compute and what torch's own do, so that the caller can compare the two."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(64, 128)
        self.qkv = torch.nn.Linear(128, 3 * 128)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ours = torch_ext.linear(x, self.up.weight, self.up.bias, activation="gelu")
        ours = torch_ext.linear(ours, self.qkv.weight, self.qkv.bias)
        ours = torch_ext.attention(*ours.unflatten(-1, (3, 4, 32)).permute(2, 0, 3, 1, 4), is_causal=True)
        torchs = self.qkv(torch.nn.functional.gelu(self.up(x)))
        torchs = torch.nn.functional.scaled_dot_product_attention(
            *torchs.unflatten(-1, (3, 4, 32)).permute(2, 0, 3, 1, 4), is_causal=True
        )
        return torch_ext.softmax(ours, -1), torchs.softmax(-1)


def main() -> None:
    x = torch.randn(2, 10, 64)
    with torch.no_grad():  # both steps: the operators have no backward
        program = torch.export.export(Model().eval(), (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        once = {"aot_inductor.precompile_headers": False}  # for one package their compilation does not pay
        package = torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1], inductor_configs=once)
    called = {str(node.target) for node in program.graph.nodes if str(node.target).startswith("xgemm.")}
    print(package, "calls", ", ".join(sorted(called)))


if __name__ == "__main__":
    main()
