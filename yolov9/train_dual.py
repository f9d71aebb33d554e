"""`python train_dual.py …` is the command `train`: commands from articles run unchanged."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # The folder of this file holds packages called data, model and config; they must not be found as such.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from entrypoint.__main__ import run

    raise SystemExit(run(["train", *sys.argv[1:]]))
