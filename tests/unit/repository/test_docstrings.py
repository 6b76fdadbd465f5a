"""Every public module, class, function and method says what it is."""

import ast

import pytest

from ringline_testing.checkout import PORTIONS, module_file, module_names

MODULES = [name for portion in PORTIONS for name in module_names(portion)]

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _is_exempt(node: Definition) -> bool:
    """An overload, an override and the setter of a property are described where they belong to."""
    words = {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}
    return bool(words & {"overload", "override", "setter", "deleter"})


def undocumented(source: str) -> list[str]:
    """Return the public definitions of a module that have no docstring, the module itself as ``module``."""
    tree = ast.parse(source)
    found: list[str] = [] if ast.get_docstring(tree) else ["module"]

    def visit(nodes: list[ast.stmt], owner: str) -> None:
        for node in nodes:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("_") or _is_exempt(node):
                continue
            if not ast.get_docstring(node):
                found.append(f"{owner}{node.name}")
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{owner}{node.name}.")

    visit(tree.body, "")
    return found


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_has_a_docstring(name: str) -> None:
    file = module_file(name)
    assert file is not None
    assert undocumented(file.read_text(encoding="utf-8")) == []


def test_the_search_finds_each_kind() -> None:
    source = "class A:\n def b(self): ...\n def _c(self): ...\nasync def d(): ...\ndef _e(): ...\n"
    assert undocumented(source) == ["module", "A", "A.b", "d"]
