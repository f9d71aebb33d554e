"""What is drawn where."""

import numpy as np
import pytest

from yolov9.engine.draw import class_colour, draw_boxes, line_width, text_colour
from yolov9.engine.fonts import FontSet


def _draw(label: str, box: list[float], fonts: FontSet | None = None, line: int | None = 2) -> np.ndarray:
    image = np.full((120, 160, 3), 114, np.uint8)
    boxes, classes = np.array([box], np.float32), np.array([3], np.int64)
    return draw_boxes(image, boxes, classes, [label], line_px=line, fonts=fonts)


def test_the_box_has_the_colour_of_its_class_and_an_untouched_inside():
    image = _draw("", [40, 50, 120, 100])
    assert tuple(image[50, 80]) == class_colour(3)
    assert tuple(image[100, 80]) == class_colour(3)
    assert (image[60:90, 50:110] == 114).all()


def test_the_label_stands_above_the_box_on_the_colour_of_the_class():
    image = _draw("car 0.87", [40, 50, 120, 100])
    above = image[30:48, 40:100].reshape(-1, 3)
    assert (above == class_colour(3)).all(1).sum() > 200
    assert (above == text_colour(class_colour(3))).all(1).any()


@pytest.mark.parametrize("label", ["汽车 0.9", "автомобиль 0.9", "سيارة", "한국어 차", "🐘", "é" * 40])
@pytest.mark.parametrize("fonts", [None, FontSet((), bundled=False)])
def test_any_script_is_drawn_with_and_without_fonts(label: str, fonts: FontSet | None):
    with_text, without = _draw(label, [40, 50, 120, 100], fonts), _draw("", [40, 50, 120, 100], fonts)
    assert (with_text != without).any()


@pytest.mark.parametrize(
    "box", [[-50, -50, 400, 400], [0, 0, 1, 1], [159, 119, 160, 120], [np.nan, 0, np.inf, 50], [100, 80, 20, 10]]
)
def test_labels_of_boxes_at_or_over_the_border_are_drawn_inside_the_picture(box: list[float]):
    paper = (_draw("a long label 0.99", box) == class_colour(3)).all(2)
    assert paper.sum() > 300


def test_a_box_that_is_larger_than_the_picture_is_drawn_along_its_border():
    image = _draw("", [-50, -50, 400, 400])
    assert [tuple(image[y, x]) for y, x in ((0, 80), (119, 80), (60, 0), (60, 159))] == [class_colour(3)] * 4


def test_a_picture_smaller_than_the_label_is_no_error():
    image = np.zeros((8, 9, 3), np.uint8)
    draw_boxes(image, np.array([[0, 0, 8, 8]], np.float32), np.array([0]), ["a label that is much too long"])
    assert image.any()


def test_no_boxes_leave_the_picture_as_it_is():
    image = np.full((20, 20, 3), 7, np.uint8)
    draw_boxes(image, np.zeros((0, 4), np.float32), np.zeros(0, np.int64), [])
    assert (image == 7).all()


def test_the_first_box_is_drawn_on_top():
    image = np.zeros((60, 60, 3), np.uint8)
    boxes = np.array([[10, 30, 50, 50], [10, 30, 50, 50]], np.float32)
    draw_boxes(image, boxes, np.array([1, 2]), ["", ""], line_px=3)
    assert tuple(image[30, 30]) == class_colour(1)


def test_classes_have_different_colours():
    assert len({class_colour(number) for number in range(80)}) >= 75
    distances = [np.abs(np.subtract(class_colour(k), class_colour(k + 1))).sum() for k in range(79)]
    assert min(distances) > 100


def test_text_is_dark_on_light_and_light_on_dark():
    assert text_colour((255, 255, 255)) == (0, 0, 0)
    assert text_colour((120, 0, 0)) == (255, 255, 255)


def test_lines_grow_with_the_picture():
    assert line_width(10, 10) == 1
    assert line_width(480, 640) == 2
    assert line_width(3000, 4000) > 8
