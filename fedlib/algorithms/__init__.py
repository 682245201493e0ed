"""Federated learning algorithms: one paper, one file.

Each class in the ``__all__`` of a file in this folder stands here too, if it is an algorithm.
"""

from importlib import import_module
from pathlib import Path

from ..algorithm import Algorithm

__all__: list[str] = []

for _file in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    _module = import_module(f".{_file.stem}", __name__)
    for _name in _module.__all__:
        _kind = getattr(_module, _name)
        if isinstance(_kind, type) and issubclass(_kind, Algorithm):
            globals()[_name] = _kind
            __all__ += [_name]
