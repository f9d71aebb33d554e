"""The detector as a Python object: right boxes for any picture size, whatever it is batched with."""

import gc
import weakref
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from yolov9.data.images import read_image
from yolov9.engine.detector import Detector, DetectorOptions, as_objects
from yolov9.errors import ExitCode, UserError
from yolov9.model import DetectionModel, load_weights
from yolov9.ops import nms
from yolov9.ops.plain import kernels_wanted, triton_is_installed

OPTIONS = DetectorOptions(imgsz=96, conf=0.3, max_det=20)


@pytest.fixture(scope="module")
def detector(weights: Path) -> Detector:
    return Detector(weights, "cpu", OPTIONS)


def test_a_model_that_was_given_is_not_kept_beside_its_folded_copy(weights: Path) -> None:
    model = load_weights(weights)
    given = weakref.ref(model)
    detector = Detector(model, "cpu", OPTIONS)
    del model
    gc.collect()
    assert given() is None
    assert detector.names


def _noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    small = np.random.default_rng(seed).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_NEAREST)


def test_result_equals_the_unfolded_model_on_a_picture_that_needs_no_letterbox(detector: Detector, weights: Path):
    image = _noise(96, 96)
    model = load_weights(weights).eval()
    pixels = torch.from_numpy(image[:, :, ::-1].copy()).permute(2, 0, 1)[None].float() / 255
    with torch.no_grad():
        (expected,) = nms(model(pixels), OPTIONS.conf, OPTIONS.iou, max_det=OPTIONS.max_det)
    found = detector.predict(image)
    assert len(found) == len(expected) > 3
    assert found.boxes == pytest.approx(expected[:, :4].clamp(0, 96).numpy(), abs=2e-2)
    assert found.scores == pytest.approx(expected[:, 4].numpy(), abs=1e-4)
    assert found.classes.tolist() == expected[:, 5].int().tolist()


def test_boxes_are_in_pixels_of_the_picture_that_was_given(detector: Detector):
    small = _noise(48, 96)
    large = cv2.resize(small, (384, 192), interpolation=cv2.INTER_NEAREST)
    shrunk = cv2.resize(large, (96, 48), interpolation=cv2.INTER_LINEAR)
    assert np.array_equal(shrunk, small)
    assert detector.predict(large).boxes == pytest.approx(detector.predict(small).boxes * 4, abs=1e-2)


def test_the_border_of_the_letterbox_is_taken_off_again(detector: Detector):
    image = _noise(47, 96)
    framed = cv2.copyMakeBorder(image, 8, 9, 0, 0, cv2.BORDER_CONSTANT, value=(114, 114, 114))
    expected = detector.predict(framed).boxes - [0, 8, 0, 8]
    assert detector.predict(image).boxes == pytest.approx(expected.clip(0, [96, 47, 96, 47]), abs=1e-3)


@pytest.mark.parametrize("size", [(1, 1), (8, 300), (300, 7), (97, 95), (2000, 50)])
def test_any_picture_size_gives_boxes_inside_the_picture(detector: Detector, size: tuple[int, int]):
    found = detector.predict(_noise(*size))
    assert found.size_hw == size
    assert (found.boxes >= 0).all()
    assert (found.boxes <= [size[1], size[0], size[1], size[0]]).all()
    assert np.isfinite(found.boxes).all()


def test_a_batch_gives_what_single_pictures_give_in_the_same_order(detector: Detector):
    images = [_noise(80, 96, 1), _noise(96, 60, 2), _noise(80, 96, 3), _noise(60, 200, 4)]
    together = detector.predict_batch(images)
    for image, found in zip(images, together, strict=True):
        alone = detector.predict(image)
        assert found.size_hw == image.shape[:2]
        assert found.classes.tolist() == alone.classes.tolist()
        assert found.boxes == pytest.approx(alone.boxes, abs=1e-2)


def test_an_empty_batch_is_no_error(detector: Detector):
    assert detector.predict_batch([]) == []


def test_the_picture_is_left_as_it_was(detector: Detector):
    image = _noise(96, 96)
    copy = image.copy()
    detector.predict(image)
    assert np.array_equal(image, copy)


