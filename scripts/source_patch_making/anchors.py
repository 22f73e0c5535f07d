"""Places in SGLang's sources, found by what a statement does: none of its text is kept here."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Statement = Callable[[ast.stmt], bool]


class AnchorError(ValueError):
    """A place was not found, or more than one."""


@dataclass(frozen=True)
class Anchor:
    """Where lines are inserted.

    Args:
        scope: ``Class`` or ``Class.method``.
        where: beside the statement, or at the end of the scope's body (then without one).
        statement: what tells the statement; exactly one of the scope must fit.
    """

    scope: str
    where: Literal["after", "before", "end"]
    statement: Statement | None = None

    def find(self, tree: ast.Module, lines: Sequence[str]) -> tuple[int, int]:
        """How many lines stand before the place, and the indentation there.

        Args:
            tree: the parsed source.
            lines: the same as text.

        Raises:
            AnchorError: the scope or the statement is not there, or not once.
        """
        body = _body(tree, self.scope)
        if self.where == "end":
            return _end(body[-1]), body[0].col_offset
        statement = self.statement
        assert statement is not None
        found = [node for node in _statements(body) if statement(node)]
        if len(found) != 1:
            raise AnchorError(f"{len(found)} statements fit in {self.scope}, expected one")
        if self.where == "after":
            return _end(found[0]), found[0].col_offset
        before = found[0].lineno - 1
        while lines[before - 1].lstrip().startswith("#"):  # a comment stays with its statement
            before -= 1
        return before, found[0].col_offset


def names_empty_list(name: str) -> Statement:
    """``name = []``."""

    def fits(node: ast.stmt) -> bool:
        return (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == name
            and isinstance(node.value, ast.List)
            and not node.value.elts
        )

    return fits


def unpacks_into(name: str) -> Statement:
    """``..., name = ...``."""

    def fits(node: ast.stmt) -> bool:
        return (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and any(isinstance(e, ast.Name) and e.id == name for e in node.targets[0].elts)
        )

    return fits


def sets_attribute(name: str) -> Statement:
    """``... .name = ...``."""

    def fits(node: ast.stmt) -> bool:
        return (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Attribute)
            and node.targets[0].attr == name
        )

    return fits


def calls_method(name: str) -> Statement:
    """``... .name(...)`` as a statement of its own."""

    def fits(node: ast.stmt) -> bool:
        return (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and node.value.func.attr == name
        )

    return fits


def defines(name: str) -> Statement:
    """``def name``."""

    def fits(node: ast.stmt) -> bool:
        return isinstance(node, ast.FunctionDef) and node.name == name and not node.decorator_list

    return fits


def _body(tree: ast.Module, scope: str) -> list[ast.stmt]:
    body = tree.body
    for name in scope.split("."):
        inner = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name
        ]
        if len(inner) != 1:
            raise AnchorError(f"{len(inner)} definitions of {scope}, expected one")
        body = inner[0].body
    return body


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a body and of the blocks in it, but not of definitions in it."""
    for node in body:
        yield node
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for block in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, block, []))


def _end(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno
