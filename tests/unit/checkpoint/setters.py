"""Runs ``set_eagle3_layers_to_capture`` out of a model file's text, without importing SGLang."""

from __future__ import annotations

import ast
import builtins
from types import SimpleNamespace
from typing import Any

SETTER = "set_eagle3_layers_to_capture"


def setters(text: str) -> dict[str, ast.FunctionDef]:
    """Class name -> its own setter."""
    found: dict[str, ast.FunctionDef] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and part.name == SETTER:
                    found[node.name] = part
    return found


class Anything(SimpleNamespace):
    """An object whose missing attributes are made when they are asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = Anything()
        setattr(self, name, made)
        return made

    def __call__(self, *_: Any, **__: Any) -> Anything:
        return Anything()


class HandsOn(Exception):
    """The setter asks its language model's setter, with the list as it came."""


class Layers(list[Anything]):
    """A model's layers; any index beyond them fails as a ModuleList does."""


def run_setter(
    function: ast.FunctionDef, ids: list[int] | None, num_layers: int
) -> list[int] | str:
    """``layers_to_capture`` afterwards, or the name of what it raised.

    A setter that only hands on to another model leaves nothing: ``delegates``.
    """
    bare = ast.FunctionDef(
        name="setter",
        args=function.args,
        body=function.body,
        decorator_list=[],
        returns=None,
        type_comment=None,
        type_params=[],
    )
    for argument in (*bare.args.args, *bare.args.kwonlyargs):
        argument.annotation = None
    module = ast.fix_missing_locations(ast.Module(body=[bare], type_ignores=[]))
    names = {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}
    space: dict[str, Any] = {name: Anything() for name in names if not hasattr(builtins, name)}
    exec(compile(module, "setter", "exec"), space)
    layers = Layers(Anything() for _ in range(num_layers))
    config = Anything(num_hidden_layers=num_layers, num_layers=num_layers)
    config.text_config = config
    model = Anything(layers=layers, config=config)
    whole = Anything(model=model, config=config, pp_group=Anything(is_last_rank=True))
    language = Anything(model=model, config=config, layers=layers)
    whole.language_model = language

    def inner(given: list[int]) -> None:
        model.layers_to_capture = list(given)

    def hands_on(*_: Any) -> None:
        raise HandsOn

    setattr(model, SETTER, inner)
    setattr(language, SETTER, hands_on)
    try:
        space["setter"](whole, ids)
    except HandsOn:
        return "delegates"
    except (IndexError, ValueError, AttributeError, NameError, TypeError) as error:
        return type(error).__name__
    for holder in (model, language, whole):
        found = holder.__dict__.get("layers_to_capture")
        if isinstance(found, list):
            return found
    return "delegates"
