"""Reading pictures: orientation in every format, depth, reduced size, damage, bombs, file names in the C locale."""

import contextlib
import io
import os
import resource
import struct
import subprocess
import sys
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from yolov9.data.headers import TruncatedHeaderError, exif_orientation, parse_header
from yolov9.data.image_check import check_image
from yolov9.data.images import MAX_PIXELS, ImageError, decode_image, read_image

CORNER_COLOURS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]], np.uint8)  # red, green, blue, white
UPRIGHT_CORNERS = {1: "0123", 2: "1032", 3: "3210", 4: "2301", 5: "0213", 6: "2031", 7: "3120", 8: "1302"}
"""Which stored corner shows at top left, top right, bottom left and bottom right (EXIF 2.32, tag Orientation)."""


def _marked():
    """A 48 x 32 picture whose quarters have different colours."""
    image = np.zeros((32, 48, 3), np.uint8)
    image[:16, :24], image[:16, 24:], image[16:, :24], image[16:, 24:] = CORNER_COLOURS
    return image


def _saved(path, image=None, **options):
    Image.fromarray(_marked() if image is None else image).save(path, **options)
    return str(path)


def _corners(image):
    seen = [image[4, 4], image[4, -5], image[-5, 4], image[-5, -5]]
    distance = [[np.abs(pixel[::-1].astype(int) - colour).sum() for colour in CORNER_COLOURS] for pixel in seen]
    return "".join(str(int(np.argmin(row))) for row in distance)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
def test_every_orientation_is_shown_upright_in_every_format(suffix, orientation, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"jpg": {"quality": 95, "subsampling": 0}, "webp": {"lossless": True}}.get(suffix, {})
    path = _saved(tmp_path / f"p.{suffix}", exif=exif, **options)
    checked, image = check_image(path), read_image(path)
    assert _corners(image) == UPRIGHT_CORNERS[orientation]
    assert (checked.width, checked.height) == (image.shape[1], image.shape[0])
    assert (image.shape[1] > image.shape[0]) == (orientation < 5)


@pytest.mark.parametrize("reduce", [1, 2, 4, 8])
@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "webp", "gif", "tiff"])
def test_reduced_picture_has_the_rounded_up_size_and_the_same_content(suffix, reduce, tmp_path):
    image = cv2.resize(_marked(), (101, 67), interpolation=cv2.INTER_NEAREST)
    small = read_image(_saved(tmp_path / f"p.{suffix}", image), reduce)
    assert small.shape == (-(-67 // reduce), -(-101 // reduce), 3)
    if reduce < 8:
        assert _corners(small) == "0123"


def test_reduced_picture_is_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = _saved(tmp_path / "p.jpg", exif=exif, quality=95)
    assert read_image(path, 2).shape == (24, 16, 3)
    assert _corners(read_image(path, 2)) == UPRIGHT_CORNERS[6]


@pytest.mark.parametrize("suffix", ["png", "tiff"])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bit_values_are_scaled_to_8_bit(suffix, channels, tmp_path):
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    deep = np.repeat(ramp[..., None], channels, axis=2)
    path = tmp_path / f"p.{suffix}"
    cv2.imwrite(str(path), deep)
    assert np.abs(read_image(path).astype(int) - (ramp >> 8)[..., None]).max() <= 1


def test_16_bit_values_of_a_format_that_pillow_reads_are_scaled_to_8_bit(tmp_path):
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    path = tmp_path / "p.jp2"
    cv2.imwrite(str(path), ramp)
    assert np.abs(read_image(path).astype(int) - (ramp >> 8)[..., None]).max() <= 1


def test_grey_and_palette_and_alpha_become_three_channels(tmp_path):
    for number, mode in enumerate(("L", "P", "RGBA", "LA", "1")):
        path = tmp_path / f"{number}.png"
        Image.fromarray(_marked()).convert(mode).save(path)
        assert read_image(path).shape == (32, 48, 3)


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_32_bit_values_are_refused_since_their_range_is_not_known(kind, tmp_path):
    Image.fromarray(np.ones((20, 30), kind)).save(tmp_path / "a.tif")
    with pytest.raises(ImageError, match="8 or 16 bits"):
        read_image(tmp_path / "a.tif")


def test_first_frame_of_an_animation_is_taken(tmp_path):
    frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "blue")]
    for suffix in ("gif", "webp"):
        path = tmp_path / f"a.{suffix}"
        frames[0].save(path, save_all=True, append_images=frames[1:])
        assert read_image(path)[16, 16].argmax() == 2


def test_orientation_in_a_jpeg_whose_header_is_long_is_found(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 8
    icc = np.random.default_rng(0).bytes(200_000)  # several segments before the frame header
    path = _saved(tmp_path / "p.jpg", exif=exif, icc_profile=icc)
    assert (check_image(path).width, check_image(path).height) == (32, 48)


def _png_claiming(width, height):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")
    )


