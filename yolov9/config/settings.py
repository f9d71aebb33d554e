"""Settings of the commands. Every field carries its flags and help text; the command line is made of them."""

from dataclasses import dataclass, field
from typing import Any

NOMINAL_BATCH = 64
"""Optimisation batch of the published recipe: pictures per optimizer step."""
DEFAULT_MODEL = "yolov9-s"
"""Model that is trained when neither --cfg nor --weights names one."""

FIND_LARGEST = -1
"""Micro-batch that is measured when the training starts: as many pictures as fit."""
FIND_FASTEST = 0
"""The same, and fewer where more are not faster."""
FIND = (FIND_LARGEST, FIND_FASTEST)


def option(default: Any, *flags: str, help: str, **argparse_options: Any) -> Any:
    """A dataclass field that is also a command-line option.

    Args:
        default: value when nobody gives one; None means that the plan decides.
        flags: spellings on the command line, the usual one first.
        help: what it does, its unit, and what special values mean.
        argparse_options: `choices`, `nargs`, `const`, `metavar` as in argparse; the type is the field's.
    """
    metadata = {"flags": flags, "help": help, "argparse_options": argparse_options}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(kw_only=True)
class RunSettings:
    """Options that every command on a model has."""

    imgsz: int = option(640, "--img", "--imgsz", "--img-size", help="picture size in pixels; a multiple of 32")
    device: str = option("", "--device", help='"" picks a GPU or else the CPU; cpu; 0; 0,1; a GPU UUID')
    gpu_share: float | None = option(
        None, "--gpu-share", help="share of the GPU's memory for this job; default: 1 / jobs"
    )
    workers: int | None = option(
        None, "--workers", help="processes that prepare pictures; default: as many as the CPU limit allows"
    )
    project: str = option("", "--project", help="folder that holds the results; default: runs/COMMAND")
    name: str = option("exp", "--name", help="name of this run; a number is appended when it exists")
    exist_ok: bool = option(False, "--exist-ok", help="use the folder of --name even when it exists")
    single_cls: bool = option(False, "--single-cls", help="treat all classes as one")
    seed: int = option(0, "--seed", help="seed of every random choice")
    quiet: bool = option(False, "--quiet", help="show warnings, errors and results only")


