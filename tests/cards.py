"""Tensors that say they lie on numbered cards and compute on the CPU: an operation on tensors of two cards, or of a
card and the CPU, is an error, as it is with real ones."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

KIND = "xla"  # a type of device that torch knows and does not set up when it is named
MOVES = {torch.ops.aten._to_copy, torch.ops.aten.copy_, torch.ops.aten.to}


class OnCard(Tensor):
    """`held`: the values. torch's C++ takes it for a tensor on the CPU, Python for one on a card."""

    @staticmethod
    def __new__(cls, real: Tensor, card: torch.device):
        made = Tensor._make_wrapper_subclass(cls, real.size(), strides=real.stride(), dtype=real.dtype,
                                             storage_offset=real.storage_offset(), requires_grad=False)
        made.held, made.card = real, card
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func == Tensor.device.__get__:
            return args[0].card
        if func is nn.functional.one_hot:  # made in C++, of a range on the device that C++ sees
            return cls(func(args[0].held, *args[1:], **kwargs), args[0].card)
        if func is Tensor.numpy:
            raise TypeError(f"a tensor on {args[0].card} has no numpy array; copy it to the CPU first")
        if func is Tensor.tolist:
            return args[0].held.tolist()
        if func is Tensor.__deepcopy__:
            return args[1].setdefault(id(args[0]), cls(args[0].held.clone(), args[0].card))
        if func in (Tensor.detach, Tensor.__getitem__):  # torch's own cannot be had of a subclass in inference mode
            _together(func, [x for x in tree_iter(args) if isinstance(x, OnCard)])  # indices may come from the CPU
            return cls(func(*tree_map_only(OnCard, lambda tensor: tensor.held, args)), args[0].card)
        if func is Tensor.cpu:
            return args[0].held.clone()
        if func is Tensor.to:
            if len(args) > 1 and isinstance(args[1], Tensor):
                args = args[0], args[1].device, args[1].dtype
            if isinstance(args[0], OnCard) and torch.device("cpu") in map(_device, (*args[1:], *kwargs.values())):
                return args[0].held.to(*args[1:], **kwargs).clone()
        return super().__torch_function__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = [x for x in tree_iter((args, kwargs)) if isinstance(x, Tensor)]
        if func.overloadpacket not in MOVES:
            # A number of no dimension may come from the CPU.
            _together(func, [x for x in given if x.dim() or isinstance(x, OnCard)])
        card = _named(args, kwargs) or next(x.card for x in given if isinstance(x, OnCard))
        return _computed(func, args, kwargs, card)


class Factories(TorchDispatchMode):
    """Lets `device=` name a card where a tensor is made."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = _named(args, kwargs)
        if device is None or any(isinstance(x, OnCard) for x in tree_iter((args, kwargs))):
            return func(*args, **kwargs)
        return _computed(func, args, kwargs, device)


class FromLists(TorchFunctionMode):
    """`torch.tensor` makes its tensor where it is told before dispatch is asked: here it is moved there."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        device = kwargs.pop("device", None) if func is torch.tensor else None
        made = func(*args, **kwargs)
        return made if device is None else made.to(device)


@contextmanager
def cards() -> Iterator[None]:
    """While open, `torch.device("xla", k)` is card k."""
    with Factories(), FromLists():
        yield


def placed(model: nn.Module, places: dict[str, torch.device]) -> nn.Module:
    """The model, with the parameters and buffers of each named module and of those inside it on its card."""
    for name, card in places.items():
        for module in model.get_submodule(name).modules():
            for key, value in module._parameters.items():
                if value is not None and not isinstance(value, OnCard):
                    module._parameters[key] = nn.Parameter(OnCard(value.detach(), card), requires_grad=False)
            for key, value in module._buffers.items():
                if value is not None and not isinstance(value, OnCard):
                    module._buffers[key] = OnCard(value, card)
    return model


def _together(func, tensors: list[Tensor]) -> None:
    places = {str(getattr(x, "card", "cpu")) for x in tensors}
    if len(places) > 1:
        raise RuntimeError(f"{func}: tensors are on {sorted(places)}")


def _computed(func, args: tuple, kwargs: dict, card: torch.device):
    """The operation on the CPU; what it makes is on the card."""
    real, named = tree_map_only(torch.device, lambda device: torch.device("cpu"),
                                tree_map_only(OnCard, lambda tensor: tensor.held, (args, kwargs)))
    result = func(*real, **named)
    if func._schema.is_mutable:  # what was written to is what is returned
        written = [kwargs.get(a.name, args[k] if k < len(args) else None)
                   for k, a in enumerate(func._schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
        return written[0] if len(written) == 1 else tuple(written)
    return tree_map_only(Tensor, lambda x: OnCard(x, card), result) if card.type == KIND else result


def _named(args: tuple, kwargs: dict) -> torch.device | None:
    """The device that the arguments name, if they do."""
    return next((x for x in tree_iter((args, kwargs)) if isinstance(x, torch.device)), None)


def _device(value) -> torch.device | None:
    """An argument of `Tensor.to`, if it is a device."""
    return torch.device(value) if isinstance(value, torch.device | str) else None
