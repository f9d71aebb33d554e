"""What the loader's memory follows from: read by the plan, which knows neither numpy nor PyTorch, and by the loader."""

RING_SLOTS = 4
"""Batches that are being filled, ready or in use at a time, unless `--prefetch` or the memory says otherwise."""
VALIDATION_BATCH_FACTOR = 2
"""On a GPU: validation keeps no activations for a backward pass, so this many times the pictures of training fit."""
BYTES_PER_PIXEL = 3
"""Pictures are uint8 with three colours."""
MOSAIC_PICTURES = 4
"""Pictures of a mosaic."""
MIXED_SAMPLES = 2
"""Mosaics of a blended sample."""
WINDOW_LAG = 32
"""Partners of a mosaic are more samples back than this: nearer ones may still be in the hands of other workers."""
PICTURE_FACTOR = 2
"""A decoded picture is less than twice as long as the training size, most are about as long: so many times its area."""
