"""Small data sets on disk."""

import pytest
from PIL import Image


def write_set(folder, labels, *, size_wh=(32, 24), names=("a", "b", "c"), split="train"):
    """Writes pictures and label files ({stem: text or None}) and a data.yaml; returns that file."""
    images = folder / "images" / split
    label_dir = folder / "labels" / split
    images.mkdir(parents=True, exist_ok=True)
    label_dir.mkdir(parents=True, exist_ok=True)
    for stem, text in labels.items():
        Image.new("RGB", size_wh, (90, 120, 150)).save(images / f"{stem}.png")
        if text is not None:
            (label_dir / f"{stem}.txt").write_text(text, encoding="utf-8")
    yaml = folder / "data.yaml"
    yaml.write_text(f"train: images/{split}\nval: images/{split}\nnames: [{', '.join(names)}]\n", encoding="utf-8")
    return yaml


@pytest.fixture
def make_set(tmp_path):
    """Function that writes a data set into the test's folder and returns its data.yaml."""

    def make(labels, **options):
        return write_set(tmp_path / "set", labels, **options)

    return make
