"""Runs torch's own operators on the CPU: under a sanitizer, only our kernels run on the GPU.

compute-sanitizer follows every kernel of a process. torch's and cuBLAS's, which make the tests' inputs and references,
take most of the time there; initcheck, which does not see what TMA writes, reports their reads of it until its buffer
overflows. Storages travel whole, so that strides stay as they are and no kernel of torch packs or spreads elements.
"""

from typing import Any

import torch
from torch.nn.attention import SDPBackend
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

aten = torch.ops.aten
ALLOCATIONS = {aten.empty.memory_format, aten.empty_strided.default}


class TorchOnCpu(TorchDispatchMode):
    """Operators of torch with a tensor on `device_type` compute on the CPU and send the result back.

    Views, empty() and other libraries' operators (ours) stay where they are.
    """

    def __init__(self, device_type: str = "cuda") -> None:
        super().__init__()
        self.device_type = device_type

    def __torch_dispatch__(
        self, func: torch._ops.OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace != "aten" or func.is_view or func in ALLOCATIONS:
            return func(*args, **kwargs)
        if func is aten._fused_sdp_choice.default:  # the one that is made of operators of every device
            return SDPBackend.MATH.value
        copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by id: an argument that is there, its copy here

        def fetch(x: torch.Tensor) -> torch.Tensor:
            if x.device.type != self.device_type:
                return x
            if id(x) not in copies:
                storage = torch.UntypedStorage(x.untyped_storage().nbytes()).copy_(x.untyped_storage())
                copy = torch.empty(0, dtype=x.dtype).set_(storage, x.storage_offset(), x.shape, x.stride())
                copies[id(x)] = x, copy
            return copies[id(x)][1]

        here_args, here_kwargs = tree_map_only(torch.Tensor, fetch, (args, kwargs))
        device = next((x.device for x, _ in copies.values()), None)
        if kwargs.get("device") is not None:  # a factory, or a copy to a device
            device = torch.device(kwargs["device"])
            device = device if device.type == self.device_type else None
            here_kwargs["device"] = torch.device("cpu") if device else kwargs["device"]
        result = func(*here_args, **here_kwargs)

        names = [argument.name for argument in func._schema.arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        for argument in func._schema.arguments:
            value = given.get(argument.name)
            if argument.is_write and isinstance(value, torch.Tensor) and id(value) in copies:
                value.untyped_storage().copy_(copies[id(value)][1].untyped_storage())
        originals = {id(copy): x for x, copy in copies.values()}

        def send(x: torch.Tensor) -> torch.Tensor:
            if id(x) in originals:  # the operator returns what it has written to
                return originals[id(x)]
            return (
                x if device is None else torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device).copy_(x)
            )

        return tree_map_only(torch.Tensor, send, result)
