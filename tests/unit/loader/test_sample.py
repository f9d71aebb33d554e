"""Samples: what they depend on, and what happens to pictures that cannot be read."""

import numpy as np
import pytest

from yolov9.config.recipe import Recipe
from yolov9.data.images import ImageError
from yolov9.data.loader_settings import LoaderPlan
from yolov9.data.reader import PictureReader
from yolov9.data.sample import SampleMaker


@pytest.fixture
def maker(settings):
    """Function: a sample maker for loader settings."""

    def make(**changes):
        chosen = settings(**changes)
        plan = LoaderPlan(chosen)
        return SampleMaker(plan.sample, chosen.index, PictureReader(chosen.index, chosen.imgsz), plan.order)

    return make


def draw(maker, epoch, position, side=96):
    out = np.empty((side, side, 3), np.uint8)
    return out, maker.make(epoch, position, out)


def test_a_sample_does_not_depend_on_what_was_made_before(maker):
    fresh, fresh_sample = draw(maker(), 3, 5)
    used = maker()
    for position in range(5):
        draw(used, 2, position)
    again, again_sample = draw(used, 3, 5)
    np.testing.assert_array_equal(fresh, again)
    np.testing.assert_array_equal(fresh_sample.labels, again_sample.labels)


def test_a_sample_depends_on_seed_epoch_and_position(maker):
    pictures = {draw(maker(seed=seed), epoch, p)[0].tobytes() for seed in (0, 1) for epoch in (0, 1) for p in (0, 1)}
    assert len(pictures) == 8


def test_labels_are_normalised_and_inside(maker):
    samples = maker()
    for position in range(24):
        labels = draw(samples, 0, position)[1].labels
        assert labels.dtype == np.float32
        low, high = labels[:, 1:3] - labels[:, 3:] / 2, labels[:, 1:3] + labels[:, 3:] / 2
        assert (low > -1e-6).all()
        assert (high < 1 + 1e-6).all()


def test_bright_objects_are_where_the_labels_say(maker):
    """Without colour change and mixup, most of each labelled box is the white of the drawn rectangles."""
    recipe = Recipe(hsv_h=0, hsv_s=0, hsv_v=0, mixup=0, copy_paste=0)
    samples = maker(recipe=recipe)
    count = 0
    for position in range(24):
        out, sample = draw(samples, 0, position)
        for _, cx, cy, w, h in sample.labels * 96:
            part = out[round(cy - h / 2) : round(cy + h / 2), round(cx - w / 2) : round(cx + w / 2)]
            assert (part > 150).mean() > 0.8
            count += 1
    assert count > 20


@pytest.mark.parametrize("left_right", [0.0, 1.0])
@pytest.mark.parametrize("upside_down", [0.0, 1.0])
def test_flips_move_pixels_and_labels_alike(maker, left_right, upside_down):
    still = {"hsv_h": 0, "hsv_s": 0, "hsv_v": 0, "scale": 0, "translate": 0, "mosaic": 0}
    plain, plain_sample = draw(maker(recipe=Recipe(**still, fliplr=0)), 0, 0)
    out, sample = draw(maker(recipe=Recipe(**still, fliplr=left_right, flipud=upside_down)), 0, 0)
    expected = plain[:, ::-1] if left_right else plain
    expected = expected[::-1] if upside_down else expected
    assert (np.abs(out.astype(int) - expected) <= 1).mean() > 0.99
    centre = plain_sample.labels[0, 1:3].copy()
    centre[0] = 1 - centre[0] if left_right else centre[0]
    centre[1] = 1 - centre[1] if upside_down else centre[1]
    np.testing.assert_allclose(sample.labels[0, 1:3], centre, atol=1e-6)


def test_p15_mosaic_is_off_for_every_sample_of_the_last_epochs(maker):
    samples = maker(close_mosaic_from=2)
    mosaic = [[draw(samples, epoch, position)[1].mosaic for position in range(12)] for epoch in range(4)]
    assert [all(epoch) for epoch in mosaic] == [True, True, False, False]
    assert not any(mosaic[2] + mosaic[3])


