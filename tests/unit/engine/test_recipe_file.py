"""Recipe files as people write them."""

from pathlib import Path

import pytest

from yolov9.config.recipe import load_recipe
from yolov9.errors import UserError


def write(folder: Path, text: str) -> str:
    file = folder / "hyp.mine.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_a_power_of_ten_without_a_point_is_a_number(tmp_path: Path) -> None:
    assert load_recipe(write(tmp_path, "weight_decay: 5e-4\n")).weight_decay == 5e-4


@pytest.mark.parametrize(
    "text", ["lr0: -1", "scale: 5", "degrees: .inf", "warmup_epochs: -3", "momentum: 1.5", "lr0: abc", "lr0: .nan"]
)
def test_a_value_that_cannot_be_is_refused_with_file_and_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe(write(tmp_path, text))
    assert "hyp.mine.yaml" in caught.value.found
    assert text.partition(":")[0] in caught.value.found
    assert "hyp.mine.yaml" in caught.value.remedy
