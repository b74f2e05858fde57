"""Python code as a text that knows nothing of comments, layout and annotations.

Not `ast.dump` or `ast.unparse`: what they write differs between versions of Python.
"""

from __future__ import annotations

import ast
from typing import TypeVar

_Node = TypeVar("_Node", bound=ast.AST)

# What the parser adds, or what is said for readers and type checkers.
_LEFT_OUT = frozenset({"ctx", "kind", "type_comment", "type_params", "type_ignores"})


def without_layout(tree: _Node) -> _Node:
    """The tree without docstrings and annotations; it is changed in place."""
    changed = _Plain().visit(tree)
    assert type(changed) is type(tree)
    return ast.fix_missing_locations(changed)


def written(node: object) -> str:
    """A node of a tree as text; what is empty everywhere is left out."""
    match node:
        case ast.AST():
            fields = (
                f"{name}={written(value)}"
                for name, value in ast.iter_fields(node)
                if name not in _LEFT_OUT and value is not None and value != []
            )
            return f"{type(node).__name__}({', '.join(fields)})"
        case list():
            return f"[{', '.join(map(written, node))}]"
    return repr(node)


class _Plain(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        # A docstring, or a text or dots where a statement has to be.
        if isinstance(node.value, ast.Constant):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        self.generic_visit(node)
        node.body = [each for each in node.body if not isinstance(each, ast.Pass)]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._with_body(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self._with_body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._with_body(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            # A field of a dataclass, or a word to a type checker.
            return self.generic_visit(node)
        self.visit(node.value)
        plain = ast.Assign([node.target], node.value)
        return ast.copy_location(plain, node)

    def _with_body(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> ast.AST:
        self.generic_visit(node)
        kept = [each for each in node.body if not isinstance(each, ast.Pass)]
        node.body = kept or [ast.copy_location(ast.Pass(), node)]
        return node
