"""Calls a few operators on the CPU: python smoke.py FOLDER, the folder that torch_ext is to come from."""

import sys

import torch

import torch_ext

assert torch_ext.__file__.startswith(sys.argv[1]), torch_ext.__file__
a, b = torch.randn(17, 33), torch.randn(33, 5)
q, k, v = torch.randn(2, 3, 10, 16), torch.randn(2, 3, 12, 16), torch.randn(2, 3, 12, 16)
torch.testing.assert_close(torch.ops.xgemm.matmul(a, b), a @ b)
torch.testing.assert_close(torch.ops.xgemm.softmax(a, -1), a.softmax(-1))
torch.testing.assert_close(torch_ext.linear(a, b.T, b[0]), torch.nn.functional.linear(a, b.T, b[0]))
torch.testing.assert_close(
    torch_ext.attention(q, k, v, is_causal=True),
    torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
)
print(f"torch {torch.__version__}: matmul, softmax, linear and attention of {torch_ext.__file__} agree with torch")