def test_only_the_classes_asked_for_come_back(weights: Path):
    image = _noise(96, 96)
    every = Detector(weights, "cpu", OPTIONS).predict(image)
    number = int(every.classes[0])
    some = Detector(weights, "cpu", DetectorOptions(imgsz=96, conf=0.3, max_det=20, classes=(number,))).predict(image)
    assert set(some.classes.tolist()) == {number}


def test_single_class_reports_class_zero(weights: Path):
    found = Detector(weights, "cpu", DetectorOptions(imgsz=96, conf=0.3, single_class=True)).predict(_noise(96, 96))
    assert set(found.classes.tolist()) == {0}
    assert found.class_names[0] == "item"


def test_agnostic_selection_drops_overlapping_boxes_of_other_classes(weights: Path):
    plain = DetectorOptions(imgsz=96, conf=0.05, iou=0.3, max_det=300)
    agnostic = DetectorOptions(imgsz=96, conf=0.05, iou=0.3, max_det=300, agnostic=True)
    image = _noise(96, 96)
    assert len(Detector(weights, "cpu", agnostic).predict(image)) < len(Detector(weights, "cpu", plain).predict(image))


def test_a_class_that_the_model_does_not_have_is_refused(weights: Path):
    with pytest.raises(UserError, match="--classes 7"):
        Detector(weights, "cpu", DetectorOptions(classes=(7,)))


def test_a_size_that_is_no_multiple_of_the_stride_is_rounded_up_and_said(weights: Path, log_lines: list[str]):
    Detector(weights, "cpu", DetectorOptions(imgsz=100))
    assert any("using 128" in line for line in log_lines)


def test_a_gpu_that_is_not_there_is_refused(weights: Path):
    with pytest.raises(UserError) as error:
        Detector(weights, "93")
    assert error.value.exit_code == ExitCode.NO_GPU


def test_half_on_the_cpu_is_said_and_left_out(weights: Path, log_lines: list[str]):
    found = Detector(weights, "cpu", DetectorOptions(imgsz=96, half=True)).predict(_noise(96, 96))
    assert len(found) > 0
    assert any("--half" in line for line in log_lines)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_photograph_with_a_rotation_tag_is_seen_upright(
    detector: Detector, photo: Path, tmp_path: Path, orientation: int
):
    from PIL import Image

    turned = {1: 0, 3: 180, 6: 90, 8: 270}[orientation]
    upright = Image.open(photo)
    upright.rotate(turned, expand=True).save(tmp_path / "x.png")
    stored = Image.open(tmp_path / "x.png")
    exif = stored.getexif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "tagged.png", exif=exif)
    expected = detector.predict(read_image(photo))
    found = detector.predict(read_image(tmp_path / "tagged.png"))
    assert found.size_hw == (480, 640)
    assert found.boxes == pytest.approx(expected.boxes, abs=2)


def test_objects_are_plain_json_values(detector: Detector):
    found = detector.predict(_noise(96, 96))
    row = as_objects(found, "a.jpg")[0]
    assert list(row) == ["image", "class_id", "name", "confidence", "box_xyxy"]
    assert row["name"] == found.class_names[0]
    assert row["box_xyxy"] == pytest.approx(found.boxes[0].tolist(), abs=0.006)
    assert as_objects(found, "v.mp4", 3)[0]["frame"] == 3


@pytest.mark.gpu
def test_half_on_a_gpu_gives_nearly_the_same_boxes(weights: Path, photo: Path):
    image = read_image(photo)
    full = Detector(weights, "0", DetectorOptions(imgsz=640, conf=0.3)).predict(image)
    half = Detector(weights, "0", DetectorOptions(imgsz=640, conf=0.3, half=True)).predict(image)
    assert abs(len(full) - len(half)) <= 0.05 * len(full) + 2


@pytest.mark.skipif(not triton_is_installed(), reason="Triton is not installed; PyTorch's CUDA builds bring it")
def test_nothing_is_compiled_for_a_detection(weights: Path, photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    forward = DetectionModel.forward

    def noting(model: DetectionModel, images: torch.Tensor) -> torch.Tensor:
        seen.append(kernels_wanted())
        return forward(model, images)

    monkeypatch.setattr(DetectionModel, "forward", noting)
    Detector(weights, "cpu", OPTIONS).predict(read_image(photo))
    assert seen == [False]
    assert kernels_wanted()
