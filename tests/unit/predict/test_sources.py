"""What the text of --source means."""

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cv2
import numpy as np
import pytest

from yolov9.data.fetch import fetch_picture
from yolov9.data.images import ImageError
from yolov9.data.sources import open_source
from yolov9.data.video import Frame, mask_password
from yolov9.errors import UserError

Make = Callable[..., Path]


def _frames(text: str | Path, **options: int) -> list[Frame]:
    with open_source(str(text), **options) as source:
        return [frame for group in source for frame in group]


def _names(text: str | Path) -> list[str]:
    return [Path(frame.origin).name for frame in _frames(text)]


@pytest.mark.parametrize(
    "name", ["a b.jpg", "图片 1.PNG", "IMG.JPG", "x.y.jpeg", "[1]*.png", "50%d.bmp", "-x.jpg", "😀.webp"]
)
def test_a_picture_of_any_name_is_read(name: str, tmp_path: Path, make_picture: Make):
    make_picture(tmp_path / name)
    (frame,) = _frames(tmp_path / name)
    assert (frame.kind, frame.image.shape, frame.origin) == ("picture", (30, 40, 3), str(tmp_path / name))


def test_an_undecodable_file_name_is_read(tmp_path: Path, make_picture: Make):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jpg"))
    make_picture(path)
    assert len(_frames(path)) == 1


def test_a_folder_gives_pictures_and_videos_by_name(tmp_path: Path, make_picture: Make, make_video: Make):
    for name in ("b.JPG", "a.png", "._hidden.jpg", "sub/deep.jpg"):
        make_picture(tmp_path / name)
    make_video(tmp_path / "c.mp4", frames=2)
    (tmp_path / "Thumbs.db").write_bytes(b"x")
    assert _names(tmp_path) == ["a.png", "b.JPG", "c.mp4", "c.mp4"]


def test_groups_are_filled_in_order(tmp_path: Path, make_picture: Make):
    for number in range(5):
        make_picture(tmp_path / f"{number}.png", colour=number)
    with open_source(str(tmp_path), group=2) as source:
        assert [[int(frame.image[0, 0, 0]) for frame in group] for group in source] == [[0, 1], [2, 3], [4]]


def test_a_glob_goes_into_folders_and_leaves_other_files_out(tmp_path: Path, make_picture: Make):
    for name in ("a/1.jpg", "b/2.jpg", "b/3.png"):
        make_picture(tmp_path / name)
    (tmp_path / "b" / "4.txt").write_text("x")
    assert _names(f"{tmp_path}/**/*.jpg") == ["1.jpg", "2.jpg"]
    assert _names(f"{tmp_path}/b/*") == ["2.jpg", "3.png"]


def test_a_list_file_names_pictures_relative_to_itself(tmp_path: Path, make_picture: Make, log_lines: list[str]):
    make_picture(tmp_path / "pictures" / "1 2.jpg")
    make_picture(tmp_path / "other.png")
    listing = tmp_path / "list.txt"
    listing.write_text(f"\ufeff# comment\n./pictures/1 2.jpg\r\n\n{tmp_path}/other.png\nabsent.jpg\n", encoding="utf-8")
    assert _names(listing) == ["1 2.jpg", "other.png"]
    assert any("absent.jpg" in line for line in log_lines)


@pytest.mark.parametrize(
    ("content", "words"), [("", "empty"), ("a.jpg\nb.jpg\n", "none of the 2"), ("a.jpg\nrtsp://u:p@h/x\n", "mixes")]
)
def test_a_list_without_a_usable_line_is_an_error(content: str, words: str, tmp_path: Path):
    (tmp_path / "list.txt").write_text(content)
    with pytest.raises(UserError, match=words) as error:
        _frames(tmp_path / "list.txt")
    assert "u:p@" not in str(error.value)


def test_every_frame_of_a_video_is_read_with_its_rate(tmp_path: Path, make_video: Make):
    frames = _frames(make_video(tmp_path / "v.mp4", frames=6, fps=12.5))
    assert [frame.number for frame in frames] == [1, 2, 3, 4, 5, 6]
    assert {(frame.kind, frame.total, frame.fps) for frame in frames} == {("video", 6, 12.5)}
    means = [frame.image.mean() for frame in frames]
    assert means == pytest.approx([20, 40, 60, 80, 100, 120], abs=6)


