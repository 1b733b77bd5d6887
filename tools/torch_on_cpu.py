"""CUDA tensors that live on the CPU except while our operators run: under a sanitizer, the GPU runs our kernels only.

compute-sanitizer follows every kernel of a process. torch's and cuBLAS's, which make the tests' inputs and references,
take most of the time there; initcheck, which does not see what TMA writes, reports their reads of it until its buffer
overflows; and racecheck dies in cuBLAS's half-precision kernels on Hopper ("failed to handle a hardware exception").
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

OURS = ("xgemm", "xgemm_lab")
SOFTMAX = (torch.ops.aten._softmax.default, torch.ops.aten._log_softmax.default)


class Elsewhere(torch.Tensor):
    """Says that it is on `device`; its elements are those of `here`, on the CPU."""

    here: torch.Tensor

    @staticmethod
    def __new__(cls, here: torch.Tensor, device: torch.device) -> "Elsewhere":
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        x = torch.Tensor._make_wrapper_subclass(
            cls,
            here.shape,
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=device,
        )
        x.here = here
        return x

    __torch_function__ = torch._C._disabled_torch_function_impl

    def tolist(self) -> Any:  # no operator, and refused for subclasses
        return self.here.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} on a tensor of TorchOnCpu, outside of it")


def written_by(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments that an operator writes to, by name."""
    given = {a.name: x for a, x in zip(func._schema.arguments, args, strict=False)} | kwargs
    written = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return {name: given[name] for name in written if name in given}


class TorchOnCpu(TorchDispatchMode):
    """Inside, operators of torch compute on the CPU, whatever device they are asked for; ours run on the device.

    An operator of ours gets whole storages, so that strides, alignment and the room behind a tensor are what they say.
    Its tensors live until the end: freeing waits for the GPU, and processes that share one wait for each other. Under
    sdpa_kernel(SDPBackend.MATH) scaled_dot_product_attention is made of operators that the CPU has.
    """

    def __init__(self, device_type: str = "cuda") -> None:
        super().__init__()
        self.device_type = device_type  # another one than cuda: ours run on the CPU, too (tests/test_build.py)
        self.kept: list[Any] = []

    def upload(self, x: Elsewhere) -> torch.Tensor:
        device = x.device if self.device_type == "cuda" else torch.device("cpu")
        content = torch.empty(0, dtype=torch.uint8).set_(x.here.untyped_storage())
        room = torch.empty(content.shape, dtype=torch.uint8, device=device)
        storage = room.copy_(content, non_blocking=True).untyped_storage()
        return torch.empty(0, dtype=x.dtype, device=device).set_(storage, x.storage_offset(), x.shape, x.stride())

    def __torch_dispatch__(
        self, func: torch._ops.OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Elsewhere)]
        device = given[0].device if given else None
        before = written_by(func, args, kwargs)
        if func.namespace in OURS:
            args, kwargs = tree_map_only(Elsewhere, self.upload, (args, kwargs))
        else:
            args, kwargs = tree_map_only(Elsewhere, lambda x: x.here, (args, kwargs))
            if kwargs.get("device") is not None:  # a factory, or a copy to a device
                device = torch.device(kwargs["device"])
                device = device if device.type == self.device_type else None
                kwargs = kwargs | {"device": torch.device("cpu") if device else kwargs["device"]}
        if func in SOFTMAX and args[2]:  # half in, fp32 out: on CUDA only
            args = (args[0].float(), args[1], False)
        result = func(*args, **kwargs)
        if func.namespace in OURS:
            self.kept.append((args, kwargs, result))
            for name, x in written_by(func, args, kwargs).items():
                if isinstance(before[name], Elsewhere):  # with the room around it, where nothing may have been written
                    before[name].here.untyped_storage().copy_(x.untyped_storage())
        written = {id(x.here): x for x in given}  # an operator may return what it has written to

        def send(x: torch.Tensor) -> torch.Tensor:
            if id(x) in written:
                return written[id(x)]
            return Elsewhere(x.cpu(), device or x.device) if device or x.device.type == self.device_type else x

        return tree_map_only(torch.Tensor, send, result)
