"""Reads one release's sources by ``ast``: targets, their parameters, facts about their bodies."""

from __future__ import annotations

import ast
import gc
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sglang_eagle3_probe.host.seams import Seam

from .facts import Fact, Kind
from .wheels import member_names

Function = ast.FunctionDef | ast.AsyncFunctionDef

_PROPERTIES = ("property", "cached_property", "functools.cached_property")


@dataclass(frozen=True)
class Target:
    """What a dotted attribute of a module turned out to be.

    Args:
        owner: class whose body defines it, or "" for a function of the module.
        parameters: names in order, ``self`` or ``cls`` left out.
        is_property: a property in any of its spellings.
    """

    owner: str
    parameters: tuple[str, ...]
    is_property: bool


class Source:
    """The sources of one release, as cut out of its wheel."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[str, ast.Module | None] = {}
        self._texts: dict[tuple[str, str], str] = {}

    def module(self, name: str) -> ast.Module | None:
        """The parsed module, or ``None`` where the release has none of that name."""
        if name not in self._modules:
            self._modules[name] = self._parse(name)
        return self._modules[name]

    def target(self, module: str, attribute: str) -> Target | str:
        """Find ``function`` or ``Class.method``; a text says what is missing."""
        tree = self.module(module)
        if tree is None:
            return f"no module {module}"
        class_name, _, name = attribute.rpartition(".")
        if not class_name:
            function = _function(tree.body, name)
            return _target("", function) if function else f"no function {name} in {module}"
        if _class(tree.body, class_name) is None:
            return f"no class {class_name} in {module}"
        for cls in _ancestry(tree, class_name):
            if function := _function(cls.body, name):
                return _target(cls.name, function)
        return f"no method {attribute} in {module}"

    def holds(self, fact: Fact) -> bool:
        """Whether a fact is true in this release."""
        tree = self.module(fact.module)
        if tree is None:
            return False
        scope: ast.AST | None = tree
        if fact.scope:
            scope = _class(tree.body, fact.scope)
            class_name, _, name = fact.scope.rpartition(".")
            if scope is None:
                cls = _class(tree.body, class_name) if class_name else tree
                scope = _function(cls.body, name) if cls is not None else None
        if scope is None:
            return False
        if fact.kind == "text":
            return fact.needle in self._text(fact, scope)
        if fact.kind == "returns":
            return _returns(scope, fact.needle)
        return _mentions(scope, fact.kind, fact.needle)

    def _text(self, fact: Fact, scope: ast.AST) -> str:
        """A scope's code in ``ast``'s own layout: no comments, one kind of quotes."""
        key = (fact.module, fact.scope)
        if key not in self._texts:
            self._texts[key] = ast.unparse(scope)
        return self._texts[key]

    def _parse(self, name: str) -> ast.Module | None:
        for member in member_names(name):
            path = self._folder / member
            if path.is_file():
                return _tree(path)
        return None


@dataclass(frozen=True)
class Verdict:
    """What a seam's row is worth in one release.

    Args:
        target: the target as found, or ``None``.
        missing: parameters that the row names and the signature lacks.
        fault: why the row does not hold, "" when it does.
    """

    target: Target | None
    missing: tuple[str, ...]
    fault: str


def judge(source: Source, seam: Seam) -> Verdict:
    """Check one row against one release, whatever range the row claims."""
    found = source.target(seam.module, seam.attribute)
    if isinstance(found, str):
        return Verdict(None, (), found)
    missing = tuple(p for p in seam.parameters if p not in found.parameters)
    owner = seam.attribute.rpartition(".")[0]
    fault = ""
    if found.is_property:
        fault = f"{seam.attribute} is a property"
    elif found.owner != owner:
        fault = f"{seam.attribute} is inherited; the table must name {found.owner}"
    elif missing:
        fault = f"{seam.attribute} has no {', '.join(missing)}; it takes {found.parameters}"
    return Verdict(found, missing, fault)


def modules_of(seams: Iterable[Seam], facts: Iterable[Fact]) -> set[str]:
    """Every module that the checks read."""
    return {row.module for row in seams} | {fact.module for fact in facts}


def _tree(path: Path) -> ast.Module:
    collecting = gc.isenabled()
    gc.disable()  # millions of small nodes, none of them garbage: collecting takes 4 times longer
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    finally:
        if collecting:
            gc.enable()


def _target(owner: str, function: Function) -> Target:
    arguments = function.args
    parameters = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    decorators = [ast.unparse(d) for d in function.decorator_list]
    if owner and "staticmethod" not in decorators:
        parameters = parameters[1:]
    is_property = any(
        d in _PROPERTIES or d.endswith((".setter", ".getter", ".deleter")) for d in decorators
    )
    return Target(owner, tuple(parameters), is_property)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """A body's statements, those under ``if``, ``try`` and ``with`` included."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            yield from _statements(statement.body)
            if not isinstance(statement, ast.With):
                yield from _statements(statement.orelse)
            if isinstance(statement, ast.Try):
                for handler in statement.handlers:
                    yield from _statements(handler.body)


def _class(body: Iterable[ast.stmt], name: str) -> ast.ClassDef | None:
    found = [s for s in _statements(body) if isinstance(s, ast.ClassDef) and s.name == name]
    return found[-1] if found else None


def _function(body: Iterable[ast.stmt], name: str) -> Function | None:
    found = [s for s in _statements(body) if isinstance(s, Function) and s.name == name]
    return found[-1] if found else None


def _ancestry(tree: ast.Module, name: str) -> Iterator[ast.ClassDef]:
    """A class and its bases within the module, nearest first."""
    cls = _class(tree.body, name)
    if cls is None:
        return
    yield cls
    for base in cls.bases:
        if isinstance(base, ast.Name) and base.id != name:
            yield from _ancestry(tree, base.id)


def _nodes(scope: ast.AST, kind: Kind) -> Iterator[ast.expr]:
    """The expressions that a kind of fact is about."""
    for node in ast.walk(scope):
        if kind == "calls" and isinstance(node, ast.Call):
            yield node.func
        elif kind == "reads" and isinstance(node, ast.Attribute):
            yield node
        elif kind in ("assigns", "attribute") and isinstance(node, ast.Assign):
            yield from node.targets
        elif kind in ("assigns", "attribute") and isinstance(node, ast.AnnAssign):
            yield node.target


def _mentions(scope: ast.AST, kind: Kind, needle: str) -> bool:
    """Whether the needle is among a scope's expressions of that kind."""
    wanted = (needle, f"self.{needle}") if kind == "attribute" else (needle,)
    last = needle.rpartition(".")[2]
    if kind == "attribute" and isinstance(scope, ast.ClassDef) and _function(scope.body, needle):
        return True
    # Turning nodes into text is what costs: only those that end alike are.
    return any(_last_name(n) == last and ast.unparse(n) in wanted for n in _nodes(scope, kind))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _returns(scope: ast.AST, start: str) -> bool:
    """Whether every ``return`` of a tuple starts with these items, and there is one."""
    count = start.count(",") + 1
    starts = {
        ", ".join(ast.unparse(item) for item in node.value.elts[:count])
        for node in ast.walk(scope)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple)
    }
    return starts == {start}
