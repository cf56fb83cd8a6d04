"""Old names of modules, to which pickled optimizers refer. They lead to the classes' new modules."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_BANDIT = "orchestrator.bandit"
_PACKAGE = f"{_BANDIT}.regions"  # it had modules, and is gone
_TO_PAPERS = (
    "exact.compressed",
    "regions.boxes",
    "regions.shrinking",
    "strategies.adaptive_discretization",
    "strategies.compressed_ei",
    "strategies.compressed_mpi",
    "strategies.compressed_ucb",
    "strategies.epsilon_greedy",
    "strategies.gp_threds",
    "strategies.igp_ucb",
    "strategies.regularized_evolution",
)
_TO_INTEROP = ("strategies.optuna_coding", "strategies.optuna_sampler")
_MOVED = {_PACKAGE: f"{_BANDIT}.papers"} | {
    f"{_BANDIT}.{old}": f"{room}.{old.partition('.')[2]}"
    for room, modules in ((f"{_BANDIT}.papers", _TO_PAPERS), ("orchestrator.interop", _TO_INTEROP))
    for old in modules
}


class _OldNames(MetaPathFinder, Loader):
    """Finds a module by its old name: a second module with the names of the new one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for an old name; None for any other module."""
        if fullname not in _MOVED:
            return None
        return ModuleSpec(fullname, self, is_package=fullname == _PACKAGE)

    def exec_module(self, module: ModuleType) -> None:
        """Copy the names of the new module."""
        new = vars(import_module(_MOVED[module.__name__]))
        vars(module).update({name: value for name, value in new.items() if not name.startswith("__")})


def find_old_names() -> None:
    """Make the old names importable. Modules that exist are found first."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.append(_OldNames())
