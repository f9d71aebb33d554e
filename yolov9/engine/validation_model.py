"""The form of a model that is validated while it is trained: its average, as detection will use it."""

from yolov9.engine.precision import Precision, validation_precision
from yolov9.model import DetectionModel, fold_again, for_inference


class ValidationModel:
    """A folded copy of the average in the number format of validation; its memory is taken once, when a run starts.

    Args:
        average: follows the trained model; it is read, never changed.
        training: device and number format of the training.
    """

    def __init__(self, average: DetectionModel, training: Precision) -> None:
        self.precision = validation_precision(training)
        self._average = average
        self._folded = for_inference(average, self.precision.device, self.precision.dtype)

    def now(self) -> DetectionModel:
        """The copy with the weights of this moment.

        Raises:
            RuntimeError: memory ran out; the copy is right after a later call.
        """
        fold_again(self._folded, self._average)
        return self._folded
