"""Dual model -> single model: the main branch alone, for inference and for training without an auxiliary branch."""

import torch

from yolov9.errors import UserError
from yolov9.model.build import build_graph
from yolov9.model.detector import DetectionModel
from yolov9.model.main_branch import main_branch


def convert(dual: DetectionModel) -> DetectionModel:
    """The single-head model with the weights of the main branch of `dual`; its outputs are those of `dual`, exactly.

    Raises:
        UserError: the model has a single head already, or is folded.
    """
    if not dual.is_dual:
        raise UserError(f"model {dual.graph_name} has one head", "a model with a dual head", "use the model as it is")
    branch = main_branch(dual.spec)
    with torch.device("meta"):
        single = build_graph(branch.graph)
    tensors = dual.state_dict()
    wanted = {name: branch.own_name(name) for name in single.state_dict()}
    if any(own not in tensors for own in wanted.values()):
        raise UserError(f"model {dual.graph_name} is folded", "a model as it was trained", "convert before folding")
    single.load_state_dict({name: tensors[own].detach().clone() for name, own in wanted.items()}, assign=True)
    single.names = list(dual.names)
    single.head.freeze_bins()
    return single.train(dual.training)
