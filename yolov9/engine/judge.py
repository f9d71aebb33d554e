"""A network and its loss, applied to batches of validation."""

from collections.abc import Callable

from torch import Tensor

from yolov9.engine.captured import GraphCache, GraphPool
from yolov9.engine.device_batch import to_unit_range
from yolov9.engine.precision import Precision
from yolov9.loss import DetectionLoss
from yolov9.model import DetectionModel
from yolov9.model.head import RawMaps

Verdict = tuple[Tensor, Tensor]
"""Predictions B x (4 + classes) x N float32, and loss terms (3,)."""


class Judge:
    """Predictions of a network on pictures as the loader delivers them, and their loss.

    Args:
        model: in evaluation mode, on the device of `precision`.
        precision: device and number format.
        loss: of the main part; None: it is not computed.
        graphs: memory for CUDA graphs, one for each shape of a batch from its second time on; None: none are made.
            All calls are then made on one stream that is not the default stream, and the model's tensors stay in place.
    """

    def __init__(
        self,
        model: DetectionModel,
        precision: Precision,
        loss: DetectionLoss | None = None,
        graphs: GraphPool | None = None,
    ) -> None:
        self.model, self.precision, self.loss = model, precision, loss
        self._graphs = graphs
        self._judge: Callable[[Tensor, Tensor], Verdict] = self._predict_and_charge
        if graphs is not None:
            self._judge = GraphCache(self._predict_and_charge, graphs, "validation")

    def __call__(self, pictures: Tensor, table: Tensor) -> Verdict:
        """Predictions and loss of a batch; the next call may overwrite them.

        Args:
            pictures: (B, H, W, 3) uint8 on the device.
            table: targets (B, M, 5) of `pack_targets` on the device.
        """
        verdict = self._judge(pictures, table)
        if self._graphs is not None:
            self._graphs.batch_done()
        return verdict

    def predict(self, pictures: Tensor) -> tuple[Tensor, RawMaps]:
        """Predictions of pictures (B, H, W, 3) uint8, and the raw maps that they come from."""
        images = to_unit_range(pictures, self.precision.dtype)
        with self.precision.autocast():
            decoded, raw = self.model.predict_with_raw(images)
        return decoded.float(), raw

    def _predict_and_charge(self, pictures: Tensor, table: Tensor) -> Verdict:
        decoded, raw = self.predict(pictures)
        if self.loss is None:
            return decoded, decoded.new_zeros(3)
        return decoded, self.loss(raw, table)[1]
