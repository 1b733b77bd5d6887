"""Layers that `kernels` puts in place of a model's: a forward alone, which uses the attributes that the model's has."""

from torch import Tensor, nn

from .functional import linear


class Linear(nn.Module):
    """The forward of :class:`torch.nn.Linear`."""

    weight: Tensor
    bias: Tensor | None

    has_backward = False
    can_torch_compile = True

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)
