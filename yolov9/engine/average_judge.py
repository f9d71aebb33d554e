"""The judge of a model that is trained: it looks through the average of its weights, as detection will use it."""

from collections.abc import Callable
from functools import partial

from yolov9.engine.captured import GraphCache, GraphPool
from yolov9.engine.judge import Judge
from yolov9.engine.precision import Precision, validation_precision
from yolov9.loss import DetectionLoss
from yolov9.model import DetectionModel, fold_again, for_inference


class AverageJudge(Judge):
    """Has a folded copy of the average in the number format of validation; its memory is taken once.

    Args:
        average: follows the trained model; it is read, never changed.
        training: device and number format of the training.
        loss: of the main part.
        graphs: memory for CUDA graphs; None: none are made.
    """

    def __init__(
        self,
        average: DetectionModel,
        training: Precision,
        loss: DetectionLoss | None = None,
        graphs: GraphPool | None = None,
    ) -> None:
        precision = validation_precision(training)
        super().__init__(for_inference(average, precision.device, precision.dtype), precision, loss, graphs)
        self._fold: Callable[[], None] = partial(fold_again, self.model, average)
        if graphs is not None:
            self._fold = GraphCache(self._fold, graphs, "folding")

    def update(self) -> None:
        """Takes the weights that the average has by now.

        Raises:
            RuntimeError: memory ran out; a later call makes it good.
        """
        self._fold()
