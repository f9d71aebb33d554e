"""The help that newcomers see first."""

COMMANDS = {
    "train": "train a model; without --data on a small drawn data set",
    "val": "precision, recall and mAP of a checkpoint",
    "detect": "find objects in pictures, videos and streams",
    "plan": "what train, val or detect would do here, and why",
    "check": "one table of this machine: limits, GPUs, versions, folders",
    "bench": "how fast the loader and the training are, what the limit is, and the setting to use",
    "health": "whether the trainer of this container runs; for HEALTHCHECK",
}

HELP = """\
YOLOv9 training that fits itself to the machine it runs on.

  train --data data.yaml --cfg yolov9-s --epochs 100     train on your data
  detect --weights runs/train/exp/weights/best.pt --source PICTURE
  train                                                  try it: trains on a small drawn data set
{commands}
COMMAND --help lists the options of a command. Anything else is executed as a program:
`python train_dual.py …`, `bash`, `nvidia-smi`. Options can also come from --config FILE.yaml and
from variables: YOLOV9_EPOCHS=3 is --epochs 3 (defaults < YAML < variables < command line).

In a container: docker run --gpus all -v ./data:/data -v ./runs:/runs IMAGE train --data /data/data.yaml

Exit codes: 0 done, 1 health: a job does not go on, 2 usage, 65 bad or missing data, 69 no usable GPU,
70 internal error, 71 the GPU failed, 73 output not writable, 75 stopped on request and resumable,
76 the training diverged, 126 not executable, 127 no such command, 128 + N ended by signal N.
"""


def help_text() -> str:
    """Returns the overview of all commands."""
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name.ljust(width)}  {what}" for name, what in COMMANDS.items())
    return HELP.format(commands=f"\nCommands\n{lines}\n")
