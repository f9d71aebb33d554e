"""The files that `detect` writes."""

import json
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from yolov9.config.settings import DetectSettings
from yolov9.data.images import read_image
from yolov9.engine.detect import detect_files
from yolov9.engine.detect_output import VideoFile
from yolov9.engine.detector import Detector, DetectorOptions
from yolov9.engine.draw import class_colour
from yolov9.errors import DataError, ExitCode, UserError

Make = Callable[..., Path]
Run = Callable[..., Path]


@pytest.fixture
def detect(weights: Path, tmp_path: Path) -> Run:
    """Runs detection on a source with small pictures; returns the run folder."""

    def run(source: Path | str, **options: object) -> Path:
        values = {"imgsz": 96, "conf_thres": 0.3, "max_det": 6, "device": "cpu", "weights": str(weights), **options}
        detect_files(DetectSettings(source=str(source), **values), tmp_path / "run")
        return tmp_path / "run"

    return run


@pytest.fixture
def expected(weights: Path, photo: Path):
    return Detector(weights, "cpu", DetectorOptions(imgsz=96, conf=0.3, max_det=6)).predict(read_image(photo))


def test_the_annotated_picture_shows_the_boxes(detect: Run, photo: Path, expected):
    drawn = read_image(detect(photo) / photo.name).astype(int)
    original = read_image(photo).astype(int)
    assert drawn.shape == original.shape
    x1, y1, _, y2 = np.clip(np.rint(expected.boxes[-1]), 0, [639, 479, 639, 479]).astype(int)
    middle = drawn[(y1 + y2) // 2, max(0, x1 - 1) : x1 + 2].mean(0)
    colours = [class_colour(number) for number in set(expected.classes.tolist())]
    assert min(np.abs(middle - colour).max() for colour in colours) < 90
    assert (np.abs(drawn - original).sum(2) > 60).mean() < 0.35


def test_label_files_hold_the_boxes_normalised(detect: Run, photo: Path, expected):
    rows = np.loadtxt(detect(photo, save_txt=True, nosave=True) / "labels" / f"{photo.stem}.txt", ndmin=2)
    assert rows.shape == (len(expected), 5)
    assert rows[:, 0].tolist() == expected.classes.tolist()
    corners = np.concatenate([rows[:, 1:3] - rows[:, 3:5] / 2, rows[:, 1:3] + rows[:, 3:5] / 2], 1)
    assert corners * [640, 480, 640, 480] == pytest.approx(expected.boxes, abs=0.01)


def test_save_conf_adds_the_confidence_as_last_column(detect: Run, photo: Path, expected):
    rows = np.loadtxt(detect(photo, save_txt=True, save_conf=True) / "labels" / f"{photo.stem}.txt", ndmin=2)
    assert rows[:, 5] == pytest.approx(expected.scores, abs=1e-5)


def test_the_json_file_lists_every_object(detect: Run, photo: Path, expected):
    rows = json.loads((detect(photo, save_json=True) / "predictions.json").read_text())
    assert [row["class_id"] for row in rows] == expected.classes.tolist()
    assert [row["name"] for row in rows] == expected.class_names
    assert rows[0]["image"] == str(photo)
    assert rows[0]["box_xyxy"] == pytest.approx(expected.boxes[0].tolist(), abs=0.01)


def test_nothing_found_gives_an_empty_label_file_and_an_empty_list(detect: Run, photo: Path):
    folder = detect(photo, conf_thres=0.9999, save_txt=True, save_json=True)
    assert (folder / "labels" / f"{photo.stem}.txt").read_text() == ""
    assert json.loads((folder / "predictions.json").read_text()) == []
    assert np.array_equal(read_image(folder / photo.name).shape, (480, 640, 3))


def test_a_second_run_in_the_same_folder_replaces_label_files(detect: Run, photo: Path):
    first = (detect(photo, save_txt=True) / "labels" / f"{photo.stem}.txt").read_text()
    assert (detect(photo, save_txt=True) / "labels" / f"{photo.stem}.txt").read_text() == first


def test_crops_lie_in_folders_of_their_class_inside_the_run_folder(detect: Run, photo: Path, expected):
    before = set(photo.parent.iterdir())
    folder = detect(photo, save_crop=True, nosave=True)
    crops = sorted(path.relative_to(folder / "crops").as_posix() for path in folder.rglob("*.jpg"))
    assert len(crops) == len(expected)
    assert {path.split("/")[0] for path in crops} <= {"RBC", "汽车", "_.._escape"}
    assert set(photo.parent.iterdir()) == before
    number = expected.class_names[0].replace("../../", "_.._")
    first = read_image(folder / "crops" / number / f"{photo.stem}_1.jpg")
    x1, y1, x2, y2 = expected.boxes[0]
    assert first.shape[:2] == (np.ceil(y2) - np.floor(y1), np.ceil(x2) - np.floor(x1))
    original = read_image(photo)[int(y1) : int(np.ceil(y2)), int(x1) : int(np.ceil(x2))]
    assert np.abs(first.astype(int) - original).mean() < 5  # taken before the boxes are drawn


def test_nosave_writes_no_picture(detect: Run, photo: Path):
    assert list(detect(photo, nosave=True).iterdir()) == []


def test_pictures_of_one_name_do_not_overwrite_each_other(detect: Run, tmp_path: Path, make_picture: Make):
    for name in ("a/x.jpg", "b/x.jpg"):
        make_picture(tmp_path / "in" / name)
    folder = detect(f"{tmp_path}/in/*/x.jpg", save_txt=True)
    assert sorted(path.name for path in folder.glob("x*.jpg")) == ["x.jpg", "x_2.jpg"]
    assert len(list((folder / "labels").iterdir())) == 2


def test_a_format_that_is_not_written_becomes_jpeg(detect: Run, real_data_dir: Path):
    folder = detect(real_data_dir / "odd" / "images" / "modern_avif.avif")
    assert (folder / "modern_avif.jpg").is_file()


def _read_video(path: Path) -> tuple[float, list[np.ndarray]]:
    capture = cv2.VideoCapture(str(path))
    frames = []
    while (entry := capture.read())[0]:
        frames.append(entry[1])
    fps = capture.get(cv2.CAP_PROP_FPS)
    capture.release()
    return fps, frames


def test_a_video_is_written_with_size_rate_and_number_of_frames(detect: Run, tmp_path: Path, make_video: Make):
    source = make_video(tmp_path / "in.avi", frames=5, fps=12.5)
    folder = detect(source, save_txt=True, save_json=True)
    fps, frames = _read_video(folder / "in.mp4")
    assert fps == 12.5
    assert [frame.shape for frame in frames] == [(48, 64, 3)] * 5
    assert np.median(frames[4]) > np.median(frames[0])
    assert sorted(path.name for path in (folder / "labels").iterdir()) == [f"in_{k}.txt" for k in range(1, 6)]
    assert {row["frame"] for row in json.loads((folder / "predictions.json").read_text())} <= {1, 2, 3, 4, 5}


def test_frames_with_odd_sides_are_written_whole(tmp_path: Path):
    image = np.full((51, 75, 3), 40, np.uint8)
    image[-1:], image[:, -1:] = 220, 220
    video = VideoFile(tmp_path, "odd", 10.0, (51, 75))
    video.add(image)
    video.add(np.zeros((30, 30, 3), np.uint8))
    video.close()
    _, frames = _read_video(video.path)
    assert [frame.shape for frame in frames] == [(52, 76, 3)] * 2
    assert frames[0][-1, -1].min() > 150


def test_vid_stride_thins_a_video_and_keeps_its_length(detect: Run, tmp_path: Path, make_video: Make):
    folder = detect(make_video(tmp_path / "in.mp4", frames=6, fps=12), vid_stride=2)
    fps, frames = _read_video(folder / "in.mp4")
    assert (fps, len(frames)) == (6, 3)


def test_two_videos_in_a_folder_keep_their_own_rates(detect: Run, tmp_path: Path, make_video: Make):
    (tmp_path / "in").mkdir()
    make_video(tmp_path / "in" / "a.mp4", frames=2, fps=5)
    make_video(tmp_path / "in" / "b.mp4", frames=2, fps=24, size_wh=(80, 64))
    folder = detect(tmp_path / "in")
    assert [_read_video(folder / f"{name}.mp4")[0] for name in ("a", "b")] == [5, 24]


def test_hidden_labels_and_scores_change_the_drawing(detect: Run, photo: Path):
    full = read_image(detect(photo) / photo.name)
    no_scores = read_image(detect(photo, hide_conf=True) / photo.name)
    no_labels = read_image(detect(photo, hide_labels=True) / photo.name)
    thick = read_image(detect(photo, hide_labels=True, line_thickness=9) / photo.name)
    original = read_image(photo)
    changed = [
        (np.abs(image.astype(int) - original).sum(2) > 60).sum() for image in (full, no_scores, no_labels, thick)
    ]
    assert changed[0] > changed[1] > changed[2]
    assert changed[3] > changed[2]


def test_one_line_per_picture_and_totals_are_logged(detect: Run, photo: Path, log_lines: list[str]):
    detect(photo)
    assert any(photo.name in line and "640x480" in line and " ms" in line for line in log_lines)
    assert any("pictures or frames: 1, objects: 6" in line for line in log_lines)


def test_names_are_never_formatted_into_the_log(detect: Run, tmp_path: Path, make_picture: Make, log_lines: list[str]):
    detect(make_picture(tmp_path / "%s %d {0}.png"))
    assert any("%s %d {0}.png" in line for line in log_lines)


def test_only_broken_files_end_with_a_data_error(detect: Run, tmp_path: Path):
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"bad\.jpg"):
        detect(tmp_path / "bad.jpg")


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    """A data file for its class names alone."""
    path = tmp_path / "animals.yaml"
    path.write_text("names: [ant, bee, cat]\n")
    return path


