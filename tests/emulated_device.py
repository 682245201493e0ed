"""A second torch device in plain Python, whose memory is the CPU's and which refuses what a GPU refuses.

Tensors of different devices in one operation raise, and so do ``.numpy()`` and ``np.asarray`` of what lies on the
device. Code that runs here asks a GPU for nothing impossible; only speed and rounding remain to be seen on a real one.

`second_device` is it, or a GPU where there is one. `use` makes it the device that `fedlib.fit` takes by default.
"""

import collections

import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "emulated"
aten = torch.ops.aten
# Operations that have a kernel for any device, which would be taken before the fallback, and the factories.
NAMED = """
empty.memory_format empty_strided zeros ones full arange arange.start arange.start_step _to_copy cat clone stack eye
eye.m linspace zeros_like ones_like empty_like full_like new_zeros new_empty new_full new_empty_strided new_ones rand
randn randint randperm lift_fresh detach scalar_tensor tril_indices triu_indices embedding select.int slice.Tensor
unsqueeze squeeze squeeze.dim squeeze.dims permute transpose.int t expand view as_strided unbind.int split.Tensor
split_with_sizes diagonal alias index.Tensor _reshape_alias unfold view_as_real repeat roll flip
max_pool2d_with_indices native_group_norm native_group_norm_backward _unsafe_view nll_loss_forward convolution
convolution_backward select_backward slice_backward expand_copy add.Tensor binary_cross_entropy_with_logits mse_loss
dot linalg_vector_norm isfinite squeeze_ squeeze_.dim squeeze_.dims unsqueeze_ transpose_ t_ as_strided_
"""
_LIMIT = 1_500_000_000  # bytes whose storages are remembered

_storages: dict = {}  # number of a storage -> (tensor on the CPU, the storage, kept so that its number stays taken)
_order: collections.deque = collections.deque()
_held = [0]  # bytes
_libraries: list = []


def operation(full):
    """The operation of this name, or None if this torch does not have it."""
    name, _, overload = full.partition(".")
    return getattr(getattr(aten, name, None), overload or "default", None)


COPIES = ("copy_", "_copy_from", "_to_copy", "index.Tensor", "index_put_", "index_put", "_index_put_impl_")
CROSSING = set(map(operation, COPIES))  # between devices, or with an index from the CPU, as on CUDA


class OnDevice(torch.Tensor):
    """A tensor of the device; `raw` is where its numbers lie."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __format__(self, spec):
        return format(self.item(), spec) if self.ndim == 0 else object.__format__(self, spec)

    def __repr__(self, **_):
        return f"{raw_of(self)!r} on the device {NAME}"


def on_device(t):
    return isinstance(t, torch.Tensor) and t.device.type == NAME


def raw_of(t):
    return t.raw if hasattr(t, "raw") else _storages[t.untyped_storage()._cdata][0]


def wrap(raw):
    """A tensor of the device with these numbers."""
    out = torch._C._acc.create_empty_tensor(tuple(raw.shape), raw.dtype)
    out.__class__ = OnDevice
    out.raw = raw
    storage = out.untyped_storage()
    _storages[storage._cdata] = raw, storage
    size = raw.numel() * raw.element_size()
    _order.append((storage._cdata, size))
    _held[0] += size
    while _held[0] > _LIMIT and len(_order) > 1:
        number, size = _order.popleft()
        _storages.pop(number, None)
        _held[0] -= size
    return out


def run(op, *args, **kwargs):
    """Any operation: on the CPU, with what a GPU would refuse refused."""
    args = list(args)
    for i, argument in enumerate(op._schema.arguments):  # numbers that torch has wrapped arrive as Python's
        given, place = (args, i) if i < len(args) else (kwargs, argument.name)
        value = kwargs.get(place) if given is kwargs else args[i]
        if str(argument.type) in ("Tensor", "Optional[Tensor]") and isinstance(value, (int, float, bool)):
            given[place] = torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    flat, spec = pytree.tree_flatten((tuple(args), kwargs))
    ours = [t for t in flat if on_device(t)]
    others = [t for t in flat if isinstance(t, torch.Tensor) and not on_device(t)]
    if ours and op not in CROSSING and any(t.ndim for t in others):
        both = f"at least two devices, {NAME}:0 and cpu! ({op})"
        raise RuntimeError(f"Expected all tensors to be on the same device, but found {both}")
    originals = {id(raw_of(t)): t for t in ours}
    to_cpu = any(isinstance(a, torch.device) and a.type == "cpu" for a in flat)
    plain = [raw_of(t) if on_device(t) else torch.device("cpu") if isinstance(t, torch.device) else t for t in flat]
    args, kwargs = pytree.tree_unflatten(plain, spec)
    try:
        out = op(*args, **kwargs)
    except RuntimeError:
        if op not in (aten.view.default, aten._unsafe_view.default):
            raise
        out = args[0].reshape(args[1])

    def back(o):
        if not isinstance(o, torch.Tensor):
            return o
        if id(o) not in originals:
            return o if to_cpu else wrap(o)
        t = originals[id(o)]
        if t.shape != o.shape:  # resized in place
            t.data, t.raw = wrap(o), o
        return t

    return pytree.tree_map(back, out)


def _copy_(target, source, non_blocking=False):
    a, b = (raw_of(t) if on_device(t) else t for t in (target, source))
    a.copy_(b)
    return target


def install():
    """Register the device with torch, once a process."""
    if _libraries:
        return
    _setup_privateuseone_for_python_backend(NAME)
    everything, named = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    _libraries.extend([everything, named])
    everything.fallback(run, dispatch_key="PrivateUse1")
    named.impl("copy_", _copy_, "PrivateUse1")
    for name in ("_copy_from", "_copy_from_and_resize"):
        named.impl(name, lambda source, target, non_blocking=False: _copy_(target, source), "PrivateUse1")
    for full in NAMED.split():
        if op := operation(full):
            named.impl(full, lambda *args, _op=op, **kwargs: run(_op, *args, **kwargs), "PrivateUse1")


def second_device():
    """The first CUDA device where there is one, since its autograd breaks beside this one; else this one."""
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    install()
    return torch.device(NAME, 0)


def use():
    """Let `fedlib.fit` and the others train here where no device is given."""
    install()
    from fedlib import federation

    choose = federation.choose_device
    federation.choose_device = lambda device="auto": torch.device(NAME, 0) if device == "auto" else choose(device)
