"""Running a model: what is computed, in which mode, and what is not done."""

from typing import Any

import pytest
import torch
from torch import nn

from yolov9.errors import UserError
from yolov9.model import DetectionModel, build_model, convert, fuse
from yolov9.model.routing import Upsample


@pytest.fixture(scope="module")
def dual() -> DetectionModel:
    torch.manual_seed(0)
    model = build_model("yolov9-t", nc=2)
    # Random statistics, so that folding has something to fold.
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.running_mean, 0, 0.1)
            nn.init.uniform_(module.weight, 0.5, 1.5)
    return model.eval()


@pytest.fixture(scope="module")
def picture() -> torch.Tensor:
    return torch.rand(2, 3, 64, 96, generator=torch.Generator().manual_seed(1))


def test_names_are_numbers_until_set(tiny_graph: dict[str, Any]) -> None:
    assert build_model(tiny_graph).names == ["0", "1", "2"]


def test_evaluation_does_not_compute_the_auxiliary_branch(dual: DetectionModel, picture: torch.Tensor) -> None:
    ran: set[int] = set()
    hooks = [layer.register_forward_hook(lambda *_, i=i: ran.add(i)) for i, layer in enumerate(dual.model)]
    with torch.no_grad():
        dual(picture)
        only_main = set(ran)
        dual(picture, with_aux=True)
    for hook in hooks:
        hook.remove()
    assert only_main == set(range(22))
    assert ran == set(range(29))


def test_main_prediction_is_the_same_with_and_without_the_auxiliary_branch(
    dual: DetectionModel, picture: torch.Tensor
) -> None:
    with torch.no_grad():
        aux, main = dual(picture, with_aux=True)
        alone, maps = dual.predict_with_raw(picture)
    assert torch.equal(main, alone)
    assert torch.equal(dual.head.decode(maps), alone)
    assert aux.shape == main.shape


def test_training_pass_gives_a_gradient_to_every_trainable_parameter(picture: torch.Tensor) -> None:
    model = build_model("yolov9-t", nc=2).train()
    aux, main = model(picture)
    sum(m.float().mean() for m in (*aux, *main)).backward()
    without = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    assert frozen == ["model.29.dfl.conv.weight", "model.29.dfl2.conv.weight"]


def test_decoding_is_done_in_float32_under_autocast(dual: DetectionModel, picture: torch.Tensor) -> None:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        prediction, maps = dual.predict_with_raw(picture)
    assert prediction.dtype == torch.float32
    expected = dual.head.decode([m.float() for m in maps])
    torch.testing.assert_close(prediction, expected, rtol=0, atol=1e-5)


def test_half_model_decodes_in_float32(dual: DetectionModel, picture: torch.Tensor) -> None:
    prediction = fuse(dual).bfloat16()(picture.bfloat16())
    assert prediction.dtype == torch.float32


def test_anchors_of_a_shape_are_made_once(tiny_graph: dict[str, Any]) -> None:
    model = build_model(tiny_graph).eval()
    with torch.inference_mode():
        maps = model.main_maps(torch.zeros(1, 3, 64, 64))
        first = model.head._anchors.get(maps)
        second = model.head._anchors.get(maps)
    assert first[0] is second[0]
    assert not first[0].is_inference()
    assert first[0][:, :2].tolist() == [[0.5, 1.5], [0.5, 0.5]]


def test_each_part_is_decoded_with_its_own_bins(picture: torch.Tensor) -> None:
    model = build_model("yolov9-t", nc=2).eval()
    with torch.no_grad():
        aux, main = model(picture, with_aux=True)
        model.model[-1].dfl2.conv.weight.mul_(2)
        aux_after, main_after = model(picture, with_aux=True)
    assert torch.equal(aux, aux_after)
    torch.testing.assert_close(main_after[:, 2:4], 2 * main[:, 2:4])


def test_anchor_cache_is_bounded(dual: DetectionModel) -> None:
    for width in range(1, 200):
        dual.head._anchors.get([torch.empty(1, 1, 1, width)] * 3)
    assert len(dual.head._anchors._kept) <= 64


def test_folded_model_predicts_the_same_and_leaves_the_original(dual: DetectionModel, picture: torch.Tensor) -> None:
    before = {name: value.clone() for name, value in dual.state_dict().items()}
    folded = fuse(dual)
    with torch.no_grad():
        torch.testing.assert_close(folded(picture), dual(picture), rtol=1e-4, atol=1e-3)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in folded.modules())
    assert all(torch.equal(value, before[name]) for name, value in dual.state_dict().items())
    assert not any(p.requires_grad for p in folded.parameters())


def test_folding_twice_changes_nothing(dual: DetectionModel) -> None:
    folded = fuse(dual)
    once = folded.state_dict()
    assert all(torch.equal(value, once[name]) for name, value in fuse(folded).state_dict().items())


def test_conversion_copies_weights_and_names(dual: DetectionModel, picture: torch.Tensor) -> None:
    dual.names = ["cat", "dog"]
    single = convert(dual)
    with torch.no_grad():
        assert torch.equal(single(picture), dual(picture))
        single.model[0].conv.weight.zero_()
    assert dual.model[0].conv.weight.abs().sum() > 0
    assert (single.names, single.graph_name, single.training) == (["cat", "dog"], "gelan-t", False)
    assert [name for name, p in single.named_parameters() if not p.requires_grad] == ["model.22.dfl.conv.weight"]


def test_conversion_of_a_user_graph_drops_what_only_the_auxiliary_part_needs(tiny_graph: dict[str, Any]) -> None:
    rows = [[-1, 1, "Silence", []], *([[-1, *row[1:]] for row in tiny_graph["layers"][:7]])]
    rows += [[5, 1, "Conv", [8]], [4, 1, "Conv", [8]], [6, 1, "Conv", [8]], [7, 1, "Conv", [8]]]
    rows.append([[9, 10, 11, 4, 5, 7], 1, "DualDDetect", ["nc"]])
    rows[10][0], rows[11][0] = 5, 7
    dual = build_model({"name": "mine", "nc": 3, "layers": rows}).eval()
    single = convert(dual)
    assert (single.graph_name, len(single.model)) == ("mine-main", 8)
    x = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(single(x), dual(x))


def test_single_and_folded_models_are_not_converted(dual: DetectionModel) -> None:
    with pytest.raises(UserError, match="one head"):
        convert(convert(dual))
    with pytest.raises(UserError, match="folded"):
        convert(fuse(dual))


def test_an_upsample_is_left_to_the_concat_that_alone_reads_it() -> None:
    left = {
        number
        for number, layer in enumerate(build_model("yolov9-s").model)
        if isinstance(layer, Upsample) and layer.left_to_concat
    }
    assert left == {10, 13, 23, 26}


@pytest.mark.parametrize(("row", "sources", "left"), [(8, [-1, 4], True), (9, [3, 7, 6], False), (8, [7, 7], False)])
def test_an_upsample_that_something_else_needs_enlarges_itself(
    tiny_graph: dict[str, Any], row: int, sources: list[int], left: bool
) -> None:
    """Row 7 enlarges row 6: for the concatenation 8, which takes its size from another row, or also for the head 9."""
    tiny_graph["layers"][row][0] = sources
    upsample = build_model(tiny_graph).model[7]
    assert isinstance(upsample, Upsample)
    assert upsample.left_to_concat is left