def test_weights_without_names_take_those_of_the_data_file(
    detect: Run, photo: Path, unnamed_weights: Path, animals: Path, expected
):
    folder = detect(photo, weights=str(unnamed_weights), data=str(animals), save_json=True)
    names = [row["name"] for row in json.loads((folder / "predictions.json").read_text())]
    assert names == [("ant", "bee", "cat")[number] for number in expected.classes]


def test_names_in_the_weights_stand_over_those_of_the_data_file(detect: Run, photo: Path, animals: Path, expected):
    folder = detect(photo, data=str(animals), save_json=True)
    rows = json.loads((folder / "predictions.json").read_text())
    assert [row["name"] for row in rows] == expected.class_names


def test_a_data_file_of_another_number_of_classes_is_refused(
    detect: Run, photo: Path, unnamed_weights: Path, animals: Path
):
    animals.write_text("names: [ant, bee]\n")
    with pytest.raises(UserError, match="names 2 classes, the weights have 3"):
        detect(photo, weights=str(unnamed_weights), data=str(animals))


def test_missing_weights_are_a_plain_error(detect: Run, photo: Path):
    with pytest.raises(UserError, match=r"absent\.pt"):
        detect(photo, weights="/nowhere/absent.pt")


def test_a_run_folder_that_cannot_be_made_has_its_own_exit_code(weights: Path, photo: Path, tmp_path: Path):
    (tmp_path / "file").write_text("x")
    settings = DetectSettings(source=str(photo), weights=str(weights), device="cpu", imgsz=96)
    with pytest.raises(UserError) as error:
        detect_files(settings, tmp_path / "file" / "run")
    assert error.value.exit_code == ExitCode.OUTPUT_NOT_WRITABLE
