"""Which picture comes when: the order of an epoch and the random numbers of a sample, both without any state.

A sample is known by (seed, epoch, position). Position p of an epoch shows picture `Shuffle(...)(p)`; whoever is asked
for a position, in whatever process, gets the same answer without having seen the ones before.
"""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_ROUNDS = 8
"""Rounds of the Feistel network; 4 of good round functions suffice for large sets (Luby and Rackoff 1988)."""
_MIN_HALF_BITS = 3
"""Smaller networks would leave some orders of a few pictures visibly more frequent than others."""
_MAX_SHUFFLES = 8
"""Orders of epochs that are held at a time; each is a handful of numbers."""
_BLOCK = 4096
"""Places that are computed together: numpy takes for all of them what Python takes for some dozens."""
_MAX_BLOCKS = 4
"""Blocks of an epoch that are held at a time, of 32 KiB each."""
_SAMPLE_STREAM = 1
_ORDER_STREAM = 2


def sample_generator(seed: int, epoch: int, position: int) -> np.random.Generator:
    """Returns the random numbers of one sample: a counter-based generator that starts where no other one comes to."""
    return np.random.Generator(np.random.Philox(_sample_key(seed), counter=[0, 0, position, epoch]))


class _Key(np.random.SeedSequence):
    """Hands Philox its key. Given as `key`, numpy would ask the kernel for random numbers first, and not use them."""

    def __init__(self, key: NDArray[np.uint64]) -> None:
        super().__init__(0)
        self._key = key

    def generate_state(self, *_: object) -> NDArray[np.uint64]:
        """Returns the key, two words of 64 bits."""
        return self._key


@functools.cache
def _sample_key(seed: int) -> _Key:
    return _Key(np.array([seed & _MASK, _SAMPLE_STREAM], np.uint64))


class Shuffle:
    """A random order of 0 … count-1 that takes little memory: places are computed when asked for.

    A Feistel network over the next power of four, repeated until the result is below `count` (cycle walking; Black and
    Rogaway 2002), so that 300,000 pictures need no list of 300,000 numbers in every worker.
    """

    def __init__(self, seed: int, epoch: int, count: int) -> None:
        self.count = count
        self._half_bits = max(((count - 1).bit_length() + 1) // 2, _MIN_HALF_BITS)
        key, counter = [seed & _MASK, _ORDER_STREAM], [0, 0, 0, epoch]
        self._keys = np.random.Philox(key=key, counter=counter).random_raw(_ROUNDS)
        self._blocks: dict[int, NDArray[np.uint64]] = {}

    def __call__(self, place: int) -> int:
        """Returns the number at a place (0 … count-1)."""
        block, within = divmod(place, _BLOCK)
        if block not in self._blocks:
            if len(self._blocks) >= _MAX_BLOCKS:
                self._blocks.clear()
            self._blocks[block] = self._numbers(block * _BLOCK, min((block + 1) * _BLOCK, self.count))
        return int(self._blocks[block][within])

    def _numbers(self, first: int, last: int) -> NDArray[np.uint64]:
        numbers = np.arange(first, last, dtype=np.uint64)
        walking = np.arange(len(numbers))
        while len(walking):
            numbers[walking] = self._permuted(numbers[walking])
            walking = walking[numbers[walking] >= self.count]
        return numbers

    def _permuted(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        bits, mask = np.uint64(self._half_bits), np.uint64((1 << self._half_bits) - 1)
        left, right = numbers >> bits, numbers & mask
        for key in self._keys:
            # The finaliser of SplitMix64 (Steele et al. 2014) spreads 64 bits over 64 bits.
            mixed = right ^ key
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(31))) & mask)
        return np.asarray(left << bits | right, np.uint64)


@dataclass(frozen=True)
class BatchPlan:
    """Which positions of an epoch make up each batch of one process.

    Global batch k covers the positions k·batch·world … (k+1)·batch·world - 1, whatever the number of processes;
    process `rank` has every world-th of them. In training each process gets the same number of samples: positions
    beyond the last picture start again at the first. The last batch is smaller, not left out.
    """

    count: int
    """Pictures in the index."""
    batch_size: int
    """Pictures in a batch of one process."""
    rank: int = 0
    world: int = 1
    even: bool = True
    """Training: all processes get equally many samples. Otherwise whole batches are dealt out, nothing is repeated."""

    def __len__(self) -> int:
        """Number of batches of this process in an epoch."""
        if self.even:
            return -(-self.samples // self.batch_size)
        batches = -(-self.count // self.batch_size)
        return len(range(self.rank, batches, self.world))

    @property
    def samples(self) -> int:
        """Samples of this process in an epoch."""
        if self.even:
            return -(-self.count // self.world)
        return sum(len(self.positions(batch)) for batch in range(len(self)))

    def global_batch(self, batch: int) -> int:
        """Returns which batch of the whole epoch this process's batch is or belongs to; known to `rect` shapes."""
        return batch if self.even else batch * self.world + self.rank

    def positions(self, batch: int) -> range:
        """Returns the positions of one batch of this process."""
        if self.even:
            first, last = batch * self.batch_size, min((batch + 1) * self.batch_size, self.samples)
            return range(first * self.world + self.rank, last * self.world + self.rank, self.world)
        first = self.global_batch(batch) * self.batch_size
        return range(first, min(first + self.batch_size, self.count))


class PictureOrder:
    """Which picture is at a position of an epoch.

    Args:
        count: pictures in the index.
        seed: of the run; None for no shuffling.
        order: (count,) pictures in their order without shuffling; None for that of the index.
    """

    def __init__(self, count: int, seed: int | None, order: NDArray[np.int64] | None = None) -> None:
        self.count = count
        self._seed = seed
        self._order = order
        self._shuffles: dict[int, Shuffle] = {}

    def __call__(self, epoch: int, position: int) -> int:
        """Returns the number of the picture; positions beyond the last picture start again at the first."""
        place = position % self.count
        if self._seed is None:
            return place if self._order is None else int(self._order[place])
        if epoch not in self._shuffles:
            if len(self._shuffles) >= _MAX_SHUFFLES:
                self._shuffles.clear()
            self._shuffles[epoch] = Shuffle(self._seed, epoch, self.count)
        return self._shuffles[epoch](place)
