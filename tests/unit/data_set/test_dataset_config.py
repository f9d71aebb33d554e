"""data.yaml: where splits are looked for, and what is said when they are not there."""

import pytest

from yolov9.data import DatasetIndex, load_dataset_config
from yolov9.data.dataset_config import DatasetConfig
from yolov9.errors import DataError, ExitCode

FROM_ANOTHER_MACHINE = "/home/somebody/else/set"


@pytest.fixture
def folder(make_set):
    make_set({"t0": "0 0.5 0.5 0.2 0.2", "t1": "1 0.5 0.5 0.2 0.2"}, split="train")
    return make_set({"v0": "0 0.5 0.5 0.2 0.2"}, split="val").parent


def _load(folder, text, **options) -> DatasetConfig:
    (folder / "data.yaml").write_text(text + "\nnames: [a, b, c]\n", encoding="utf-8")
    return load_dataset_config(str(folder / "data.yaml"), **options)


@pytest.mark.parametrize(
    "text",
    [
        "train: ../images/train\nval: ../images/val",
        "train: images/train\nval: images/val",
        "path: .\ntrain: images/train\nval: images/val",
        f"path: {FROM_ANOTHER_MACHINE}\ntrain: images/train\nval: images/val",
        f"train: {FROM_ANOTHER_MACHINE}/images/train\nval: {FROM_ANOTHER_MACHINE}/images/val",
        "path: C:\\data\\set\ntrain: images\\train\nval: images\\val",
        "train: [images/train]\nval: [images/val]",
        "train: train.txt\nval: val.txt",
        "train: images/train\nvalid: images/val",
        "train: images/train\nval: images/val\ntest:",
        "train: images/train\nval: images/val\ntest: images/not-there",
        "path: ''\ntrain: ./images/train/\nval: ./images/val/",
        "train: Name-3/images/train\nval: Name-3/images/val",
        "path: ../datasets/name\ntrain: images/train\nval: images/val",
    ],
)
@pytest.mark.parametrize("working_folder", ["/", "set", "elsewhere"])
def test_splits_are_found_from_any_working_folder(text, working_folder, folder, tmp_path, monkeypatch):
    for split, stems in (("train", ("t0", "t1")), ("val", ("v0",))):
        rows = "".join(f"./images/{split}/{stem}.png\n" for stem in stems)
        (folder / f"{split}.txt").write_text(rows, encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / working_folder)
    config = _load(folder, text)
    assert len(DatasetIndex.build(config, "train", cache_dir=None)) == 2
    assert len(DatasetIndex.build(config, "val", cache_dir=None)) == 1


def test_set_that_was_moved_is_found_at_its_new_place(folder, tmp_path):
    folder.rename(tmp_path / "moved")
    config = load_dataset_config(str(tmp_path / "moved"))
    assert config.splits["train"][0].is_relative_to(tmp_path / "moved")


def test_relative_data_path_is_resolved_once(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = load_dataset_config("set/data.yaml")
    monkeypatch.chdir("/")
    assert config.path.is_absolute()
    assert config.splits["train"][0].is_dir()


def test_list_entries_may_be_relative_to_the_data_set(folder):
    (folder / "lists").mkdir()
    (folder / "lists" / "train.txt").write_text("images/train/t0.png\n\n# comment\n", encoding="utf-8")
    config = _load(folder, "train: lists/train.txt\nval: images/val")
    assert len(DatasetIndex.build(config, "train", cache_dir=None)) == 1


def test_missing_folder_lists_every_path_tried(folder):
    with pytest.raises(DataError) as caught:
        _load(folder, "train: ../pictures/train\nval: images/val")
    assert str(folder / "pictures/train") in caught.value.found
    assert str(folder.parent / "pictures/train") in caught.value.found
    assert caught.value.exit_code == ExitCode.BAD_DATA
    assert "\n" not in caught.value.found  # an error has three lines


def test_a_single_folder_name_at_the_end_of_an_entry_is_not_enough(folder):
    with pytest.raises(DataError, match="'val'"):
        _load(folder, "train: images/train\nval: valid/images")


def test_one_missing_folder_of_a_list_is_an_error(folder):
    with pytest.raises(DataError, match="not-there"):
        _load(folder, "train: [images/train, images/not-there]\nval: images/val")


def test_missing_data_yaml_names_its_full_path_and_what_lies_beside(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "other.yaml").touch()
    with pytest.raises(DataError) as caught:
        load_dataset_config("dta.yaml")
    assert str(folder / "dta.yaml") in caught.value.found
    assert "data.yaml, other.yaml" in caught.value.found


def test_split_that_is_not_required_may_be_missing(folder):
    config = _load(folder, "val: images/val", require=("val",))
    with pytest.raises(DataError, match="no key 'train'"):
        config.sources("train")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("names: [a, b]\nnc: 3", "nc is 3 but 'names' has 2"),
        ("names: {0: a, 2: c}", "no name for class 1"),
        ("names: {1: a, 2: b}", "no name for class 0"),
        ("names: {a: 0}", "not a class number"),
        ("nc: many", "'many'"),
        ("nc: 0", "'0'"),
        ("path: .", "neither 'names' nor 'nc'"),
        ("- a\n- b", "not a mapping"),
        ("names: [a, b", "line "),
        ("names: [a]\nnames: [b]", "line 2: 'names' stands there a second time"),
        ("names:\n  0: a\n  1: b\n  1: c", "line 4: '1' stands there a second time"),
        ("names: [{0: a}, {1: b}]", "class 0 is called {'0': 'a'}"),
        ("names: a, b", "one text, not a list"),
        ('names: [a]\npath: "C:\\Users"', "single quotes"),
        ("names: [a]\nkpt_shape: 17", "kpt_shape"),
        ("\xff", "not UTF-8"),
    ],
)
def test_bad_content_is_named(text, words, folder):
    file = folder / "data.yaml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError) as caught:
        load_dataset_config(str(file))
    assert words in caught.value.found
    assert str(file) in caught.value.found


def test_shape_of_key_points_gives_their_columns(folder):
    config = _load(folder, "train: images/train\nval: images/val\nkpt_shape: [17, 3]")
    assert config.key_point_columns == 51


def test_names_stay_as_typed(folder):
    file = folder / "data.yaml"
    file.write_text("train: images/train\nval: images/val\nnames: [no, 007, Straße, 1.0]\n", encoding="utf-8")
    assert load_dataset_config(str(file)).names == ("no", "007", "Straße", "1.0")


def test_number_of_classes_alone_gives_numbered_names(folder):
    file = folder / "data.yaml"
    file.write_text("train: images/train\nval: images/val\nnc: 2\n", encoding="utf-8")
    assert load_dataset_config(str(file)).names == ("class0", "class1")


def test_folder_that_is_a_link_to_its_parent_is_walked_once(folder):
    (folder / "images" / "train" / "loop").symlink_to(folder / "images" / "train")
    config = _load(folder, "train: images/train\nval: images/val")
    assert len(DatasetIndex.build(config, "train", cache_dir=None)) == 2


def test_list_that_goes_away_is_an_error_that_names_it(folder):
    (folder / "train.txt").touch()
    config = _load(folder, "train: train.txt\nval: images/val")
    (folder / "train.txt").unlink()
    with pytest.raises(DataError, match=r"train\.txt"):
        DatasetIndex.build(config, "train", cache_dir=None)
