"""What this package registers with torch, so that it can be registered again.

torch's dispatcher belongs to the process and outlives a module that is imported twice: reloaders of notebooks and
servers delete ``torch_ext*`` from ``sys.modules``, or call ``importlib.reload``. The second import removes the
registrations of the first and makes its own, so that an edited rule takes effect.
"""

import contextlib
import warnings
from collections.abc import Iterator

import torch


def remove(library: torch.library.Library) -> None:
    """Ends its registrations."""
    library._destroy()
    library._op_impls.clear()  # its finalizer would strike these names off another library's


@contextlib.contextmanager
def overriding() -> Iterator[None]:
    """Torch warns of the first kernel that is registered over another one; not in here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel")
        yield


def library(module: str, namespace: str = "xgemm") -> torch.library.Library:
    """A library for the registrations of `module`, without those that an earlier import of it made."""
    known: dict[str, torch.library.Library] = vars(torch.ops.xgemm).setdefault("_libraries_of_modules", {})
    if (earlier := known.get(module)) is not None:
        remove(earlier)
    known[module] = torch.library.Library(namespace, "IMPL")  # kept: registrations live as long as their library
    return known[module]
