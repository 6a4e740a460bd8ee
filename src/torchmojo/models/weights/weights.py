"""The tensors of a file by name: what is given out, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from torchmojo.bridge.share.handle import Handle
from torchmojo.bridge.share.lender import share
from torchmojo.errors import ArgumentError, HandleError, WeightsError
from torchmojo.models.text import plain
from torchmojo.models.weights import memory
from torchmojo.models.weights.bind import Agreed, Bound, bind
from torchmojo.models.weights.mapping import FileMapping
from torchmojo.models.weights.match import agreement
from torchmojo.models.weights.record import Entry

__all__ = ["PAGE", "WeightInfo", "Weights"]

PAGE = 4096


class WeightInfo(NamedTuple):
    """What a file says of one tensor.

    Attributes:
        name: Its name.
        dtype: Name of its dtype.
        shape: Its sizes.
        strides: Its strides in elements.
        offset: Elements before its first one in its storage.
        nbytes: Bytes of all its elements.
        alignment: The greatest power of two that its storage's place in the file is a multiple of.
        copied: Whether using it copies it, as it does not lie well.
        shares: The first name that has the same storage; None for that one itself.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    nbytes: int
    alignment: int
    copied: bool
    shares: str | None


class Weights(Mapping[str, Handle]):
    """Tensors of a file by name, as read-only handles: what ``torchmojo.open_weights`` returns.

    A handle is made when its name is first looked up, and released by ``close``. Views of the file
    keep it mapped by themselves: tensors from ``tensor`` and models that were bound stay valid.

    Attributes:
        path: The file.
        format: ``torch``, ``torch legacy``, ``torchscript`` or ``safetensors``.
        sha256: The digest that was checked; None where none was asked for.
        metadata: The texts that a safetensors file holds beside its tensors.

    Example:
        >>> import torch, torchmojo
        >>> torch.save({"w": torch.ones(2, 3)}, "ones.pt")
        >>> with torchmojo.open_weights("ones.pt") as weights:
        ...     print(dict(weights.signature), weights["w"].state)
        {'w': ('float32', (2, 3))} borrowed_immutable
    """

    def __init__(
        self,
        mapping: FileMapping,
        entries: dict[str, Entry],
        form: str,
        align: int,
        sha256: str | None,
        metadata: dict[str, str],
        agreed: Agreed | None = None,
    ) -> None:
        """Takes over a mapping whose tensors were checked; ``open_weights`` makes one."""
        self.path: Path = mapping.path
        self.format = form
        self.sha256 = sha256
        self.metadata = metadata
        self._mapping: FileMapping | None = mapping
        self._entries = entries
        self._align = align
        self._handles: dict[str, Handle] = {}
        self._agreed = agreed
        self._lock = threading.RLock()  # of the descriptor, the handles and the storages
        self._copies = [1, mapping.size] if mapping.copied else [0, 0]

    # -- the mapping -----------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Handle:
        """Returns the handle of a tensor; the same one each time."""
        with self._lock:
            found = self._handles.get(name)
            if found is None or found.released:
                found = self._handles[name] = share(self.tensor(name), mode="borrowed_immutable")
            else:
                self._open(name)
            return found

    def __iter__(self) -> Iterator[str]:
        """Yields the names, in the order of the file."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Returns the number of tensors."""
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        """Returns whether there is a tensor of that name; makes no handle."""
        return name in self._entries

    def __repr__(self) -> str:
        """Shows file, format, and how much there is."""
        state = "closed, " if self.closed else ""
        return f"<weights {state}{plain(self.path.name)}, {self.format}, {len(self)} tensors>"

    # -- what it holds ---------------------------------------------------------------------------

    @property
    def signature(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Dtype and shape of each name: what ``open_weights`` takes as ``signature``."""
        return {name: (e.dtype.name, e.shape) for name, e in self._entries.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors; what several share is counted once."""
        return sum({id(e.storage): e.storage.nbytes for e in self._entries.values()}.values())

    @property
    def copies(self) -> int:
        """How many copies were made: of the file (``copy=True``), or of what does not lie well."""
        return self._copies[0]

    @property
    def copied_bytes(self) -> int:
        """Bytes of all copies."""
        return self._copies[1]

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._mapping is None

    def info(self) -> list[WeightInfo]:
        """Lists what the file says of its tensors; touches none of them."""
        first: dict[int, str] = {}
        rows = []
        for name, e in self._entries.items():
            size = e.dtype.width
            for n in e.shape:
                size *= n
            start = e.storage.start
            shares = first.setdefault(id(e.storage), name)
            rows.append(
                WeightInfo(
                    name, e.dtype.name, e.shape, e.strides, e.offset, size,
                    min(start & -start, PAGE), not memory.aligned(e.storage, self._align),
                    None if shares == name else shares,
                )
            )  # fmt: skip
        return rows

    # -- use -------------------------------------------------------------------------------------

    def tensor(self, name: str) -> Any:
        """Returns a torch tensor over the mapped bytes; nothing is copied where they lie well.

        It is for reading. A write is seen by all who look at the same bytes in this process,
        models that were bound among them; it never reaches the file.

        Args:
            name: The tensor's name.

        Raises:
            KeyError: There is none of that name.
            HandleError: The weights were closed.
            WeightsError: The file is no longer what was opened.
            CopyError: It would be copied, inside ``no_copies``.
            LayoutError: It would be copied, and the policy is to refuse.
        """
        with self._lock:
            self._open(name)
            return self._view(name)

    def bind(
        self, model: Any, *, strict: bool = True, signature: Mapping[str, Any] | None = None
    ) -> Bound:
        """Puts the weights under a model, with no copy.

        Parameters of a module get views of the file as their memory, buffers are replaced by such
        views. Parameters on the CPU stay the objects that they are, so that an optimizer made
        before goes on with them; those on another device, meta among them, or of a class of their
        own are replaced: make the optimizer after ``bind``. They keep ``requires_grad``; those that
        were one tensor stay one, and the file may hold such a tensor under one of its names.
        Training a bound module is safe: a write makes private memory of the page, and the file
        stays as it is.

        Names are compared before hooks of the module run. Extra state is handed to the module where
        it is a tensor; other extra state is not read, and is missing.

        A compiled model reads as many bytes as it was compiled for, from wherever it is told; it
        tells its names alone. Its weights are therefore compared with ``signature``: dtype, shape
        and strides. A signature that is not that of the model makes it read outside the weights.

        Args:
            model: A ``torch.nn.Module``; or a model compiled by AOTInductor for the CPU, as its C++
                loader (``AOTIModelPackageLoader``) or what ``aoti_load_package`` returns, which
                uses the mapped memory until it is freed.
            strict: Whether missing and unexpected names are errors. Shapes and dtypes always are.
                A compiled model may have folded weights into its code: of names that it does not
                have, none is an error, but a missing one always is.
            signature: What a compiled model was compiled for, a ``state_dict()`` of the module, or
                a mapping to ``(dtype, shape)``, which means row by row; None for that of
                ``open_weights``. A module tells it by itself, and takes none.

        Returns:
            The names that were left out.

        Raises:
            WeightsError: Names, shapes, dtypes or strides do not fit, all listed in one table; or
                the file is no longer what was opened. The model is as it was, unless the text says
                that its own hooks left something out.
            ArgumentError: It is no such model, or a compiled one without a signature.
            HandleError: The weights were closed.

        Example:
            >>> import torch, torchmojo
            >>> torch.save(torch.nn.Linear(3, 2).state_dict(), "linear.pt")
            >>> with torch.device("meta"):
            ...     linear = torch.nn.Linear(3, 2)
            >>> with torchmojo.open_weights("linear.pt") as weights:
            ...     weights.bind(linear)
            Bound(missing=[], unexpected=[])
            >>> linear(torch.zeros(1, 3)).shape
            torch.Size([1, 2])
        """
        self._open("bind")
        agreed = agreement("bind", signature) if signature is not None else self._agreed
        if signature is not None and hasattr(model, "named_modules"):
            raise ArgumentError(
                "bind: signature: wanted none for a module, which tells its own, given one; give "
                "it to open_weights"
            )
        return bind(self, model, strict, agreed)

    def close(self) -> None:
        """Releases the handles and closes the file; views of it stay valid. May be repeated."""
        with self._lock:
            mapping, self._mapping = self._mapping, None
            if mapping is None:
                return
            mapping.close()
            for e in self._entries.values():
                e.storage.memory = None
            while self._handles:
                _, handle = self._handles.popitem()
                if not handle.released:
                    handle.release()

    def __enter__(self) -> Weights:
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes."""
        self.close()

    def _open(self, what: str) -> None:
        """Refuses where the weights were closed, or the file is no longer what was opened."""
        with self._lock:  # or the number of a closed descriptor could be another file's
            if self._mapping is None:
                raise HandleError(f"{what}: wanted open weights, given {self!r}")
            changed = self._mapping.changed()
        if changed:
            raise WeightsError(
                f"{what}: {plain(self.path.name)}: wanted the file that was opened, given "
                f"{changed}; open it again, with copy=True where files change, and replace files "
                "by renaming"
            )

    def _view(self, name: str) -> Any:
        """Makes a tensor, without looking at the file."""
        entry = self._entries[name]
        with self._lock:  # or two threads would copy it
            held = entry.storage.memory
            if held is None:
                held = self._make(entry)
        return memory.view_of(entry, held)

    def _make(self, entry: Entry) -> Any:
        mapping, storage = self._mapping, entry.storage
        if mapping is None:
            raise HandleError(f"{storage.key}: wanted open weights, given {self!r}")
        storage.memory = memory.storage_of(mapping, storage, self._align)
        if not memory.aligned(storage, self._align):
            self._copies[0] += 1
            self._copies[1] += storage.nbytes
        return storage.memory