@dataclass(kw_only=True)
class TrainSettings(RunSettings):
    """Options of `train`."""

    data: str = option(
        "", "--data", help="data.yaml of the data set; default: a small data set that is drawn on the fly"
    )
    cfg: str = option("", "--cfg", help="model by name or a graph YAML; default: that of --weights, else yolov9-s")
    weights: str = option("", "--weights", help='weights to start from; "" trains from scratch')
    hyp: str = option("scratch-high", "--hyp", help="recipe by name or a YAML file")
    epochs: int = option(100, "--epochs", help="passes over the training pictures")
    batch_size: int | None = option(
        None, "--batch", "--batch-size", help="pictures per forward pass; none given, or -1: what fits"
    )
    micro_batch: int | None = None
    """Pictures that go through the network at a time; the plan sets it. None: all that are loaded, `batch_size`."""
    optimisation_batch: int = option(
        NOMINAL_BATCH, "--optimisation-batch", help="pictures per optimizer step; reached by accumulation"
    )
    accumulate: int | None = option(
        None,
        "--accumulate",
        "--gradient-accumulation-steps",
        help="forward passes per optimizer step; sets the optimisation batch to batch x N",
    )
    dynamic_accumulate: str = option(
        "",
        "--dynamic-accumulate",
        metavar="START:END[:EPOCHS]",
        help="batches per optimizer step grow from START to END over EPOCHS; default: over the run",
    )
    scale_lr: bool = option(
        False, "--scale-lr", help=f"multiply the recipe's learning rates by pictures per step / {NOMINAL_BATCH}"
    )
    stages: str = option(
        "",
        "--stages",
        metavar="SIZE:EPOCHS,…",
        help="picture sizes one after the other in one run, such as 320:20,640:60; sets --img and --epochs",
    )
    close_mosaic: int = option(0, "--close-mosaic", help="the last N epochs are trained without mosaic and mixup")
    optimizer: str = option("SGD", "--optimizer", choices=["SGD", "Adam", "AdamW", "LION"], help="optimizer")
    cos_lr: bool = option(False, "--cos-lr", help="learning rate falls along a cosine")
    flat_cos_lr: bool = option(False, "--flat-cos-lr", help="learning rate is flat, then falls along a cosine")
    fixed_lr: bool = option(False, "--fixed-lr", help="learning rate stays as it is after warm-up")
    amp: str = option(
        "auto",
        "--amp",
        nargs="?",
        const="auto",
        choices=["auto", "off", "bf16", "fp16"],
        help="number format of the forward pass; auto: bf16 where the card has it, else fp16, off on the CPU",
    )
    cache: str = option(
        "auto",
        "--cache",
        nargs="?",
        const="ram",
        choices=["auto", "off", "ram", "disk"],
        help="keep decoded pictures; auto: in memory when at most 1000 are trained on and they fit easily",
    )
    cache_limit_gb: float | None = option(
        None,
        "--cache-limit",
        help="most that --cache may take, in GB, both splits together; what does not fit is decoded each time; "
        "default: what the memory limit allows, or what is free on the disk",
    )
    mosaic_window: int | None = option(
        None,
        "--mosaic-window",
        help="partners of a mosaic are chosen from so many samples made shortly before, so that a picture is decoded "
        "once an epoch and not four times; 0: from all pictures; default: 128, and 0 for up to 1000 pictures",
    )
    decode_again: bool = option(
        False,
        "--decode-again",
        help="do not keep the pictures of the mosaic window in memory, decode them again; the samples are the same; "
        "chosen when memory is short",
    )
    decode: str = option(
        "cpu",
        "--decode",
        choices=["auto", "cpu", "gpu"],
        help="where training pictures are decoded and drawn; auto: on the GPU when the CPUs are too few to feed it",
    )
    worker_timeout_s: float = option(
        120.0,
        "--worker-timeout",
        help="seconds that a loader process may take for one sample before it is replaced and its picture left out; "
        "when any other file of the data set takes longer, the run ends and names it",
    )
    fixed_workers: bool = option(
        False,
        "--fixed-workers",
        help="keep as many loader processes as there are at the start, as with --workers; otherwise those that are "
        "not needed end",
    )
    stage: str = option(
        "auto",
        "--stage",
        help="copy the data set to faster storage for the time of the run: auto, off, or a folder for the copy",
    )
    prefetch: int | None = option(
        None,
        "--prefetch",
        help="batches prepared or in use at a time; default: 4, fewer when memory is short",
    )
    rect: bool = option(False, "--rect", help="rectangular batches; turns mosaic and shuffling off")
    multi_scale: bool = option(False, "--multi-scale", help="vary the picture size by half up and down")
    resume: str = option(
        "", "--resume", nargs="?", const="auto", help="go on with the newest run, or with this run or last.pt"
    )
    continue_run: bool = option(
        False,
        "--continue",
        help="start the run --name, go on with it when it was interrupted, do nothing when it is finished; "
        "for commands that are started again and again",
    )
    freeze: list[int] = option([0], "--freeze", nargs="+", help="freeze the first N layers, or these layers")
    patience: int = option(100, "--patience", help="stop after this many epochs without a better score; 0: never")
    save_period: int = option(-1, "--save-period", help="also keep a checkpoint every N epochs; -1: never")
    save_minutes: float = option(
        10.0, "--save-minutes", help="longest time inside an epoch without a checkpoint, in minutes"
    )
    nosave: bool = option(False, "--nosave", help="write last.pt at the end only, and no best.pt")
    noval: bool = option(False, "--noval", help="validate after the last epoch only")
    noplots: bool = option(False, "--noplots", help="draw no pictures of batches and curves")
    min_items: int = option(0, "--min-items", help="leave out training pictures with fewer objects than this")
    allow_bad_labels: bool = option(
        False, "--allow-bad-labels", help="go on with the rest when most label files cannot be used"
    )
    sync_bn: bool = option(False, "--sync-bn", help="batch statistics over all GPUs")
    checkpoint_activations: bool = option(
        False, "--checkpoint-activations", help="keep fewer activations: less GPU memory, about a tenth slower"
    )
    plain_step: bool = option(
        False,
        "--plain-step",
        help="train with PyTorch's own operations only, one after the other: slower, to compare with",
    )
    label_smoothing: float = option(0.0, "--label-smoothing", help="has no effect in YOLOv9; accepted and said")
    autoanchor: bool = option(False, "--autoanchor", help="nothing to do: YOLOv9 has no anchors")
    noautoanchor: bool = option(False, "--noautoanchor", help="nothing to do: YOLOv9 has no anchors")

    @property
    def asked_batch(self) -> int | None:
        """`--batch` where it is a number of pictures; None: what fits is taken."""
        return self.batch_size if self.batch_size and self.batch_size > 0 else None


