"""Picture files, EXIF orientations and label paths against parity/data/images.json and parity/data/mini."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from yolov9.data.image_check import check_image
from yolov9.data.images import ImageError, read_image
from yolov9.data.listing import IMAGE_SUFFIXES, label_path_of, list_pictures

SIZE_WH = (40, 24)
FILES = [
    "format-png",
    "format-jpg",
    "format-jpeg",
    "format-bmp",
    "format-tif",
    "format-tiff",
    "format-webp",
    "gif-named-png",
    "png-named-jpg",
    "grey-png",
    "rgba-png",
    "9px-high",
    "10px-high",
    "not-an-image",
    "zero-bytes",
    "jpeg-bad-tail",
]
PILLOW_FORMATS = {
    "jpg": "JPEG",
    "jpeg": "JPEG",
    "png": "PNG",
    "bmp": "BMP",
    "tif": "TIFF",
    "tiff": "TIFF",
    "webp": "WEBP",
}
USED_THOUGH_THE_REFERENCE_DOES_NOT = {"gif-named-png"}  # pictures are read by their content
CORNERS = {"red": (0, 0, 255), "green": (0, 255, 0), "blue": (255, 0, 0), "white": (255, 255, 255)}  # blue, green, red


@pytest.fixture(scope="module")
def facts(parity_dir):
    return json.loads((parity_dir / "data" / "images.json").read_text())


def _picture(size_wh=SIZE_WH):
    values = np.random.default_rng(0).integers(0, 255, (size_wh[1], size_wh[0], 3), dtype=np.uint8)
    return Image.fromarray(values)


def _encoded(picture, kind, **options):
    memory = io.BytesIO()
    picture.save(memory, kind, **options)
    return memory.getvalue()


def _bytes_of(name, file):
    match name:
        case "gif-named-png":
            return _encoded(_picture(), "GIF")
        case "png-named-jpg":
            return _encoded(_picture(), "PNG")
        case "grey-png":
            return _encoded(_picture().convert("L"), "PNG")
        case "rgba-png":
            return _encoded(_picture().convert("RGBA"), "PNG")
        case "9px-high" | "10px-high":
            return _encoded(_picture((40, int(name.removesuffix("px-high")))), "PNG")
        case "not-an-image":
            return b"this is text"
        case "zero-bytes":
            return b""
        case "jpeg-bad-tail":
            return _encoded(_picture(), "JPEG")[:-2] + b"\0\0"
    return _encoded(_picture(), PILLOW_FORMATS[file.rpartition(".")[2]])


def test_every_file_of_the_fixture_is_here(facts):
    assert list(facts["files"]) == FILES


@pytest.mark.parametrize("name", FILES)
def test_picture_is_used_or_refused_as_by_the_reference(name, facts, tmp_path):
    case = facts["files"][name]
    path = tmp_path / case["file"]
    data = _bytes_of(name, case["file"])
    path.write_bytes(data)
    if not case["kept"] and name not in USED_THOUGH_THE_REFERENCE_DOES_NOT:
        with pytest.raises(ImageError):
            check_image(str(path))
        return
    checked = check_image(str(path))
    wanted = case["shape_wh"] or list(SIZE_WH)
    assert [checked.width, checked.height] == wanted
    assert list(read_image(path).shape) == [wanted[1], wanted[0], 3]
    assert path.read_bytes() == data  # the reference rewrites a JPEG without end marker


@pytest.mark.parametrize("orientation", [None, *range(1, 10)])
def test_picture_is_upright_in_size_and_pixels(orientation, facts, tmp_path):
    (case,) = [case for case in facts["exif"] if case["orientation"] == orientation]
    width, height = case["stored_wh"]
    stored = np.zeros((height, width, 3), np.uint8)
    half_h, half_w = height // 2, width // 2
    for name, rows, columns in (
        ("red", slice(half_h), slice(half_w)),
        ("green", slice(half_h), slice(half_w, None)),
        ("blue", slice(half_h, None), slice(half_w)),
        ("white", slice(half_h, None), slice(half_w, None)),
    ):
        stored[rows, columns] = CORNERS[name][::-1]
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    path = tmp_path / "turned.jpg"
    Image.fromarray(stored).save(path, quality=95, subsampling=0, exif=exif)

    image = read_image(path)
    checked = check_image(str(path))

    # The reference takes the stored size for orientations 5 and 7; the size of the pixels is right for all of them.
    assert [checked.width, checked.height] == case["pixels_loaded_wh"]
    assert [image.shape[1], image.shape[0]] == case["pixels_loaded_wh"]
    corners = [image[2, 2], image[2, -3], image[-3, 2], image[-3, -3]]
    names = [min(CORNERS, key=lambda name: np.abs(corner - np.array(CORNERS[name])).sum()) for corner in corners]
    assert names == case["loaded_corners_tl_tr_bl_br"] == case["transpose_helper_corners"]
    assert case["transpose_helper_wh"] == case["pixels_loaded_wh"]


def test_suffixes_of_the_reference_are_pictures(facts):
    assert {f".{suffix}" for suffix in facts["image_suffixes"]} <= IMAGE_SUFFIXES


def test_label_path_is_that_of_the_reference(facts):
    # The reference cuts at the last dot of the whole path, which hits a folder when the file has no suffix.
    better = {"/d.e/images/l": "/d.e/labels/l.txt"}
    for picture, label in facts["label_path_of"].items():
        assert label_path_of(picture) == better.get(picture, label)


def test_pictures_of_the_mini_set_are_read(parity_dir):
    folder = parity_dir / "data" / "mini" / "images"
    items = json.loads((parity_dir / "data" / "val_items.json").read_text())["items"]
    sizes = {item["file"]: item["original_hw"] for item in items.values()}
    pictures = list_pictures((folder,), folder.parent)
    assert [path.rpartition("/")[2] for path in pictures] == sorted(sizes)
    for path in pictures:
        assert list(read_image(path).shape[:2]) == sizes[path.rpartition("/")[2]]
