"""Fetches one picture from an http address that the user gave as --source."""

import re
import urllib.error
import urllib.request
from http.client import HTTPException

import numpy as np
from numpy.typing import NDArray

from yolov9.data.images import ImageError, decode_image
from yolov9.data.listing import IMAGE_SUFFIXES
from yolov9.data.video import mask_password

TIMEOUT_S = 15.0
LARGEST_FILE_BYTES = 256 * 2**20


def is_picture_address(text: str) -> bool:
    """Says whether an http address ends like a picture."""
    if not text.lower().startswith(("http://", "https://")):
        return False
    # Not urlsplit, which raises at what is no address: that is left to whoever opens it.
    name = re.split("[?#]", text)[0].rpartition("/")[2].lower()
    return any(name.endswith(suffix) for suffix in IMAGE_SUFFIXES)


def fetch_picture(address: str) -> NDArray[np.uint8]:
    """Returns the picture behind an address, (H, W, 3) BGR, upright.

    Raises:
        ImageError: it does not answer, is too large, or is no picture; the password is masked.
    """
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:  # the scheme is checked above
            data = answer.read(LARGEST_FILE_BYTES + 1)
            announced = int(answer.headers["Content-Length"] or 0)
        if len(data) > LARGEST_FILE_BYTES:
            raise ValueError(f"larger than {LARGEST_FILE_BYTES >> 20} MiB")
        if len(data) < announced:
            raise ValueError(f"the connection ended after {len(data)} of {announced} bytes")
        return decode_image(data)
    except urllib.error.HTTPError as error:
        error.close()
        raise ImageError(mask_password(address), f"the server answers {error.code} {error.reason}") from None
    except (OSError, HTTPException) as error:
        raise ImageError(mask_password(address), f"no answer: {error}") from None
    except ValueError as error:
        raise ImageError(mask_password(address), str(error)) from None
