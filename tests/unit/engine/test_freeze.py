"""Layers that are not trained."""

import pytest

from yolov9.engine.model_setup import freeze_layers
from yolov9.errors import UserError
from yolov9.model import build_model


def test_freezing_all_layers_is_refused_with_the_number_of_the_last_one() -> None:
    with pytest.raises(UserError, match="0 to 22"):
        freeze_layers(build_model("gelan-t", nc=2), [999])


def test_all_but_the_head_can_be_frozen() -> None:
    model = build_model("gelan-t", nc=2)
    assert freeze_layers(model, [22])
    assert {name.split(".")[1] for name, value in model.named_parameters() if value.requires_grad} == {"22"}


def test_several_numbers_are_the_layers_themselves() -> None:
    model = build_model("gelan-t", nc=2)
    trained = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
    freeze_layers(model, [0, 2])
    assert {name.split(".")[1] for name, value in trained if not value.requires_grad} == {"0", "2"}
