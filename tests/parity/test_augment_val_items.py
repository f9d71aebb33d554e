"""Validation samples against val_items: the whole way from files to pictures and labels."""

import json

import numpy as np
import pytest

from yolov9.data.dataset_config import load_dataset_config
from yolov9.data.index import DatasetIndex
from yolov9.data.loader import LoaderSettings, open_loader


@pytest.fixture(scope="module")
def facts(parity_dir):
    return json.loads((parity_dir / "data" / "val_items.json").read_text())


@pytest.fixture(scope="module")
def samples(parity_dir, facts, tmp_path_factory):
    """Runs both kinds of loader over the five pictures; returns {"square_0": (picture, labels, shape, file)}."""
    folder = tmp_path_factory.mktemp("mini")
    config = folder / "data.yaml"
    images = parity_dir / "data" / "mini" / "images"
    config.write_text(json.dumps({"train": str(images), "val": str(images), "names": ["a", "b", "c"]}))
    index = DatasetIndex.build(load_dataset_config(str(config)), "val", cache_dir=None)
    found = {}
    for kind, rect in (("square", False), ("rect", True)):
        settings = LoaderSettings(
            index=index,
            imgsz=facts["img_size"],
            batch_size=facts["rect_batch"],
            workers=0,
            mode="val",
            rect=rect,
            stride=facts["stride"],
            pad=facts["rect_pad"],
        )
        with open_loader(settings) as loader:
            for batch in loader.epoch(0):
                for row, number in enumerate(batch.indices.tolist()):
                    labels = batch.targets[batch.targets[:, 0] == row].numpy()[:, 1:]
                    item = batch.images[row].numpy().copy(), labels, batch.shapes[row], index.path(number)
                    found[f"{kind}_{len([k for k in found if k.startswith(kind)])}"] = item
                batch.release()
    return found


NAMES = [f"{kind}_{number}" for kind in ("square", "rect") for number in range(5)]


@pytest.fixture(scope="module")
def arrays(parity_dir):
    with np.load(parity_dir / "data" / "val_items.npz") as data:
        return dict(data)


def test_all_items_are_there(samples, facts):
    assert sorted(samples) == sorted(facts["items"]) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_picture(samples, arrays, name):
    expected = arrays[f"{name}_image"].transpose(1, 2, 0)
    picture = samples[name][0]
    assert picture.shape == expected.shape
    assert (np.abs(picture.astype(int) - expected) <= 2).mean() >= 0.99


@pytest.mark.parametrize("name", NAMES)
def test_labels(samples, arrays, name):
    np.testing.assert_allclose(samples[name][1], arrays[f"{name}_labels"][:, 1:], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_shape(samples, facts, name):
    expected = facts["items"][name]
    _, _, fit, path = samples[name]
    assert path.endswith("/" + expected["file"])
    assert list(fit.original_hw) == expected["original_hw"]
    assert list(fit.ratio_hw) == pytest.approx(expected["ratio_hw"], rel=1e-12)
    assert list(fit.pad_wh) == expected["pad_wh"]
