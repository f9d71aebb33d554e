"""What is done differently with small data sets; read by the plan and by the trainer."""

MOST_PICTURES = 1000
"""Pictures of a small data set: decoded at 640 px they take 1.2 GB at most."""
MOSAIC_WINDOW = 128
"""Samples that partners of a mosaic are chosen from, with larger ones."""


def is_small(pictures: int | None) -> bool:
    """Tells whether a data set of so many training pictures is small; None: nobody knows."""
    return pictures is not None and pictures <= MOST_PICTURES


def mosaic_window(asked: int | None, pictures: int | None) -> int:
    """Returns how many samples partners of a mosaic are chosen from; 0: all pictures, evenly.

    The window saves decoding. Pictures of a small data set stay decoded in memory, and are chosen from evenly. What
    decides is the data set alone, so that samples show the same pictures on every machine.

    Args:
        asked: `--mosaic-window`; None: by the size of the data set.
        pictures: of the training split, as the plan counts them: with those that are left out; None: unknown.
    """
    if asked is not None:
        return asked
    return 0 if is_small(pictures) else MOSAIC_WINDOW
