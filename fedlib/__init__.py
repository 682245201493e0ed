"""Train many federated clients at once on one device.

The names that most programs need stand here. The modules at the top are one round, in this order: `params`, `keys`,
`data`, `losses`, `stacked` (with `chance`, `convolutions` and `low_rank`), `models` (with `recurrent` and
`augment`), `local`, `aggregate`, `algorithm`, `round`,
`federation`, with `evaluation`, `costs`, `checks`, `trial` and `progress_bar`; `statistics` and `plotting` are for what
a run gives. The folders: `algorithms`, one paper a file; `extensions`, what is in no paper;
`client` and `server`, what each side computes; `partition` and `datasets`, who the clients are and what they hold;
`engines`, what runs a federation elsewhere.
"""

from . import algorithms, augment, datasets, extensions, losses, models, partition
from .algorithm import Algorithm, Update
from .data import ClientData, local_batches, same_rows, stack_clients, stack_rows
from .engines.checkpoint import Checkpoint
from .evaluation import Result, evaluate
from .federation import fit, new_clients
from .keys import Key
from .local import local_update
from .params import Params
from .progress_bar import progress

__version__ = "1.2.0"

__all__ = [
    "Algorithm",
    "Checkpoint",
    "ClientData",
    "Key",
    "Params",
    "Result",
    "Update",
    "algorithms",
    "augment",
    "datasets",
    "evaluate",
    "extensions",
    "fit",
    "local_batches",
    "local_update",
    "losses",
    "models",
    "new_clients",
    "partition",
    "progress",
    "same_rows",
    "stack_clients",
    "stack_rows",
]