def test_vid_stride_keeps_the_first_frame_and_the_playing_time(tmp_path: Path, make_video: Make):
    frames = _frames(make_video(tmp_path / "v.avi", frames=7, fps=10), vid_stride=3)
    assert [(frame.number, frame.fps) for frame in frames] == [(1, pytest.approx(10 / 3))] + [
        (number, pytest.approx(10 / 3)) for number in (4, 7)
    ]


def test_each_video_keeps_its_own_rate(tmp_path: Path, make_video: Make):
    make_video(tmp_path / "a.mp4", frames=2, fps=5)
    make_video(tmp_path / "b.mp4", frames=2, fps=24)
    assert [frame.fps for frame in _frames(tmp_path)] == [5, 5, 24, 24]


def test_a_broken_video_or_picture_in_a_folder_is_left_out(tmp_path: Path, make_picture: Make, log_lines: list[str]):
    (tmp_path / "a.mp4").write_bytes(b"no video")
    (tmp_path / "b.jpg").write_bytes(b"")
    make_picture(tmp_path / "c.jpg")
    with open_source(str(tmp_path)) as source:
        assert sum(len(group) for group in source) == 1
        assert [Path(line.split(": ")[0]).name for line in source.skipped] == ["a.mp4", "b.jpg"]
    assert sum("left out" in line for line in log_lines) == 2


