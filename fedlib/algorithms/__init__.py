"""Federated learning algorithms, one file for each paper. All algorithm classes can be imported from here.

The imports are written out so that type checkers and editors see them; a test finds any that are missing.
"""

from .cfl import CFL
from .ditto import Ditto
from .fedavg import FedAvg
from .fedcg import FedCG
from .fedem import FedEM
from .fedgroup import FedGroup
from .fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from .fedproto import FedProto
from .fedprox import FedProx
from .fedrep import FedRep
from .fedsgcnn import FedSGCNN
from .fesem import FeSEM
from .finetune import FineTunedFedAvg
from .ifca import IFCA
from .kmeans import ClusteredKMeans
from .lg_fedavg import LGFedAvg
from .local_only import LocalOnly
from .pacfl import PACFL
from .pfedgraph import PFedGraph
from .scaffold import Scaffold

__all__: list[str] = [
    "CFL", "Ditto", "FedAvg", "FedCG", "FedEM", "FedGroup", "FedAdagrad", "FedAdam", "FedAvgM",
    "FedYogi", "FedProto", "FedProx", "FedRep", "FedSGCNN", "FeSEM", "FineTunedFedAvg", "IFCA", "ClusteredKMeans",
    "LGFedAvg", "LocalOnly", "PACFL", "PFedGraph", "Scaffold",
]  # fmt: skip
