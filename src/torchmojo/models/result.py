"""Turns the list of tensors that a library returns into what ``forward`` returned."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchmojo.errors import ModelError

__all__ = ["Owning", "packer"]


_Run = Callable[[Any], list[Any]]


class Owning:
    """Runs a library, and copies the outputs that lie in an input's memory.

    An output that is an input, or a view of one, is no tensor of its own. Which outputs are that is
    fixed when the model is compiled: the first call tells.

    Attributes:
        run: What calls shall use: takes a sequence of inputs, returns a list of outputs.
    """

    def __init__(self, inner: _Run) -> None:
        """Starts with one way to run the library; see `replace`.

        Args:
            inner: Takes a sequence of inputs, returns a list of outputs.
        """
        self._lock = threading.Lock()
        self._places: tuple[int, ...] | None = None
        self._inner = inner
        self.run: _Run = self._first

    def replace(self, inner: _Run) -> None:
        """Takes another way to run the same library.

        Args:
            inner: As at the start.
        """
        with self._lock:
            self._inner = inner
            self._update()

    def _update(self) -> None:
        places, inner = self._places, self._inner
        if places is None:
            return

        def copied(inputs: Any) -> list[Any]:
            return _copied(inner(inputs), places)

        self.run = copied if places else inner

    def _first(self, inputs: Any) -> list[Any]:
        outputs = self._inner(inputs)
        lent = {value.untyped_storage().data_ptr() for value in inputs} - {0}
        places = tuple(
            index
            for index, value in enumerate(outputs)
            if value.untyped_storage().data_ptr() in lent
        )
        with self._lock:
            self._places = places
            self._update()
        return _copied(outputs, places)


def _copied(outputs: list[Any], places: tuple[int, ...]) -> list[Any]:
    for index in places:
        outputs[index] = outputs[index].clone()
    return outputs


def packer(result: str, outputs: int, folder: Path) -> Callable[[list[Any]], Any]:
    """Returns what packs a list of tensors.

    Args:
        result: torch's tree of the outputs, as its JSON text.
        outputs: How many tensors a call returns.
        folder: The model, for the message.

    Raises:
        ModelError: The text is no such tree, or one of another number of tensors.
    """
    try:
        tree = json.loads(result)[1]
        if _count(tree) == outputs:
            return _packer(tree, result)
        why = f"a tree of {_count(tree)} tensors"
    # Whatever its text leads to in torch's reader of trees.
    except Exception as error:
        why = type(error).__name__
    raise ModelError(
        f"Model: {folder}: wanted the tree of {outputs} outputs as result, given {why}; prepare "
        "the model again"
    )


def _count(tree: Any) -> int:
    if tree["type"] is None:
        return 1
    return sum(_count(child) for child in tree["children_spec"])


def _packer(tree: Any, result: str) -> Callable[[list[Any]], Any]:
    if tree["type"] is None:
        return _only
    leaves = all(child["type"] is None for child in tree["children_spec"])
    if leaves and tree["type"] == "builtins.tuple":
        return tuple
    if leaves and tree["type"] == "builtins.list":
        return list
    if leaves and tree["type"] == "builtins.dict":
        keys = json.loads(tree["context"])
        if len(keys) != len(tree["children_spec"]):
            raise ValueError("a dictionary with other keys")
        return lambda tensors: dict(zip(keys, tensors, strict=True))
    from torch.utils._pytree import tree_unflatten, treespec_loads

    spec = treespec_loads(result)
    return lambda tensors: tree_unflatten(tensors, spec)


def _only(tensors: list[Any]) -> Any:
    return tensors[0]
