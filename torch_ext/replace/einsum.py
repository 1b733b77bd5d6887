"""An einsum that is one matrix product."""

from collections.abc import Callable

from torch import Tensor

from torch_ext import functional as F


def einsum(equation, *operands) -> tuple[str | None, tuple[Tensor, ...], Callable[[], Tensor]]:
    """The handler of :func:`torch.einsum`; see :mod:`torch_ext.replace.functions`."""
    if len(operands) == 1 and isinstance(operands[0], tuple | list):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or len(operands) != 2:
        return "not one product", (), F.matmul
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    a, comma, b = inputs.partition(",")
    if not arrow:
        result = "".join(sorted(label for label in a + b if (a + b).count(label) == 1))
    letters = a + b
    plan = _plan(a, b, result) if comma and letters.isascii() and letters.isalpha() else None
    if plan is None or any(x.dim() != len(labels) for x, labels in zip(operands, (a, b), strict=True)):
        return "not one product", operands, F.matmul
    sizes_a, sizes_b = dict(zip(a, operands[0].shape, strict=True)), dict(zip(b, operands[1].shape, strict=True))
    if any(sizes_a[label] != sizes_b[label] for label in sizes_a.keys() & sizes_b.keys()):  # a size of 1 broadcasts
        return "not one product", operands, F.matmul
    sizes = {**sizes_a, **sizes_b}
    batch, rows, columns, summed = plan
    x, y = operands
    if rows and columns and result.index(columns[0]) < result.index(rows[0]):  # so that the result needs no permutation
        a, b, x, y, rows, columns = b, a, y, x, columns, rows

    def ours() -> Tensor:
        left = x.permute([a.index(label) for label in batch + rows + summed])
        right = y.permute([b.index(label) for label in batch + summed + columns])
        n = len(batch)
        left = left.flatten(n, n + len(rows) - 1) if rows else left.unsqueeze(n)
        right = right.flatten(n, n + len(summed) - 1)
        right = right.flatten(n + 1) if columns else right.unsqueeze(-1)
        found = batch + rows + columns
        product = F.matmul(left.flatten(n + 1), right).reshape([sizes[label] for label in found])
        return product.permute([found.index(label) for label in result])

    return None, operands, ours


def _plan(a: str, b: str, result: str) -> tuple[list[str], list[str], list[str], list[str]] | None:
    """Labels that are batch dims, rows, columns and summed. None if the equation is not one product."""
    if any(len(set(labels)) < len(labels) for labels in (a, b, result)) or not set(result) <= set(a + b):
        return None
    batch = [label for label in result if label in a and label in b]  # in the result's order: its layout is torch's
    rows = [label for label in result if label in a and label not in b]
    columns = [label for label in result if label in b and label not in a]
    summed = [label for label in a if label in b and label not in result]
    one_product = summed and set(a + b) == set(result + "".join(summed))
    return (batch, rows, columns, summed) if one_product else None
