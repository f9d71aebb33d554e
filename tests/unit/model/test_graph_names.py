import re
from pathlib import Path

import pytest
import torch

from yolov9.config.graph_names import known_graphs
from yolov9.errors import ExitCode, UserError
from yolov9.model import build_model
from yolov9.model.graph_file import read_graph


def test_twelve_names_are_known() -> None:
    sizes = [f"{family}-{size}" for family in ("gelan", "yolov9") for size in "tsmce"]
    assert known_graphs() == sorted([*sizes, "gelan-t-cls80", "yolov9-t-cls80"])


@pytest.mark.parametrize("spelling", ["models/detect/yolov9-s.yaml", "yolov9-s.yaml", "yolov9-s", "./yolov9-s.yml"])
def test_spellings_of_a_name_are_the_same_graph(spelling: str) -> None:
    assert read_graph(spelling) == read_graph("yolov9-s")


@pytest.mark.parametrize("name", ["yolov9-x", "yolov9-x.yaml", "", ".yaml", "yolov9-s.pt", "../graphs", "gelan-t-cls0"])
def test_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(UserError, match=r"yolov9-e") as caught:
        build_model(name)
    assert caught.value.exit_code is ExitCode.USAGE


def test_an_existing_file_wins_over_a_known_name(tmp_path: Path, tiny_graph: dict, graph_file) -> None:
    path = graph_file(tiny_graph).rename(tmp_path / "yolov9-s.yaml")
    assert len(build_model(path).model) == len(tiny_graph["layers"])


@pytest.mark.parametrize("name", ["gelan-t-cls80", "models/detect/yolov9-t-cls80.yaml"])
def test_narrow_head_by_name(name: str) -> None:
    with torch.device("meta"):
        model = build_model(name)
    widths = {m.shape[0] for key, m in model.state_dict().items() if re.search(r"\.cv[35]\.\d\.[01]\.conv\.", key)}
    assert widths == {80}
    assert model.class_width == 80


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"layers: [", "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"- 1\n- 2\n", "holds no keys"),
        (b"!!python/object/apply:os.system [touch marker]", "cannot be read"),
    ],
)
def test_file_that_is_no_graph(content: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_bytes(content)
    with pytest.raises(UserError, match=words):
        build_model("bad.yaml")
    assert not Path("marker").exists()


def test_oversized_file_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (2 << 20))
    with pytest.raises(UserError, match="bytes"):
        build_model(path)
