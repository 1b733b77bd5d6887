"""Registrations with parts of torch that are slow to import: made when, and if, the program imports that part."""

import importlib
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def after_import(module: str, then: str) -> None:
    """Imports the module `then` right after `module` has been; now, if that is the case already."""
    if module in sys.modules:
        importlib.import_module(then)
    else:
        # A finder of an earlier import of this package does the same.
        if not any(getattr(finder, "then", None) == then for finder in sys.meta_path):
            sys.meta_path.insert(0, _After(module, then))


class _After(MetaPathFinder):
    def __init__(self, module: str, then: str) -> None:
        self.module, self.then = module, then

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The others' spec, whose module imports `then`. A program that only asks for a spec may import later."""
        if name != self.module:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next((spec for finder in others if (spec := finder.find_spec(name, path, target))), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            importlib.import_module(self.then)

        spec.loader.exec_module = exec_module
        return spec
