"""An operator of torch's, made of a kernel."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from torchmojo.bridge.kernel import Kernel
from torchmojo.bridge.refuse.facts import has_tangent, show
from torchmojo.errors import ArgumentError, LibraryError, SignatureError
from torchmojo.ops.autograd import make_function, refuse_in_place, tensors_in
from torchmojo.ops.batch import loop
from torchmojo.ops.declaration import parameters_of, split_name, tags_of
from torchmojo.ops.glue import Glue, glue_of, take_error
from torchmojo.ops.library import Registration
from torchmojo.ops.results import make_results
from torchmojo.ops.rule import Rule, read_rule
from torchmojo.ops.schema import TENSOR, Signature, out_signature_of, signature_of
from torchmojo.toolchain.settings import read_settings

__all__ = ["Op", "op", "register"]

_ops: dict[str, Op] = {}
_lock = threading.RLock()


class Op:
    """An operator: ``torch.ops.NS.NAME``, and a function that calls it.

    Attributes:
        name: ``ns::name``.
        signature: Its schema and where the kernel's arguments come from.
        route: ``mojo`` where results are made in Mojo, ``python`` where the function makes them.
        why: Why not in Mojo.
        overload: The ``torch._ops.OpOverload``.
    """

    def __init__(
        self,
        name: str,
        kernel: Any,
        function: Callable[..., Any],
        rules: tuple[Rule, ...] | None = None,
        tags: Sequence[Any] = (),
    ) -> None:
        """Registers the operator; use ``torchmojo.op``."""
        torch: Any = sys.modules["torch"]
        namespace, title = split_name(name)
        takes, defaults = parameters_of(name, function)
        self.name, self.title, self.kernel, self.function = name, title, kernel, function
        self.signature: Signature = signature_of(name, kernel.contract, takes, defaults=defaults)
        if kernel.contract.returns and not kernel.contract.makes_tensor:
            raise SignatureError(
                f"op: {name}: wanted a kernel that writes its results into MutTensors, or returns "
                f"an OwnedTensor, given {kernel.contract.name}, which returns "
                f"{kernel.contract.returns}"
            )
        self.tensor_names = tuple(n for n in takes if kernel.arguments[n].argument.is_tensor)
        self.formula: Callable[..., Any] | None = None
        self.saves: tuple[str, ...] | None = None
        self.why = ""
        if kernel.contract.makes_tensor:
            self.why = "the kernel makes its result"
        elif rules is None:
            plain = frozenset(
                place.argument.name for place in self.signature.taken if place.kind == TENSOR
            )
            rules, self.why = read_rule(function, len(self.signature.outputs), plain)
        self.route = "python" if rules is None else "mojo"
        self.tags = tags_of(tags)
        self._library: Any = torch.library.Library(namespace, "FRAGMENT")
        self._registrations: list[Registration] = []
        self._glue: Glue | None = None
        self.overload: Any = self._is_gone
        try:
            self._define(torch, namespace, title)
            self.overload = getattr(getattr(torch.ops, namespace), title).default
            self._recorded = make_function(self)
            self._register(torch, namespace, title, rules)
        except BaseException:
            self.unregister()
            raise

    def _define(self, torch: Any, namespace: str, title: str) -> None:
        self._library.define(self.signature.schema, tags=self.tags)
        fake = self._fake
        torch.library.register_fake(self.name, fake, lib=self._library)
        self._batch = loop(self)
        torch.library.register_vmap(self.name, lambda *a: self._batch(*a), lib=self._library)

    def _fake(self, *args: Any) -> Any:
        return _unwrap(make_results(self, self.signature.complete(args)))

    def _register(
        self, torch: Any, namespace: str, title: str, rules: tuple[Rule, ...] | None
    ) -> None:
        if rules is None:
            self._library.impl(title, self._in_python, "CPU")
            self._library.impl(title, self._autograd_in_python, "Autograd")
            return
        self._glue = glue_of(self.kernel)
        if read_settings().check_ops:
            self._install_checked(torch, namespace, title, rules)
        else:
            self._install(namespace, title, self.signature, rules)
        if self.signature.outputs and not self.signature.writes:
            self._register_out(torch, namespace, title)

    def _install(
        self, namespace: str, title: str, signature: Signature, rules: tuple[Rule, ...]
    ) -> None:
        """Puts the two native kernels of one overload into the dispatcher."""
        torch: Any = sys.modules["torch"]
        self._take_bits(torch, title, signature)
        glue = self._glue
        assert glue is not None
        slot = glue.add(self, signature, rules)
        for key, kind in (("CPU", "boxed"), ("AutogradCPU", "gate")):
            function = glue.function(self.kernel, kind, slot)
            self._registrations.append(Registration(namespace, title, key, function))

    def _take_bits(self, torch: Any, title: str, signature: Signature) -> None:
        """Lets the kernel see lazy bits of what it writes: torch resolves those of results only."""
        if signature.writes:
            for key in ("Conjugate", "Negative"):
                self._library.impl(title, torch.library.fallthrough_kernel, key)

    def _install_checked(
        self, torch: Any, namespace: str, title: str, rules: tuple[Rule, ...]
    ) -> None:
        """Puts the native kernels under another name, and before them a comparison."""
        from torchmojo.ops.check import checked

        # No overload: torch 2.13 aborts where a third one is taken out.
        name = f"{title}__unchecked"
        schema = self.signature.schema.replace(title, name, 1)
        self._library.define(schema, tags=self.tags)
        self._install(namespace, name, self.signature, rules)
        self._take_bits(torch, title, self.signature)
        unchecked = getattr(getattr(torch.ops, namespace), name).default
        self._library.impl(title, checked(self, unchecked), "CPU")
        self._library.impl(title, self._autograd_in_python, "Autograd")

    def _register_out(self, torch: Any, namespace: str, title: str) -> None:
        """Registers ``NS.NAME.out``, which writes into tensors that it is given by name."""
        signature = out_signature_of(self.kernel.contract, self.signature)
        self._library.define(signature.schema, tags=self.tags)
        torch.library.register_fake(f"{self.name}.out", lambda *a, **k: None, lib=self._library)
        self._install(namespace, f"{title}.out", signature, ())

    # -- calls -----------------------------------------------------------------------------------

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Calls the operator through torch's dispatcher.

        Raises what Python raised below it, of which torch itself hands on the text alone.
        """
        try:
            return self.overload(*args, **kwargs)
        except RuntimeError as error:
            found = take_error(str(error))
            if found is None:
                raise
            raise found from None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as its name: the process that loads it has to register the operator too."""
        return find, (self.name,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Op:
        """Returns itself: torch has one operator of a name."""
        return self

    def record(self, signature: Signature, args: Sequence[Any]) -> Any:
        """Calls it with autograd recording.

        Args:
            signature: That of the overload that was called.
            args: The operator's arguments in order.

        Raises:
            GradError: The overload writes its arguments.
        """
        if signature.writes:
            refuse_in_place(self.title, signature, args)
        return self._recorded(*args)

    def _in_python(self, *args: Any) -> Any:
        """Makes the results by calling the function, then calls the kernel."""
        args = self.signature.complete(args)
        if self.kernel.contract.makes_tensor:
            return self.kernel(**dict(zip(self.signature.takes, args, strict=True)))
        results = make_results(self, args)
        values = dict(zip(self.signature.takes, args, strict=True))
        values.update(
            {a.name: tensor for a, tensor in zip(self.signature.outputs, results, strict=True)}
        )
        self.kernel(**values)
        return _unwrap(results)

    def _autograd_in_python(self, *args: Any) -> Any:
        torch: Any = sys.modules["torch"]
        values = dict(zip(self.signature.takes, args, strict=False))
        given = [t for name in self.tensor_names for t in tensors_in(values.get(name))]
        if (torch.is_grad_enabled() and any(t.requires_grad for t in given)) or any(
            has_tangent(t) for t in given
        ):
            return self.record(self.signature, self.signature.complete(args))
        with torch._C._AutoDispatchBelowAutograd():
            return self.overload(*args)

    # -- what else a user says of it -------------------------------------------------------------

    def backward(
        self, formula: Callable[..., Any] | None = None, *, save: Sequence[str] | None = None
    ) -> Any:
        """Registers the formula of the gradient; used as a decorator.

        Args:
            formula: Called as ``formula(ctx, *grads)``, one gradient a result. ``ctx`` has the
                inputs and saved results by name, and ``ctx.needs``. Returns the gradients of the
                tensor arguments: a tensor if there is one, a tuple in order, or a dictionary.
            save: Names of tensors to keep for it; by default every tensor argument. Results may be
                named too, by the kernel's argument.

        Returns:
            The formula.

        Raises:
            ArgumentError: ``save`` names something else.
        """
        if "needs" in self.signature.takes:
            raise ArgumentError(
                f"{self.name}: backward: wanted another name for the kernel's argument needs, "
                "which a formula's ctx has already"
            )
        known = (*self.tensor_names, *(a.name for a in self.signature.outputs))
        for name in save or ():
            if name not in known:
                raise ArgumentError(
                    f"{self.name}: backward: save: wanted names among {', '.join(known)}, given "
                    f"{name!r}"
                )

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.formula = function
            self.saves = None if save is None else tuple(save)
            self._recorded = make_function(self)
            return function

        return register if formula is None else register(formula)

    def vmap(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Registers a batching rule in place of the loop; used as a decorator.

        Args:
            rule: Called as ``rule(info, in_dims, *args)``, as ``torch.library.register_vmap`` says.
        """
        self._batch = rule
        return rule

    def unregister(self) -> None:
        """Takes the operator out of torch; calls of this object fail by name afterwards.

        No other thread may be calling it, and ``torch.ops.NS.NAME.default`` that somebody kept may
        not be called any more: torch frees what it points to.
        """
        with _lock:
            for registration in self._registrations:
                registration.close()
            if self._glue is not None:
                self._glue.remove(self)
            self._registrations.clear()
            self._library._destroy()
            if _ops.get(self.name) is self:
                del _ops[self.name]
            self.overload = self._is_gone  # torch has freed what the overload points to

    def _is_gone(self, *args: Any, **kwargs: Any) -> Any:
        raise LibraryError(
            f"op: {self.name}: wanted a registered operator, given one that unregister() has "
            "taken out, or that was registered again"
        )

    def __repr__(self) -> str:
        """Shows schema and route."""
        how = "results made in Mojo" if self.route == "mojo" else f"results by Python: {self.why}"
        return f"<operator {self.name.split('::')[0]}::{self.signature.schema}, {how}>"


