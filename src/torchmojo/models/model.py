"""Runs a prepared model from Python, with neither torch's compiler nor its imports."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torchmojo.bridge.memory import bytes_of
from torchmojo.errors import ArgumentError, ModelError
from torchmojo.models.fit import Input, fit, quick_check
from torchmojo.models.mapped import map_file, tensors_in
from torchmojo.models.prepared import manifest as names
from torchmojo.models.prepared.flat import tensor_lines
from torchmojo.models.result import Owning, packer
from torchmojo.models.said import said
from torchmojo.models.sealed import sealed
from torchmojo.models.unlocked import Unlocked, choose

__all__ = ["Model"]

_MOST_INSTANCES = 1024  # each holds memory of its own


class Model:
    """A prepared model: checked, its weights mapped and bound without a copy, ready to be called.

    Calls may come from several threads; each is computed by torch's threads, and calls that take
    longer than 50 µs do so without Python's lock, from the fourth on. No gradient is
    computed. The weights stay in the file's pages, which all processes share that run the model.

    Attributes:
        folder: Where it lies.
        manifest: What ``torchmojo.prepare`` wrote of it; see ``manifest.schema.json``.
        weights: The tensors that the library uses, by the module's names. A change in place shows
            in the next call, and reaches neither the file nor another process.

    Example:
        >>> import torch, torchmojo
        >>> model = torchmojo.Model("mobilenet")  # doctest: +SKIP
        >>> model(torch.zeros(1, 3, 224, 224)).shape  # doctest: +SKIP
        torch.Size([1, 1000])
    """

    def __init__(
        self,
        folder: str | Path,
        verify: bool = True,
        sha256: str | None = None,
        instances: int = 1,
    ) -> None:
        """Opens a folder that `torchmojo.prepare` wrote; runs its code.

        Args:
            folder: The model. Its library is code: open only what you would run.
            verify: Compare the sha256 of every file that is used, over the very bytes that are
                used. It takes 0.7 seconds a gigabyte; sizes and the manifest are checked anyway.
                It notices damage: who can write the folder can write the manifest, too.
            sha256: Digest of the manifest, from elsewhere: with `verify` it pins every byte.
            instances: Calls that can run at the same time; others wait their turn.

        Raises:
            ArgumentError: `instances` is no number from 1 to 1024, or `sha256` no digest.
            ModelError: A file is missing, no regular file, was changed or cut off, or was made for
                another CPU, system or torch; the process lacks an operator that the model calls, or
                the system refuses a descriptor or memory.
        """
        from torch._C._aoti import AOTIModelContainerRunnerCpu

        if type(instances) is not int or not 1 <= instances <= _MOST_INSTANCES:
            raise ArgumentError(
                f"Model: instances: wanted 1 or more, up to {_MOST_INSTANCES}, given {instances!r}"
            )
        self.folder = Path(folder)
        self.manifest: Mapping[str, Any] = MappingProxyType(
            names.read_manifest(self.folder, sha256)
        )
        code = self._bytes(names.LIBRARY, verify)
        calls = self._bytes(names.CALLS, verify) if self.manifest["calls"] else None
        length = self.manifest["files"][names.WEIGHTS]["nbytes"]
        mapping = map_file(self.folder, names.WEIGHTS, length)
        self.weights: Mapping[str, Any] = MappingProxyType(
            tensors_in(mapping, self.manifest["weights"], str(self.folder))
        )
        self._compare_with_index()
        self._inputs = tuple(Input(**entry) for entry in self.manifest["inputs"])
        self._count = len(self._inputs)
        self._are_right = quick_check(self._inputs)
        self._pack = packer(self.manifest["result"], len(self.manifest["outputs"]), self.folder)
        _find_operators(self.manifest["calls"])
        try:
            # The weights are hashed, mostly without Python's lock, while the code is loaded.
            with ThreadPoolExecutor(1) as beside, sealed(code, calls) as path:
                checked = beside.submit(self._check, names.WEIGHTS, bytes_of(mapping), verify)
                self._runner = AOTIModelContainerRunnerCpu(path, instances)
                library = ctypes.CDLL(path)  # the same: it is loaded already
                self._check_counts(library)
                checked.result()
            entries = self.manifest["weights"]
            constants = {entries[name]["constant"]: t for name, t in self.weights.items()}
            self._runner.update_constant_buffer(constants, False, True, True)
        except ModelError:
            raise
        except RuntimeError as error:
            raise ModelError(
                f"Model: {self.folder}: torch cannot load it: {said(error)}"
            ) from error
        except OSError as error:  # no descriptor or room left
            raise ModelError(f"Model: {self.folder}: it cannot be loaded: {error}") from error
        run: Any = self._runner.run
        if calls is None:  # else torch's loader alone can run it
            outputs = len(self.manifest["outputs"])
            run = choose(
                run,
                lambda: Unlocked(library, constants, instances, outputs),
                lambda settled: self._owning.replace(settled),
                any(spec.fixed is None for spec in self._inputs),
            )
        self._owning = Owning(run)

    def _bytes(self, name: str, verify: bool) -> bytes:
        data = names.read_file(self.folder, name, self.manifest["files"][name]["nbytes"])
        self._check(name, data, verify)
        return data

    def _compare_with_index(self) -> None:
        """Compares the manifest with the index: sizes are not written in the library."""
        text = names.read_file(self.folder, names.FLAT).decode(errors="replace")
        kinds = ("constant ", "input ", "output ")
        lines = [line for line in text.split("\n") if line.startswith(kinds)]
        for wanted, given in zip_longest(lines, tensor_lines(self.manifest)):
            if wanted != given:
                raise ModelError(
                    f"Model: {self.folder}: wanted {names.MANIFEST} and {names.FLAT} to say the "
                    f"same, given {given!r} and {wanted!r}; prepare the model again"
                )

    def _check_counts(self, library: ctypes.CDLL) -> None:
        """Compares inputs and outputs with what the library has; it ends a process over others."""
        handle, count = ctypes.c_void_p(), ctypes.c_size_t()
        library.AOTInductorModelContainerCreateWithDevice(
            ctypes.byref(handle), ctypes.c_size_t(1), b"cpu", None
        )
        wanted = {}
        for kind in ("Inputs", "Outputs"):
            getattr(library, f"AOTInductorModelContainerGetNum{kind}")(handle, ctypes.byref(count))
            wanted[kind.lower()] = count.value
        library.AOTInductorModelContainerDelete(handle)
        for kind, number in wanted.items():
            if (given := len(self.manifest[kind])) != number:
                raise ModelError(
                    f"Model: {self.folder}: wanted a manifest of {number} {kind}, given one of "
                    f"{given}; prepare the model again"
                )

    def _check(self, name: str, data: Any, verify: bool) -> None:
        """Compares bytes with the digest in the manifest."""
        if verify:
            wanted = self.manifest["files"][name]["sha256"]
            names.check_digest(self.folder, name, data, wanted)

    def __call__(self, *inputs: Any) -> Any:
        """Runs the model.

        Args:
            inputs: A CPU tensor for each input, with its dtype and sizes. One whose strides differ
                from the example's is copied first, as `torchmojo.fallback` says.

        Returns:
            What the module's ``forward`` returns, without gradient. No tensor of it lies in an
            input's memory or a weight's; two of them may share some, as those of ``forward`` do.

        Raises:
            ArgumentError: Too few or too many inputs, or one that is no tensor.
            CopyError: Inside `no_copies`, for strides that differ.
            DTypeError: The dtype differs.
            DeviceError: It is not on the CPU.
            GradError: It requires grad, outside ``no_grad``.
            LayoutError: Under the policy ``"error"``, for strides that differ.
            ModelError: torch raises while it runs.
            NoDataError: It has no memory: a fake or meta tensor.
            ShapeError: Rank or a size differs, or two sizes of one name.
        """
        if len(inputs) != self._count or not self._are_right(*inputs):
            inputs = fit(self._inputs, inputs)
        try:
            return self._pack(self._owning.run(inputs))
        except RuntimeError as error:
            raise ModelError(f"Model: {self.folder}: torch raises: {said(error)}") from error

    def __repr__(self) -> str:
        return f"torchmojo.Model({str(self.folder)!r})"


def _find_operators(calls: list[str]) -> None:
    """Refuses a model whose operators this process does not have."""
    import torch

    for name in calls:
        namespace, _, rest = name.removeprefix("torch.ops.").replace("::", ".").partition(".")
        operator = rest.partition(".")[0]
        if not hasattr(getattr(torch.ops, namespace), operator):
            raise ModelError(
                f"Model: wanted the operator {namespace}::{operator}, which the model calls, given "
                "a process without it; import what defines it first"
            )
