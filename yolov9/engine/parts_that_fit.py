"""Work without gradients on a batch: at once, or in halves, quarters and so on when memory runs out."""

from collections.abc import Callable
from typing import TypeVar

import torch

from yolov9.engine.out_of_memory import MOST_TRIES_OF_ONE, PREDICT_REMEDY, free_caches, is_out_of_memory, no_room
from yolov9.errors import first_line
from yolov9.logs import LOG

Result = TypeVar("Result")


class PartsThatFit:
    """Remembers how many pictures fitted, so that memory does not run out again at every batch.

    Args:
        device: where the work is done.
        what: the work in words, for messages.
        make_room: gives memory back that can be done without; called before one picture is given up.
        limit: pictures that are worked on at a time; None: all of a batch.
    """

    def __init__(
        self, device: torch.device, what: str, make_room: Callable[[], object] = lambda: None, limit: int | None = None
    ) -> None:
        self._device, self._what, self._make_room = device, what, make_room
        self._limit = limit

    def __call__(self, work: Callable[[slice], Result], pictures: int) -> list[Result]:
        """Does the work on all pictures of a batch.

        Args:
            work: takes the place of a part in the batch; is called again with halves of it after it ran out of memory.
            pictures: pictures of the batch.

        Returns:
            Results of the parts in their order.

        Raises:
            NoRoomError: not even one picture fits.
        """
        results: list[Result] = []
        start, tries_of_one = 0, 0
        while start < pictures:
            size = min(pictures - start, self._limit or pictures)
            try:
                results.append(work(slice(start, start + size)))
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                words = first_line(error)
            else:
                start += size
                continue
            # Outside of `except`: the error's traceback would keep what the failed work had allocated.
            free_caches(self._device)
            if size > 1:
                self._limit = -(-size // 2)
                LOG.warning(
                    "out of memory in %s with %d pictures: going on with %d at a time", self._what, size, self._limit
                )
                continue
            tries_of_one += 1
            if tries_of_one == MOST_TRIES_OF_ONE:
                raise no_room(words, self._device, f"{self._what} of one picture", PREDICT_REMEDY)
            self._make_room()
            free_caches(self._device)
        return results