def _unwrap(results: tuple[Any, ...]) -> Any:
    """Returns results as an operator does: nothing, one, or a tuple."""
    return (results[0] if len(results) == 1 else results) if results else None


def find(name: str) -> Op:
    """Returns a registered operator, for ``pickle``.

    Args:
        name: ``ns::name``.

    Raises:
        LibraryError: This process has not registered it.
    """
    found = _ops.get(name)
    if found is None:
        raise LibraryError(
            f"op: {name}: wanted an operator that this process has registered, given none; "
            "register it before unpickling what refers to it"
        )
    return found


def op(name: str, kernel: Any, *, tags: Sequence[Any] = ()) -> Callable[[Callable[..., Any]], Op]:
    """Makes a kernel an operator of torch's: ``torch.ops.NS.NAME``.

    The decorated function says what the operator takes and what it allocates. Its parameters are
    names of the kernel's arguments; tensors that the kernel writes and that it does not take are
    the results, which it returns empty. It is the fake kernel too: it must look at nothing but
    sizes and dtypes.

    Args:
        name: ``"namespace::name"``.
        kernel: A kernel, as ``kernels.gaussian_blur``.
        tags: What else is true of it: ``torch.Tag.pointwise``, ``reduction``,
            ``nondeterministic_seeded`` and the like. Compiled code gives it the strides that eager
            mode would (``needs_exact_strides``), unless a tag here says ``flexible_layout``.

    Returns:
        A decorator, which gives an ``Op``.

    Raises:
        ArgumentError: The name is none, the kernel is no kernel, or torch is not imported.
        SignatureError: The function does not fit the kernel.
        LibraryError: Another file has registered an operator of that name.

    Example:
        >>> import torch, torchmojo                                           # doctest: +SKIP
        >>> @torchmojo.op("vision::blur", kernels.blur)                       # doctest: +SKIP
        ... def blur(image: torch.Tensor, sigma: float) -> torch.Tensor:
        ...     return torch.empty_like(image)
        >>> torch.ops.vision.blur(image, 1.5)                                 # doctest: +SKIP
    """
    if not isinstance(kernel, Kernel):
        raise ArgumentError(f"op: kernel: wanted a kernel, as kernels.f, given {show(kernel)}")
    split_name(name)
    return lambda function: register(name, kernel, function, tags=tags)


def register(
    name: str,
    kernel: Any,
    function: Callable[..., Any],
    rules: tuple[Rule, ...] | None = None,
    tags: Sequence[Any] = (),
) -> Op:
    """Registers an operator, in place of an older one of the same file.

    Args:
        name: ``"namespace::name"``.
        kernel: The kernel.
        function: Its parameters are what the operator takes; it makes the results.
        rules: How results are made, where that is known already.
        tags: As for ``op``.

    Raises:
        ArgumentError: torch is not imported.
        LibraryError: Another file has registered an operator of that name.
    """
    if "torch" not in sys.modules:
        raise ArgumentError("op: wanted torch to be imported, given a process without it")
    with _lock:
        _replace(name, kernel)
        _ops[name] = made = Op(name, kernel, function, rules, tags)
    made.__doc__ = function.__doc__
    return made


def _replace(name: str, kernel: Any) -> None:
    """Makes room for a reloaded operator; refuses where the name is somebody else's."""
    old = _ops.get(name)
    if old is None:
        return
    if old.kernel._library.path != kernel._library.path:
        raise LibraryError(
            f"op: {name}: wanted a name of its own, given one that {old.kernel._library.path} has "
            f"registered already; unregister() that one, or choose another namespace"
        )
    old.unregister()
