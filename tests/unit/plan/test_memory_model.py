"""The table of GPU memory that estimates go by before anything is measured."""

import pytest

from entrypoint.plan.memory_model import family, picture_bytes


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("yolov9-s", "yolov9-s"),
        ("yolov9-t-cls80", "yolov9-t"),
        ("yolov9-c-converted", "gelan-c"),
        ("gelan-e", "gelan-e"),
        ("best", "yolov9-c"),
    ],
)
def test_names_find_their_row_of_the_memory_table(name: str, row: str) -> None:
    assert family(name) == row


def test_memory_per_picture_grows_with_area_and_number_format() -> None:
    small = picture_bytes("yolov9-s", 320, train=True, float32=False)
    large = picture_bytes("yolov9-s", 640, train=True, float32=False)
    assert large == pytest.approx(4 * small, rel=1e-6)
    assert picture_bytes("yolov9-s", 640, train=True, float32=True) > 1.9 * large
    assert picture_bytes("yolov9-s", 640, train=False, float32=False) < large / 4
