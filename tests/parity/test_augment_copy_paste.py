"""Copy-paste against copy_paste.npz."""

import json

import numpy as np
import pytest

from yolov9.data.augment import copy_paste_candidates
from yolov9.data.objects import Objects
from yolov9.data.scene import Scene, copy_objects, paint
from yolov9.data.tiles import Drawable, Tile


@pytest.fixture(scope="module")
def arrays(parity_dir):
    with np.load(parity_dir / "data" / "copy_paste.npz") as data:
        return dict(data)


@pytest.fixture(scope="module")
def facts(parity_dir):
    return json.loads((parity_dir / "data" / "copy_paste.json").read_text())


class LastOnes(np.random.Generator):
    """Picks the last of the candidates, from the end, as the fixture did."""

    def choice(self, candidates, count, replace):
        assert replace is False
        return candidates[len(candidates) - count :][::-1]


def objects_of(arrays, number):
    rows = arrays[f"c{number}_labels"]
    outlines = [arrays[f"c{number}_seg{k}"] for k in range(len(rows))]
    return Objects(rows[:, 0], rows[:, 1:], outlines)


@pytest.mark.parametrize("number", range(3))
def test_candidates(arrays, facts, number):
    objects = objects_of(arrays, number)
    width = arrays[f"c{number}_image"].shape[1]
    candidates = copy_paste_candidates(objects.boxes, objects.has_outline(), width)
    (eligible, _), *_ = facts[number]["eligible_indices_and_count"]
    assert candidates.tolist() == eligible


@pytest.mark.parametrize("number", range(3))
def test_labels(arrays, facts, number):
    width = arrays[f"c{number}_image"].shape[1]
    share = facts[number]["p"]
    objects, copied = copy_objects(LastOnes(np.random.PCG64(0)), objects_of(arrays, number), share, width)
    rows = np.concatenate((objects.classes[:, None], objects.boxes), axis=1)
    np.testing.assert_allclose(rows, arrays[f"c{number}_out_labels"], rtol=0, atol=1e-9)
    assert len(objects.outlines) == facts[number]["polygons_out"]
    (_, count), *_ = facts[number]["eligible_indices_and_count"]
    assert len(copied) == count


@pytest.mark.parametrize("number", range(3))
def test_picture(arrays, facts, number):
    picture = arrays[f"c{number}_image"]
    height, width = picture.shape[:2]
    objects, copied = copy_objects(LastOnes(np.random.PCG64(0)), objects_of(arrays, number), facts[number]["p"], width)
    tile = Tile(0, (width, height), (width, height), (0, 0), (0, 0, width, height))
    scene = Scene([tile], objects, copied, (height, width), np.eye(3), 1.0, use_outlines=True)
    out = np.empty_like(picture)
    paint(scene, np.eye(3), lambda *_: Drawable(picture, (1.0, 1.0)), out)
    difference = np.abs(out.astype(int) - arrays[f"c{number}_out"])
    assert (difference <= 2).mean() >= 0.99
