"""Validation through CUDA graphs gives what it gives without them, and follows the average."""

import pytest
import torch

from yolov9.engine.average_judge import AverageJudge
from yolov9.engine.captured import GraphPool, side_stream
from yolov9.engine.judge import Judge
from yolov9.engine.precision import Precision
from yolov9.loss import DetectionLoss, LossSettings, pack_targets
from yolov9.model import build_model, for_inference

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda", 0)


def test_predictions_and_loss_follow_the_average_through_graphs() -> None:
    torch.manual_seed(0)
    model = build_model("yolov9-t", nc=3).to(DEVICE).eval().requires_grad_(False)
    loss = DetectionLoss(model, LossSettings())
    rows = torch.tensor([[0, 1, 0.5, 0.5, 0.3, 0.4], [1, 2, 0.2, 0.3, 0.1, 0.2]])
    table = pack_targets(rows, 2).to(DEVICE)
    with side_stream(DEVICE), torch.no_grad():
        judge = AverageJudge(model, Precision(DEVICE, torch.bfloat16), loss, GraphPool())
        for number in range(4):  # as it is, captured, replayed
            pictures = torch.randint(0, 255, (2, 160, 192, 3), dtype=torch.uint8, device=DEVICE)
            for parameter in model.parameters():
                parameter.mul_(1 + 0.05 * (number % 2))
            judge.update()
            with torch.inference_mode():
                decoded, terms = judge(pictures, table)
                fresh = Judge(for_inference(model, DEVICE, torch.float16), judge.precision, loss)
                expected, expected_terms = fresh(pictures, table)
            torch.testing.assert_close(decoded, expected, rtol=1e-3, atol=1e-2)
            torch.testing.assert_close(terms, expected_terms, rtol=1e-2, atol=1e-3)
