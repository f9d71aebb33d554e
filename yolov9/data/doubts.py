"""What is odd about a data set as a whole: it is said once, and the run goes on."""

import numpy as np
from numpy.typing import NDArray

from yolov9.data.label_search import find_label_elsewhere
from yolov9.data.listing import label_path_of
from yolov9.data.scan import ScannedPicture
from yolov9.data.summary import DatasetSummary
from yolov9.logs import LOG

MOST = 0.5
"""Share above which something that happens now and then is a mistake of the whole set."""
FEW_BOXES = 10
"""Nothing follows from the places of fewer boxes."""
FAR_OUTSIDE = 0.05
"""Part of a picture's side; boxes that are drawn over the border by hand reach less far."""
MANY = 0.1
NEARLY_ALL = 0.95
"""Shares of the boxes of a split."""
SHOWN_NAMES = 10


def doubt_missing_labels(used: list[ScannedPicture], split: str) -> None:
    """Warns when most pictures have no label file, and so count as pictures without objects."""
    without = [picture for picture in used if not picture.label_file]
    if len(without) <= MOST * len(used):
        return
    first = without[0].path
    elsewhere = find_label_elsewhere(first)
    LOG.warning(
        "%d of the %d pictures of %r have no label file and are learnt as pictures without objects; "
        "the first one, %s, has none at %s%s",
        len(without),
        len(used),
        split,
        first,
        label_path_of(first),
        f", but {elsewhere} is there" if elsewhere else "",
    )


def doubt_classes(summary: DatasetSummary) -> None:
    """Tells of classes that cannot be learnt from the split, as is usual for a part of a larger data set."""
    absent = [name for name, boxes in zip(summary.names, summary.boxes_per_class, strict=True) if not boxes]
    if absent and summary.split == "train":
        shown = ", ".join(absent[:SHOWN_NAMES])
        more = f" and {len(absent) - SHOWN_NAMES} more" if len(absent) > SHOWN_NAMES else ""
        LOG.info(
            "%d of the %d classes have no object in 'train' and cannot be learnt: %s%s",
            len(absent),
            len(summary.names),
            shown,
            more,
        )


def doubt_boxes(labels: NDArray[np.float32], split: str) -> None:
    """Warns when the boxes, (n, 5) class, centre x, centre y, width, height, seem to be given by their corners."""
    if len(labels) < FEW_BOXES:
        return
    centres, sizes = labels[:, 1:3], labels[:, 3:5]
    # The right and lower corner is always beyond the left and upper one; a box is rarely wider than its centre is far.
    like_corners = float((sizes > centres).all(axis=1).mean())
    reach = np.maximum(sizes / 2 - centres, centres + sizes / 2 - 1).max(axis=1)
    outside = float((reach > FAR_OUTSIDE).mean())
    if like_corners > NEARLY_ALL and outside > MANY:
        LOG.warning(
            "%.0f %% of the boxes of %r reach far beyond their picture: are the rows 'class left top right bottom'? "
            "They are read as 'class centre-x centre-y width height'",
            100 * outside,
            split,
        )


def doubt_shared_pictures(train: set[bytes], val: set[bytes]) -> None:
    """Warns when pictures (their paths) that are trained on are validated with: the scores are too good then."""
    shared = len(train & val)
    if shared:
        LOG.warning(
            "%d of the %d pictures of 'val' are in 'train' too: the scores say little about new pictures",
            shared,
            len(val),
        )
