"""What a module offers is what its `__all__` says."""

import importlib
import types

import pytest

from ringline_testing.checkout import PORTIONS, module_names

MODULES = [name for portion in PORTIONS for name in module_names(portion)]


def public_names(module: types.ModuleType) -> set[str]:
    """Names of a package that a user would take for its interface: submodules are reached by import."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }


@pytest.mark.parametrize("name", MODULES)
def test_every_module_lists_names_that_exist(name: str) -> None:
    module = importlib.import_module(name)
    exported: list[str] = module.__all__
    assert len(exported) == len(set(exported))
    assert [entry for entry in exported if not hasattr(module, entry)] == []
    assert [entry for entry in exported if entry.startswith("_") and entry != "__version__"] == []


@pytest.mark.parametrize("portion", PORTIONS)
def test_a_package_re_exports_exactly_its_all(portion: str) -> None:
    package = importlib.import_module(f"ringline.{portion}")
    assert package.__all__, "the package offers nothing"
    # Names that are imported on first use are in __all__ and not yet in the module.
    assert public_names(package) <= set(package.__all__)