def test_rect_turns_mosaic_off_and_keeps_the_order_of_shapes(maker, boxes_index):
    samples = maker(rect=True)
    pictures = [draw(samples, 0, position)[1] for position in range(12)]
    assert not any(sample.mosaic for sample in pictures)
    widths = boxes_index.sizes[[sample.picture for sample in pictures]]
    aspect = widths[:, 1] / widths[:, 0]
    assert (np.diff(aspect) >= 0).all()


@pytest.mark.parametrize("kind", ["boxes_index", "outlines_index"])
def test_p28_copy_paste_with_and_without_outlines_and_with_an_empty_picture(maker, request, kind):
    samples = maker(index=request.getfixturevalue(kind), recipe=Recipe(copy_paste=1.0, mixup=1.0))
    counts = [len(draw(samples, epoch, position)[1].labels) for epoch in range(2) for position in range(12)]
    assert sum(counts) > 0


def test_copy_paste_adds_mirrored_objects(maker, outlines_index):
    still = {"hsv_h": 0, "hsv_s": 0, "hsv_v": 0, "mixup": 0, "fliplr": 0}
    counts, bright = [], []
    for share in (0.0, 1.0):
        samples = maker(index=outlines_index, recipe=Recipe(**still, copy_paste=share))
        drawn = [draw(samples, 0, position) for position in range(12)]
        counts.append(sum(len(sample.labels) for _, sample in drawn))
        bright.append(sum(int((out > 200).sum()) for out, _ in drawn))
    assert counts[1] > counts[0]
    assert bright[1] > bright[0]


def test_an_unreadable_training_picture_is_replaced_by_the_next_one(new_data_set, maker):
    index, images = new_data_set(4)
    first = maker(index=index, recipe=Recipe(mosaic=0))
    position = next(p for p in range(4) if draw(first, 0, p)[1].picture == 1)
    (images / "p001.png").write_bytes(b"not a picture")
    _, sample = draw(maker(index=index, recipe=Recipe(mosaic=0)), 0, position)
    (number, reason), *more = sample.failures
    assert (number, more) == (1, [])
    assert "picture" in reason
    assert sample.labels[:, 0].tolist() == [0.0]  # the class of picture 2, not of picture 1


def test_a_replaced_picture_gives_the_same_sample_whenever_it_broke(new_data_set, maker):
    index, images = new_data_set(8)
    veteran = maker(index=index)
    for position in range(8):
        draw(veteran, 0, position)
    (images / "p005.png").unlink()
    for position in range(8):
        old, old_sample = draw(veteran, 1, position)
        new, new_sample = draw(maker(index=index), 1, position)
        np.testing.assert_array_equal(old, new)
        np.testing.assert_array_equal(old_sample.labels, new_sample.labels)


def test_an_unreadable_validation_picture_is_grey_and_without_labels(new_data_set, maker):
    index, images = new_data_set(4)
    (images / "p001.png").unlink()
    out, sample = draw(maker(index=index, mode="val"), 0, 1)
    assert (out == 114).all()
    assert (len(sample.labels), sample.failures[0][0], sample.picture) == (0, 1, 1)


def test_a_picture_whose_size_changed_since_the_scan_is_not_used(new_data_set, maker):
    index, images = new_data_set(4)
    (images / "p000.png").write_bytes((images / "p001.png").read_bytes())
    _, sample = draw(maker(index=index, mode="val"), 0, 0)
    assert "160x120 in the scan" in sample.failures[0][1]


def test_when_no_picture_can_be_read_the_file_is_named(new_data_set, maker):
    index, images = new_data_set(4)
    for path in images.iterdir():
        path.unlink()
    with pytest.raises(ImageError, match=r"p00\d\.png"):
        draw(maker(index=index), 0, 0)
