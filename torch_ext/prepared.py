"""Weights of fp32 products that are split for the tensor cores once and not at every call."""

import torch
from torch import Tensor

_prepare = torch.ops.xgemm.prepare.default


def _state(weight: Tensor) -> tuple:
    if not isinstance(weight, Tensor):
        raise TypeError(f"xgemm::prepare: expected weight to be a Tensor, got {type(weight).__name__}")
    try:
        return weight._version, weight.data_ptr(), weight.stride()
    except RuntimeError:
        if weight.layout is not torch.strided:
            wanted, got = "to be a dense (strided) tensor", "a sparse or opaque layout; call to_dense() first"
        else:
            wanted = "with storage that counts its versions"
            got = "one made under torch.inference_mode(), or a fake one; clone() it outside"
        raise RuntimeError(f"xgemm::prepare: expected weight {wanted}, got {got}") from None


class PreparedWeight:
    """A weight and the copy that fp32 products on Hopper's tensor cores make of it. Made by :func:`torch_ext.prepare`.

    Attributes:
        weight: the weight itself; not copied.
        precision: what the copy is good for.
        copy: the copy, uint8; empty where no product would use one.
        memory: bytes of the copy.
    """

    def __init__(self, weight: Tensor, precision: str) -> None:
        self.weight = weight
        self.precision = precision
        self._state, self._source = _state(weight), weight.detach()
        self.copy = _prepare(self._source, precision=precision)

    @property
    def memory(self) -> int:
        return self.copy.numel()

    def is_fresh(self) -> bool:
        """Whether the weight is, storage and version, the one that was copied. No version counts ``weight.data``."""
        return self._state == _state(self.weight)

    def update(self, *, wait: bool = False) -> None:
        """Copies the weight as it is now, into the same memory where that fits.

        Args:
            wait: until the GPU has copied it. Only then is_fresh() says so to other threads, on other streams.
        """
        state, source = _state(self.weight), self.weight.detach()
        new = _prepare(source, precision=self.precision)
        if new.device == self.copy.device and new.numel() == self.copy.numel():
            with torch.inference_mode():  # where the copy may have been made
                self.copy.copy_(new)  # a captured graph may read it
        else:
            self.copy = new
        if wait:
            self.wait()
        self._state, self._source = state, source  # while the old storage is held, no other one can have its address

    def wait(self) -> None:
        """Until the current stream has made the copy."""
        torch.cuda.current_stream(self.copy.device).synchronize()

    def __reduce__(self) -> tuple:
        """A copied or loaded one is of another weight's memory: it splits that anew."""
        return PreparedWeight, (self.weight, self.precision)

    def __repr__(self) -> str:
        n, k = self.weight.shape
        return f"PreparedWeight({n} x {k}, precision={self.precision}, memory={self.memory} bytes)"