def _claiming(suffix, tmp_path):
    """A file of less than 10 kB whose header claims 60000 x 60000 pixels."""
    side = 60000
    path = tmp_path / f"bomb.{suffix}"
    if suffix == "png":
        path.write_bytes(_png_claiming(side, side))
        return path
    _saved(path, np.zeros((16, 16, 3), np.uint8))
    data = bytearray(path.read_bytes())
    if suffix == "jpg":
        at = data.index(b"\xff\xc0")
        data[at + 5 : at + 9] = struct.pack(">HH", side, side)
    elif suffix == "bmp":
        data[18:26] = struct.pack("<ii", side, side)
    elif suffix == "gif":
        data[6:10] = struct.pack("<HH", side, side)
    elif suffix == "tiff":
        with Image.open(path) as picture:
            offset = struct.unpack_from("<I", data, 4)[0]
            assert picture.tag_v2[256] == 16
        for entry in range(offset + 2, offset + 2 + 24, 12):
            if struct.unpack_from("<H", data, entry)[0] in (256, 257):
                data[entry + 2 : entry + 12] = struct.pack("<HII", 4, 1, side)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "gif", "tiff"])
def test_picture_that_claims_to_be_huge_is_refused_without_taking_memory(suffix, tmp_path):
    path = _claiming(suffix, tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (read_image, lambda path: check_image(str(path))):
        with pytest.raises(ImageError, match="60000x60000"):
            read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB; decoded it would be 10 GB
    assert path.stat().st_size < 10_000
    assert MAX_PIXELS < 60000 * 60000


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "webp", "gif", "tiff"])
def test_file_cut_at_half_is_found_by_the_scan(suffix, tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (200, 300, 3), dtype=np.uint8)
    path = tmp_path / f"cut.{suffix}"
    _saved(path, noise)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ImageError):
        check_image(str(path))


def test_jpeg_without_end_marker_is_used_and_said(tmp_path):
    path = tmp_path / "p.jpg"
    _saved(path, np.random.default_rng(0).integers(0, 255, (200, 300, 3), dtype=np.uint8))
    whole = read_image(path)
    path.write_bytes(path.read_bytes()[:-2])
    assert "end marker" in check_image(str(path)).note
    np.testing.assert_array_equal(read_image(path), whole)


def test_progressive_jpeg_cut_at_half_is_found_by_the_scan(tmp_path):
    path = tmp_path / "p.jpg"
    _saved(path, np.random.default_rng(0).integers(0, 255, (200, 300, 3), dtype=np.uint8), progressive=True)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ImageError, match="cut off"):
        check_image(str(path))


def test_camera_jpeg_with_padding_after_its_end_is_sound(tmp_path):
    path = tmp_path / "p.jpg"
    _saved(path)
    path.write_bytes(path.read_bytes() + b"\0" * 500)
    assert check_image(str(path)).note == ""


def test_missing_picture_is_named():
    with pytest.raises(ImageError, match="/nowhere/a"):
        read_image("/nowhere/a.jpg")


@given(st.binary(max_size=300), st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"RIFF....WEBP"]))
def test_any_bytes_are_decoded_or_refused(data, start):
    with contextlib.suppress(TruncatedHeaderError):
        parse_header(start + data)
    assert 1 <= exif_orientation(data) <= 8
    with contextlib.suppress(ValueError):
        assert decode_image(start + data).dtype == np.uint8


def test_pictures_with_names_in_other_scripts_are_read_in_the_c_locale(tmp_path):
    names = ["größe_写真.jpg", "🙂 b.jpg", b"caf\xe9.jpg".decode("utf-8", "surrogateescape")]
    memory = io.BytesIO()
    Image.fromarray(_marked()).save(memory, "JPEG")
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    for name in names:
        (tmp_path / "images" / name).write_bytes(memory.getvalue())
        (tmp_path / "labels" / name.replace(".jpg", ".txt")).write_text("0 0.5 0.5 0.2 0.2\n")
    (tmp_path / "labels" / names[0].replace(".jpg", ".txt")).write_text("0 0.5 0.5 0.2 0.2\n0 nan 0 0 0\n")
    (tmp_path / "data.yaml").write_text("train: images\nval: images\nnames: [車]\n", encoding="utf-8")
    code = (
        "import sys; from pathlib import Path; from yolov9.logs import setup_logging; setup_logging(); "
        "from yolov9.data import DatasetIndex, load_dataset_config, read_image; "
        "index = DatasetIndex.build(load_dataset_config(sys.argv[1]), 'train', cache_dir=Path(sys.argv[2])); "
        "index.summary.write_report(Path(sys.argv[2]) / 'report.txt'); "
        "assert [read_image(index.path(n)).shape for n in range(len(index))] == [(32, 48, 3)] * 3; "
        "assert len(index.labels) == 3; assert 'torch' not in sys.modules"
    )
    environment = {
        "LANG": "C",
        "LC_ALL": "C",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONUTF8": "0",
        "PATH": os.environ["PATH"],
    }
    command = [sys.executable, "-c", code, str(tmp_path), str(tmp_path / "cache")]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"not a finite number" in done.stderr