def test_a_picture_that_is_cut_off_is_looked_at_and_told(tmp_path: Path, log_lines: list[str]):
    noise = np.random.default_rng(0).integers(0, 256, (100, 100, 3), np.uint8)
    data = cv2.imencode(".jpg", noise)[1].tobytes()
    (tmp_path / "whole.jpg").write_bytes(data)
    (tmp_path / "half.jpg").write_bytes(data[: len(data) // 2])
    assert len(_frames(tmp_path)) == 2
    assert [line for line in log_lines if "cut off" in line] == [
        f"WARNING {tmp_path / 'half.jpg'}: cut off, so only a part of the picture can be looked at"
    ]


def test_real_odd_pictures_come_out_upright_or_are_left_out(real_data_dir: Path):
    with open_source(str(real_data_dir / "odd" / "images"), group=4) as source:
        shapes = {Path(frame.origin).name: frame.image.shape for group in source for frame in group}
        skipped = {Path(line.split(": ")[0]).name for line in source.skipped}
    upright = shapes["ordinary.jpg"]
    assert {name: shapes[name] for name in shapes if name.startswith("phone_rotated")}
    for turn in (6, 8):
        height, width, _ = shapes[f"phone_rotated_{turn}.jpg"]
        stored = cv2.imread(
            str(real_data_dir / "odd" / "images" / f"phone_rotated_{turn}.jpg"),
            cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION,
        )
        assert (width, height) == stored.shape[:2]
    assert {"empty_file.png", "download_failed.jpg", "header_claims_25000.png"} <= skipped
    assert upright == (162, 288, 3)
    assert "still.gif" in shapes


def test_without_a_source_a_sample_picture_of_our_own_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: list[str]
):
    monkeypatch.setenv("YOLOV9_CACHE_DIR", str(tmp_path))
    (frame,) = _frames("")
    assert frame.image.std() > 10
    assert any("sample picture" in line for line in log_lines)


def test_a_missing_picture_says_what_was_tried_and_what_is_near(tmp_path: Path, make_picture: Make):
    make_picture(tmp_path / "horses.jpeg")
    with pytest.raises(UserError, match=r"horses\.jpeg") as error:
        _frames(tmp_path / "horses.jpg")
    assert str(tmp_path / "horses.jpg") in error.value.found


def test_a_missing_folder_is_named():
    with pytest.raises(UserError, match="folder /nowhere/at/all does not exist"):
        _frames("/nowhere/at/all/x.jpg")


def test_a_glob_without_a_match_names_the_pattern(tmp_path: Path):
    with pytest.raises(UserError, match="no picture or video matches"):
        _frames(f"{tmp_path}/*.jpg")


def test_a_folder_of_folders_suggests_a_glob(tmp_path: Path, make_picture: Make):
    make_picture(tmp_path / "deep" / "x.jpg")
    with pytest.raises(UserError) as error:
        _frames(tmp_path)
    assert "**/*.jpg" in error.value.remedy


def test_a_camera_that_is_not_there_is_a_plain_error():
    with pytest.raises(UserError, match="camera"):
        _frames("97")


def test_an_address_that_does_not_answer_is_a_plain_error_without_the_password():
    with pytest.raises(UserError) as error:
        _frames("http://user:secret@127.0.0.1:9/x.mp4")
    assert "secret" not in str(error.value)
    assert "user:***@" in str(error.value)


def test_vid_stride_below_one_is_refused():
    with pytest.raises(UserError, match="vid-stride"):
        _frames("x", vid_stride=0)


def test_passwords_are_masked():
    assert mask_password("rtsp://a:b@host:554/x@y?z") == "rtsp://a:***@host:554/x@y?z"
    assert mask_password("/home/a@b.jpg") == "/home/a@b.jpg"
    assert mask_password("http://host/x@y") == "http://host/x@y"
    assert mask_password("http://a:b@[") == "http://a:***@["


@pytest.mark.parametrize("address", ["http://127.0.0.1:abc/x.jpg", "http://127.0.0.1/a b.jpg", "http://[/x.jpg"])
def test_a_picture_address_that_is_none_is_a_picture_that_cannot_be_read(address: str) -> None:
    with pytest.raises(ImageError, match="http://"):
        fetch_picture(address)


def test_an_address_that_is_none_is_refused_like_one_that_does_not_answer() -> None:
    with pytest.raises(UserError, match=r"http://\["), open_source("http://[") as source:
        list(source)


class _Handler(SimpleHTTPRequestHandler):
    """Serves files, half of /half.jpg, and /live as an endless MJPEG stream that breaks off after 12 frames."""

    def do_GET(self) -> None:
        if self.path.startswith("/half"):
            data = cv2.imencode(".jpg", np.zeros((48, 64, 3), np.uint8))[1].tobytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            return
        if not self.path.startswith("/live"):
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
        self.end_headers()
        for number in range(12):
            data = cv2.imencode(".jpg", np.full((48, 64, 3), 20 * number, np.uint8))[1].tobytes()
            head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n"
            self.wfile.write(head.encode() + data + b"\r\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def http_server(tmp_path: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_video_behind_http_is_read_whole(http_server: str, tmp_path: Path, make_video: Make):
    make_video(tmp_path / "v.mp4", frames=5)
    assert [frame.number for frame in _frames(f"{http_server}/v.mp4")] == [1, 2, 3, 4, 5]


def test_a_picture_behind_http_is_read(http_server: str, tmp_path: Path, make_picture: Make):
    make_picture(tmp_path / "x.jpg")
    assert [(frame.kind, frame.image.shape) for frame in _frames(f"{http_server}/x.jpg?size=1")] == [
        ("picture", (30, 40, 3))
    ]


def test_a_picture_that_the_server_does_not_have_is_left_out(http_server: str, log_lines: list[str]):
    assert _frames(f"{http_server}/absent.jpg") == []
    assert any("404" in line for line in log_lines)


def test_a_picture_whose_connection_ends_in_the_middle_is_left_out(http_server: str, log_lines: list[str]):
    assert _frames(f"{http_server}/half.jpg") == []
    assert any("the connection ended after" in line for line in log_lines)


def test_a_live_stream_gives_frames_until_it_ends(http_server: str):
    frames = _frames(f"{http_server}/live")
    assert frames
    assert {(frame.kind, frame.total, frame.image.shape) for frame in frames} == {("stream", None, (48, 64, 3))}
    numbers = [frame.number for frame in frames]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 12


def test_several_streams_run_side_by_side(http_server: str, tmp_path: Path):
    (tmp_path / "list.streams").write_text(f"{http_server}/live?a\n{http_server}/live?b\n")
    frames = _frames(tmp_path / "list.streams")
    assert {frame.origin[-1] for frame in frames} == {"a", "b"}


def test_leaving_a_live_stream_early_leaves_no_thread(http_server: str):
    before = threading.active_count()
    with open_source(f"{http_server}/live") as source:
        next(iter(source))
    streams = [thread for thread in threading.enumerate() if thread.name.startswith("stream")]
    assert streams == []
    assert threading.active_count() <= before + 1  # the server's own thread for the request