@dataclass(kw_only=True)
class PredictSettings(RunSettings):
    """Options that `val` and `detect` share."""

    weights: str = option("", "--weights", help="checkpoint to use; default: the newest best.pt under runs/train")
    half: bool = option(False, "--half", help="compute in fp16 on a GPU")
    save_txt: bool = option(False, "--save-txt", help="write one label file per picture")
    save_conf: bool = option(False, "--save-conf", help="add the confidence to each row of the label files")
    save_json: bool = option(False, "--save-json", help="write all detections to one JSON file")
    augment: bool = option(False, "--augment", help="not offered: said, and ignored")


@dataclass(kw_only=True)
class ValSettings(PredictSettings):
    """Options of `val`."""

    data: str = option("", "--data", help="data.yaml of the data set; default: the drawn data set")
    task: str = option("val", "--task", choices=["train", "val", "test", "speed"], help="split to validate on")
    batch_size: int | None = option(None, "--batch", "--batch-size", help="pictures per forward pass")
    conf_thres: float = option(0.001, "--conf", "--conf-thres", help="smallest confidence")
    iou_thres: float = option(0.7, "--iou", "--iou-thres", help="overlap above which the weaker box is dropped")
    max_det: int = option(300, "--max-det", help="most detections per picture")
    min_items: int = option(0, "--min-items", help="leave out pictures with fewer objects than this")
    annotations: str = option("", "--annotations", help="COCO annotation file to score against, with --save-json")
    allow_bad_labels: bool = option(
        False, "--allow-bad-labels", help="go on with the rest when most label files cannot be used"
    )
    noplots: bool = option(False, "--noplots", help="draw no pictures of batches and curves")


@dataclass(kw_only=True)
class DetectSettings(PredictSettings):
    """Options of `detect`."""

    source: str = option("", "--source", help="picture, folder, glob, video, camera number, stream or list file")
    conf_thres: float = option(0.25, "--conf", "--conf-thres", help="smallest confidence")
    iou_thres: float = option(0.45, "--iou", "--iou-thres", help="overlap above which the weaker box is dropped")
    max_det: int = option(1000, "--max-det", help="most detections per picture")
    classes: list[int] | None = option(None, "--classes", nargs="+", help="show these class numbers only")
    agnostic_nms: bool = option(False, "--agnostic-nms", help="boxes of different classes suppress each other too")
    save_crop: bool = option(False, "--save-crop", help="write each detected object as a picture")
    nosave: bool = option(False, "--nosave", help="write no annotated pictures or videos")
    line_thickness: int = option(3, "--line-thickness", help="width of box lines in pixels")
    hide_labels: bool = option(False, "--hide-labels", help="draw no class names")
    hide_conf: bool = option(False, "--hide-conf", help="draw no confidences")
    vid_stride: int = option(1, "--vid-stride", help="use every N-th frame of videos")
    data: str = option("", "--data", help="data.yaml to take class names from when the weights have none")


FLAGS_WITHOUT_EFFECT: dict[str, str] = {
    "--image-weights": "pictures are drawn evenly",
    "--quad": "batches are not quadrupled",
    "--evolve": "hyper-parameters are not searched",
    "--bucket": "nothing is uploaded",
    "--entity": "nothing is uploaded",
    "--upload_dataset": "nothing is uploaded",
    "--bbox_interval": "nothing is uploaded",
    "--artifact_alias": "nothing is uploaded",
    "--local_rank": "each process knows its number",
    "--view-img": "there is no display; pictures are written to the run folder",
    "--visualize": "feature maps are not drawn",
    "--update": "no old models are rewritten",
    "--dnn": "OpenCV's network module is not used",
    "--save-hybrid": "labels are not mixed into predictions",
    "--verbose": "the table of classes is always printed",
}
"""Flags of YOLOv9's own scripts that are accepted and answered with one line each."""
