"""What test_loading.py runs in a process of its own: torch_ext is imported again, each kind of registration is used.

The argument says how: "purge" deletes ``torch_ext*`` from sys.modules, "reload" reloads every module of the package.
"""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable

import pytest
import torch

import torch_ext
from torch_ext.lab import fake  # noqa: F401  (registers)

before = dict(sys.modules)


def import_again(how: str) -> None:
    global torch_ext
    if how == "purge":
        for name in [name for name in sys.modules if name.partition(".")[0] == "torch_ext"]:
            del sys.modules[name]
        torch_ext = importlib.import_module("torch_ext")
        importlib.import_module("torch_ext.lab.fake")
        return
    for found in pkgutil.walk_packages(torch_ext.__path__, "torch_ext."):
        if not found.name.endswith(("__main__", ".libxgemm")):  # programs; the library
            importlib.import_module(found.name)
    for name in sorted(name for name in sys.modules if name.partition(".")[0] == "torch_ext"):
        importlib.reload(sys.modules[name])


def check_owner(function: Callable, module: str) -> None:
    """The registered function is the one that the module has now."""
    assert function.__globals__ is vars(sys.modules[module]), (function, module)


def check_all() -> None:
    x, w = torch.randn(4, 8), torch.randn(6, 8)
    with torch.inference_mode():
        torch.testing.assert_close(torch_ext.linear(x, w), x @ w.T)

    for operator, module in (("xgemm::linear", "torch_ext.fake"), ("xgemm_lab::sgemm", "torch_ext.lab.fake")):
        checked = torch._library.simple_registry.singleton.find(operator).fake_impl.kernel.func  # around ours
        check_owner(inspect.getclosurevars(checked).nonlocals["func"], module)
    assert torch_ext.linear(x.to("meta"), w.to("meta")).shape == (4, 6)
    compiled = torch.compile(lambda: torch_ext.linear(x, w).relu(), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(), (x @ w.T).relu())

    with torch.autocast("cpu", torch.bfloat16):
        assert torch.ops.xgemm.linear(x, w).dtype is torch.bfloat16
    with pytest.raises(RuntimeError, match=r"^xgemm::linear: has no backward"):
        torch.ops.xgemm.linear(x, w.clone().requires_grad_())
    torch.testing.assert_close(torch.vmap(torch_ext.softmax, (0, None))(x, 0), x.softmax(1))

    from torch.utils.flop_counter import FlopCounterMode, flop_registry

    check_owner(flop_registry[torch.ops.xgemm.linear].__wrapped__, "torch_ext.flops")
    with FlopCounterMode(display=False) as counter:
        torch_ext.linear(x, w)
    assert counter.get_total_flops() == 2 * 4 * 6 * 8

    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        rules = torch._library.simple_registry.singleton.find("xgemm::linear").torch_dispatch_rules
        check_owner(rules.find(DTensor), "torch_ext.distributed")
        shards, whole = distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(w, mesh, [Replicate()])
        sharded = torch_ext.linear(shards, whole)
        assert sharded.placements == (Shard(0),)
        torch.testing.assert_close(sharded.to_local(), x @ w.T)
    finally:
        torch.distributed.destroy_process_group()

    ours = torch_ext.nn.Linear(6, 3, activation="relu")
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), ours, torch.nn.Softmax(1))
    with torch.inference_mode():
        expected = model(x)
        report = torch_ext.replace(model)
        torch.testing.assert_close(model(x), expected)
    assert report.calls == {("linear", "xgemm"): 1, ("softmax", "xgemm"): 1}


def check_transformers() -> None:
    """A layer's attention is served and counted once, and torch's is called for what xgemm leaves to it."""
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertModel(BertConfig(vocab_size=9, **sizes, attn_implementation="sdpa")).eval()
    tokens = torch.arange(8).view(2, 4)
    with torch.inference_mode():
        expected = model(tokens).last_hidden_state
        for exclude, where in ((), "xgemm"), ("attention", "torch: excluded"):
            report = torch_ext.replace(model, exclude=exclude)
            torch.testing.assert_close(model(tokens).last_hidden_state, expected, rtol=1e-4, atol=1e-5)
            assert {call: n for call, n in report.calls.items() if call[0] == "attention"} == {("attention", where): 1}
            report.undo()


if __name__ == "__main__":
    how, *rest = sys.argv[1:]
    if "used before" in rest:  # the lazy registrations have been made, transformers' table is ours
        import torch.distributed.tensor
        import torch.utils.flop_counter
        import transformers.modeling_utils  # noqa: F401

        torch_ext.replace(torch.nn.Linear(2, 2))
    for _ in range(2):
        import_again(how)
    assert (sys.modules["torch_ext"] is before["torch_ext"]) == (how == "reload")
    if how == "purge":
        finders = [finder for finder in sys.meta_path if type(finder).__name__ == "_After"]
        assert len(finders) == (0 if "used before" in rest else 2)
    check_all()
    if "used before" in rest:
        check_transformers()
