"""Train many federated clients at once on one device.

The package exports the names that most programs need. The modules at the top level are best read in the order in which
a round uses them, which is `params`, `keys`, `data`, `losses`, `stacked` (with `chance`, `convolutions` and
`low_rank`), `models` (with `recurrent` and `augment`), `local`, `aggregate`, `algorithm`, `round` and `federation`.
They are supported by `evaluation`, `costs`, `checks`, `trial` and `progress_bar`, while `statistics` and `plotting` are
for the results of a run.

The folder `algorithms` has one file per paper, and `extensions` has what no paper describes. The computations of each
side are in `client` and `server`, the clients and their data in `partition` and `datasets`, and the code that runs a
federation elsewhere in `engines`.
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
