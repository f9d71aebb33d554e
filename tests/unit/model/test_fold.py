"""Folded copies that follow a model that is trained on."""

import pytest
import torch

from yolov9.model import DetectionModel, build_model, fold_again, for_inference, fuse

CPU = torch.device("cpu")


def trained_on(model: DetectionModel) -> None:
    """Changes every weight and running statistic as a step of training would."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point() and "dfl" not in name:
                value.add_(0.1 * torch.rand(value.shape, generator=generator))


@pytest.mark.parametrize("name", ["yolov9-t", "gelan-c", "yolov9-e"])
def test_folded_again_is_folded_anew(name: str) -> None:
    model = build_model(name, nc=3)
    folded = fuse(model)
    trained_on(model)
    expected = fuse(model).state_dict()
    before = folded.state_dict()
    assert any(not torch.equal(before[key], value) for key, value in expected.items()), "training changes the copy"
    fold_again(folded, model)
    for key, value in folded.state_dict().items():
        torch.testing.assert_close(value, expected[key], rtol=0, atol=0, msg=key)


def test_folding_again_keeps_number_format_and_places() -> None:
    model = build_model("yolov9-t", nc=3)
    copy = for_inference(model, CPU, torch.float16)
    places = {name: value.data_ptr() for name, value in copy.state_dict().items()}
    trained_on(model)
    fold_again(copy, model)
    assert {name: value.data_ptr() for name, value in copy.state_dict().items()} == places
    assert {value.dtype for value in copy.parameters()} == {torch.float16}
    torch.testing.assert_close(copy.float().state_dict(), fuse(model).half().float().state_dict(), rtol=0, atol=0)


def test_copy_for_inference_leaves_the_model_alone() -> None:
    model = build_model("yolov9-t", nc=3).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    copy = for_inference(model, CPU, torch.float16)
    assert model.training
    assert not copy.training
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
