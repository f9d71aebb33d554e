"""Fused CUDA kernels (Triton) for `norm_act`: training-mode batch normalisation, branch sum, SiLU, residual.

Tensors are channels-last and seen as matrices of P = B*H*W rows and C columns. Forward reads each convolution output
twice (statistics, then normalise and activate) and writes the result where it is needed. Backward keeps the
convolution outputs only, and reads them and the incoming gradients twice (sums, then the gradient). Sums are taken in
float32 for each block of rows and added up in a fixed order by the program that finishes last, so results do not
change from run to run.

Gradient of batch normalisation as in Ioffe & Szegedy, arXiv:1502.03167, section 3:
    dy = gamma * rstd * (g - mean(g) - xhat * mean(g * xhat)),  dgamma = sum(g * xhat),  dbeta = sum(g)
with g = dz * silu'(s) and silu'(s) = sig(s) * (1 + s * (1 - sig(s))), where xhat = (y - mean) * rstd.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from yolov9.ops.silu_triton import sigmoid, silu_slope

TILE_ELEMENTS = 4096
"""Elements of one tile: 32 values a thread at TILE_WARPS."""
TILE_WARPS = 4
SUM_TILE_ELEMENTS = 4096
"""Elements of one tile of a reduction: at SUM_WARPS, 32 values a thread and accumulator, which stay in registers."""
SUM_WARPS = 4
"""8 of them take 3 to 5 % longer at batch 64 and 12 % at batch 16 (docs/measurements.md)."""
MAX_BLOCK_C = 128
"""Columns of a tile at the most: 256 bytes of a row in half precision."""
SUM_MAX_BLOCK_C = 64
"""The same of a reduction. Each block of columns has its own last step, so narrow blocks divide that work."""
MIN_BLOCK_C = 16
"""Columns of a tile at the least, where there are as many: 32 bytes, which memory moves at a time."""
MOST_WASTE = 1 / 8
"""Share of a row of tiles that may lie beyond the last column."""
SUM_STAGES = 3
"""Tiles of a reduction that are on their way from memory while one is worked on, and that one."""
PROGRAMS_PER_SUM = 128
"""Programs of a reduction at the most: about one for each of the 132 multiprocessors of a Hopper card. More of them
lengthen the last step, in which one program adds up the results of all: with 264 the reductions of a step of yolov9-s
take 4 % less at batch 64 and 5 % more at 16, with 528 more at both (at 8 warps)."""
PROGRAMS_PER_LARGE_SUM = 264
"""The same where each of so many has LARGE_TILES to work on: two for each multiprocessor, and twice the bytes on their
way from memory, of which one program at SUM_STAGES has too few to keep it busy."""
LARGE_TILES = 12
"""So that only sums that take long get a longer last step: tensors of 26 MB and more, in half precision."""
LAST_ELEMENTS = 2048
"""Elements of the tile of partial results that the last step of a reduction takes at a time."""
TILES_PER_PROGRAM = 4
"""Tiles that a program of a reduction works on at the least, so that small tensors have few partial results."""

LAST_UNROLL = tl.constexpr(4)
"""Rounds of the last step of a reduction whose loads are on their way at a time."""


def tile_shape(columns: int, elements: int = TILE_ELEMENTS, most_columns: int = MAX_BLOCK_C) -> tuple[int, int]:
    """Returns rows and columns of the tile that one program works on, for a matrix with so many columns.

    Blocks of columns are powers of two. Lanes beyond the last column do nothing, in all rows. So it is the widest block
    with little waste, or else the one with the least: 16 for 48 columns, 32 for 96, 64 for 192, 128 for 240.
    """
    largest = min(int(triton.next_power_of_2(columns)), most_columns)
    widths = [largest]
    while widths[-1] > MIN_BLOCK_C:
        widths.append(widths[-1] // 2)
    waste = {width: 1 - columns / (width * triton.cdiv(columns, width)) for width in widths}
    block_c = next((width for width in widths if waste[width] <= MOST_WASTE), min(widths, key=lambda w: waste[w]))
    return elements // block_c, block_c


def launch(rows: int, columns: int) -> tuple[tuple[int], dict[str, int]]:
    """Returns grid and options of a kernel that works on tiles: one program each, neighbours in a row side by side."""
    block_p, block_c = tile_shape(columns, TILE_ELEMENTS, MAX_BLOCK_C)
    tiles = triton.cdiv(rows, block_p) * triton.cdiv(columns, block_c)
    return (tiles,), {"BLOCK_P": block_p, "BLOCK_C": block_c, "num_warps": TILE_WARPS}


@dataclass(frozen=True)
class SumLaunch:
    """How a reduction over rows is started; `grid` is blocks of columns by blocks of rows."""

    grid: tuple[int, int]
    rows_per_split: int
    options: dict[str, int]

    @property
    def splits(self) -> int:
        """Blocks of rows, so partial results of each column."""
        return self.grid[1]


def sum_launch(rows: int, columns: int) -> SumLaunch:
    """Divides a matrix into blocks of rows and columns, one for each program of a reduction over the rows."""
    block_p, block_c = tile_shape(columns, SUM_TILE_ELEMENTS, SUM_MAX_BLOCK_C)
    blocks = int(triton.cdiv(columns, block_c))
    large = triton.cdiv(rows, block_p) * blocks >= LARGE_TILES * PROGRAMS_PER_LARGE_SUM
    wanted = max(1, (PROGRAMS_PER_LARGE_SUM if large else PROGRAMS_PER_SUM) // blocks)
    tiles = max(triton.cdiv(triton.cdiv(rows, wanted), block_p), TILES_PER_PROGRAM)
    options = {"STAGES": SUM_STAGES, "LAST_BLOCK_P": max(LAST_ELEMENTS // block_c, 1), "num_warps": SUM_WARPS}
    options |= {"BLOCK_P": block_p, "BLOCK_C": block_c}
    return SumLaunch((blocks, int(triton.cdiv(rows, tiles * block_p))), tiles * block_p, options)


@triton.jit
def _column(pointer, offs_c, in_c):
    return tl.load(pointer + offs_c, mask=in_c, other=0.0).to(tl.float32)[None, :]


@triton.jit
def is_last(counter, programs) -> tl.tensor:
    """Tells the program that finishes last that the partial results of all are in memory, and resets the counter."""
    tl.debug_barrier()
    before = tl.atomic_add(counter, 1, sem="acq_rel")
    last = before == programs - 1
    if last:
        tl.store(counter, 0)
    return last


@triton.jit(do_not_specialize=["rows", "splits", "rows_per_split", "momentum", "eps"])
def statistics_kernel(
    y, part_mean, part_m2, mean_out, rstd_out, running_mean, running_var, batches, counters,
    rows, columns, splits, rows_per_split, momentum, eps,
    STAGES: tl.constexpr, LAST_BLOCK_P: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
) -> None:  # fmt: skip
    """Mean and 1/sqrt(variance + eps) of each column, and the update of running statistics and batch counter."""
    block, split = tl.program_id(0), tl.program_id(1)
    offs_c = block * BLOCK_C + tl.arange(0, BLOCK_C)
    in_c = offs_c < columns
    first = split * rows_per_split
    last = tl.minimum(first + rows_per_split, rows)
    at = (tl.arange(0, BLOCK_P) * columns)[:, None] + offs_c[None, :]
    # Sums are taken about the first row of the block: a pivot near the mean keeps float32 sums of squares exact enough.
    pivot = tl.load(y + first.to(tl.int64) * columns + offs_c, mask=in_c, other=0.0).to(tl.float32)
    total = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    squares = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    # Only a tile that is not full has rows to leave out, and it is the last one.
    full = last - (last - first) % BLOCK_P
    for row in tl.range(first, full, BLOCK_P, num_stages=STAGES):
        tile = tl.load(y + tl.cast(row, tl.int64) * columns + at, mask=in_c[None, :], other=0.0)
        value = tile.to(tl.float32) - pivot[None, :]
        total += value
        squares += value * value
    if full < last:
        inside = (full + tl.arange(0, BLOCK_P) < last)[:, None] & in_c[None, :]
        tile = tl.load(y + tl.cast(full, tl.int64) * columns + at, mask=inside, other=0.0)
        value = tl.where(inside, tile.to(tl.float32) - pivot[None, :], 0.0)
        total += value
        squares += value * value
    count = (last - first).to(tl.float32)
    shifted_mean = tl.sum(total, 0) / count
    tl.store(part_mean + split * columns + offs_c, shifted_mean + pivot, mask=in_c)
    tl.store(part_m2 + split * columns + offs_c, tl.sum(squares, 0) - shifted_mean * shifted_mean * count, mask=in_c)
    if is_last(counters + block, splits):
        all_rows = rows.to(tl.float32)
        old_mean = tl.load(running_mean + offs_c, mask=in_c, other=0.0)
        old_var = tl.load(running_var + offs_c, mask=in_c, other=0.0)
        # Block means are again taken about a pivot, so that one pass gives mean and spread.
        centre = tl.load(part_mean + offs_c, mask=in_c, other=0.0, cache_modifier=".cg")
        weighted = tl.zeros((LAST_BLOCK_P, BLOCK_C), tl.float32)
        spread = tl.zeros((LAST_BLOCK_P, BLOCK_C), tl.float32)
        for start in tl.range(0, splits, LAST_BLOCK_P, loop_unroll_factor=LAST_UNROLL):
            offs_s = start + tl.arange(0, LAST_BLOCK_P)
            inside = (offs_s < splits)[:, None] & in_c[None, :]
            rows_of = tl.minimum(rows - offs_s * rows_per_split, rows_per_split).to(tl.float32)[:, None]
            at_part = offs_s[:, None] * columns + offs_c[None, :]
            off = tl.load(part_mean + at_part, mask=inside, other=0.0, cache_modifier=".cg") - centre[None, :]
            block_m2 = tl.load(part_m2 + at_part, mask=inside, other=0.0, cache_modifier=".cg")
            weighted += tl.where(inside, off * rows_of, 0.0)
            spread += tl.where(inside, block_m2 + rows_of * off * off, 0.0)
        off_mean = tl.sum(weighted, 0) / all_rows
        mean = off_mean + centre
        m2 = tl.maximum(tl.sum(spread, 0) - off_mean * off_mean * all_rows, 0.0)
        if block == 0:
            tl.store(batches, tl.load(batches) + 1)
        tl.store(mean_out + offs_c, mean, mask=in_c)
        tl.store(rstd_out + offs_c, 1.0 / tl.sqrt(m2 / all_rows + eps), mask=in_c)
        tl.store(running_mean + offs_c, old_mean + momentum * (mean - old_mean), mask=in_c)
        unbiased = m2 / tl.maximum(all_rows - 1.0, 1.0)
        tl.store(running_var + offs_c, old_var + momentum * (unbiased - old_var), mask=in_c)


@triton.jit
def _tile(rows, columns, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr):
    """First row, rows from there, columns and masks of a program's tile; programs go along the columns first."""
    blocks = tl.cdiv(columns, BLOCK_C)
    row = tl.program_id(0) // blocks * BLOCK_P
    offs_p = tl.arange(0, BLOCK_P)
    offs_c = tl.program_id(0) % blocks * BLOCK_C + tl.arange(0, BLOCK_C)
    in_c = offs_c < columns
    return row, offs_p, offs_c, in_c, (row + offs_p < rows)[:, None] & in_c[None, :]


@triton.jit
def _rows_at(row, offs_p, stride):
    """Where rows begin: 64 bits for the first one, which all threads share, and 32 from there."""
    return tl.cast(row, tl.int64) * stride + (offs_p * stride)[:, None]


@triton.jit(do_not_specialize=["rows"])
def activate_kernel(
    dense, joined, residual, y1, mean1, rstd1, gamma1, beta1, y2, mean2, rstd2, gamma2, beta2,
    rows, columns, dense_from, joined_stride, residual_stride,
    BRANCHES: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_DENSE: tl.constexpr, HAS_JOINED: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
) -> None:  # fmt: skip
    """Result of `norm_act`, written to a slice of wider rows (joined), to rows of its own from a column on (dense)."""
    row, offs_p, offs_c, in_c, inside = _tile(rows, columns, BLOCK_P, BLOCK_C)
    at = _rows_at(row, offs_p, columns) + offs_c[None, :]
    off1 = tl.load(y1 + at, mask=inside, other=0.0).to(tl.float32) - _column(mean1, offs_c, in_c)
    s = off1 * (_column(rstd1, offs_c, in_c) * _column(gamma1, offs_c, in_c)) + _column(beta1, offs_c, in_c)
    if BRANCHES == 2:
        off2 = tl.load(y2 + at, mask=inside, other=0.0).to(tl.float32) - _column(mean2, offs_c, in_c)
        s += off2 * (_column(rstd2, offs_c, in_c) * _column(gamma2, offs_c, in_c)) + _column(beta2, offs_c, in_c)
    out = s * sigmoid(s)
    if HAS_RESIDUAL:
        at_residual = _rows_at(row, offs_p, residual_stride) + offs_c[None, :]
        out += tl.load(residual + at_residual, mask=inside, other=0.0).to(tl.float32)
    if HAS_JOINED:
        tl.store(joined + (_rows_at(row, offs_p, joined_stride) + offs_c[None, :]), out, mask=inside)
    if HAS_DENSE:
        at_dense = _rows_at(row, offs_p, columns - dense_from) + (offs_c - dense_from)[None, :]
        tl.store(dense + at_dense, out, mask=inside & (offs_c >= dense_from)[None, :])


@triton.jit
def _dense_part(part, row, offs_p, offs_c, inside, stride, dense_from):
    at = _rows_at(row, offs_p, stride) + (offs_c - dense_from)[None, :]
    return tl.load(part + at, mask=inside & (offs_c >= dense_from)[None, :], other=0.0).to(tl.float32)


@triton.jit
def _incoming(
    g_joined, g_dense, g_second, g_third, row, offs_p, offs_c, inside,
    joined_stride, dense_stride, second_stride, third_stride, dense_from,
    HAS_JOINED: tl.constexpr, DENSE_PARTS: tl.constexpr,
):  # fmt: skip
    """Gradient of the result: what came back through the slice plus what came back through the dense copy, in parts."""
    if HAS_JOINED:
        at = _rows_at(row, offs_p, joined_stride) + offs_c[None, :]
        g = tl.load(g_joined + at, mask=inside, other=0.0).to(tl.float32)
        if DENSE_PARTS > 0:
            g += _dense_part(g_dense, row, offs_p, offs_c, inside, dense_stride, dense_from)
    else:
        g = _dense_part(g_dense, row, offs_p, offs_c, inside, dense_stride, dense_from)
    if DENSE_PARTS > 1:
        g += _dense_part(g_second, row, offs_p, offs_c, inside, second_stride, dense_from)
    if DENSE_PARTS > 2:
        g += _dense_part(g_third, row, offs_p, offs_c, inside, third_stride, dense_from)
    return g


@triton.jit
def _hand_on(sums, gradient, column, in_c, ACCUMULATE: tl.constexpr):
    """Stores column sums, and adds them to a parameter's gradient."""
    tl.store(sums, column, mask=in_c)
    if ACCUMULATE:
        tl.store(gradient, tl.load(gradient, mask=in_c, other=0.0) + column, mask=in_c)


@triton.jit
def _add_tile(
    sum_g, sum_1, sum_2, total, g_joined, g_dense, g_second, g_third,
    y1, y2, m1, a1, b1, m2, a2, row, offs_p, offs_c, inside,
    columns, joined_stride, dense_stride, second_stride, third_stride, dense_from,
    BRANCHES: tl.constexpr, HAS_JOINED: tl.constexpr, DENSE_PARTS: tl.constexpr, HAS_TOTAL: tl.constexpr,
):  # fmt: skip
    """Adds g and g * (y - mean) of a tile; b1 is the sum of all shifts. Outside, g is 0 and nothing is added."""
    g = _incoming(
        g_joined, g_dense, g_second, g_third, row, offs_p, offs_c, inside,
        joined_stride, dense_stride, second_stride, third_stride, dense_from, HAS_JOINED, DENSE_PARTS,
    )  # fmt: skip
    at = _rows_at(row, offs_p, columns) + offs_c[None, :]
    if HAS_TOTAL:
        # The sums are those of what is written, so that they agree with what `gradient_kernel` reads.
        rounded = g.to(total.dtype.element_ty)
        tl.store(total + at, rounded, mask=inside)
        g = rounded.to(tl.float32)
    off1 = tl.load(y1 + at, mask=inside, other=0.0).to(tl.float32) - m1
    s = off1 * a1 + b1
    if BRANCHES == 2:
        off2 = tl.load(y2 + at, mask=inside, other=0.0).to(tl.float32) - m2
        s += off2 * a2
    g *= silu_slope(s)
    sum_g += g
    sum_1 += g * off1
    if BRANCHES == 2:
        sum_2 += g * off2
    return sum_g, sum_1, sum_2


@triton.jit(do_not_specialize=["rows", "splits", "rows_per_split"])
def gradient_sums_kernel(
    part, sums, total, counters, g_joined, g_dense, g_second, g_third, dgamma1, dbeta1, dgamma2, dbeta2,
    y1, mean1, rstd1, gamma1, beta1, y2, mean2, rstd2, gamma2, beta2,
    rows, columns, splits, rows_per_split, joined_stride, dense_stride, second_stride, third_stride, dense_from,
    BRANCHES: tl.constexpr, HAS_JOINED: tl.constexpr, DENSE_PARTS: tl.constexpr, HAS_TOTAL: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    STAGES: tl.constexpr, LAST_BLOCK_P: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
) -> None:  # fmt: skip
    """Column sums of g and of g * xhat of each branch; added to the parameters' gradients where they exist.

    With HAS_TOTAL the sum of all that came back is written to `total`, rows of `columns`.
    """
    block, split = tl.program_id(0), tl.program_id(1)
    offs_c = block * BLOCK_C + tl.arange(0, BLOCK_C)
    offs_p = tl.arange(0, BLOCK_P)
    in_c = offs_c < columns
    first = split * rows_per_split
    last = tl.minimum(first + rows_per_split, rows)
    # Everything that depends on the column alone is taken out of the loop, which calculates more than it reads.
    m1, b1 = _column(mean1, offs_c, in_c), _column(beta1, offs_c, in_c)
    a1 = _column(rstd1, offs_c, in_c) * _column(gamma1, offs_c, in_c)
    m2, a2 = m1, a1
    if BRANCHES == 2:
        m2 = _column(mean2, offs_c, in_c)
        a2 = _column(rstd2, offs_c, in_c) * _column(gamma2, offs_c, in_c)
        b1 += _column(beta2, offs_c, in_c)
    sum_g = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    sum_1 = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    sum_2 = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    # Only a tile that is not full has rows to leave out, and it is the last one.
    full = last - (last - first) % BLOCK_P
    for row in tl.range(first, full, BLOCK_P, num_stages=STAGES):
        sum_g, sum_1, sum_2 = _add_tile(
            sum_g, sum_1, sum_2, total, g_joined, g_dense, g_second, g_third,
            y1, y2, m1, a1, b1, m2, a2, row, offs_p, offs_c, in_c[None, :],
            columns, joined_stride, dense_stride, second_stride, third_stride, dense_from,
            BRANCHES, HAS_JOINED, DENSE_PARTS, HAS_TOTAL,
        )  # fmt: skip
    if full < last:
        inside = (full + offs_p < last)[:, None] & in_c[None, :]
        sum_g, sum_1, sum_2 = _add_tile(
            sum_g, sum_1, sum_2, total, g_joined, g_dense, g_second, g_third,
            y1, y2, m1, a1, b1, m2, a2, full, offs_p, offs_c, inside,
            columns, joined_stride, dense_stride, second_stride, third_stride, dense_from,
            BRANCHES, HAS_JOINED, DENSE_PARTS, HAS_TOTAL,
        )  # fmt: skip
    base = part + split * (BRANCHES + 1) * columns + offs_c
    tl.store(base, tl.sum(sum_g, 0), mask=in_c)
    tl.store(base + columns, tl.sum(sum_1, 0) * tl.load(rstd1 + offs_c, mask=in_c, other=0.0), mask=in_c)
    if BRANCHES == 2:
        tl.store(base + 2 * columns, tl.sum(sum_2, 0) * tl.load(rstd2 + offs_c, mask=in_c, other=0.0), mask=in_c)
    if is_last(counters + block, splits):
        all_g = tl.zeros((LAST_BLOCK_P, BLOCK_C), tl.float32)
        all_1 = tl.zeros((LAST_BLOCK_P, BLOCK_C), tl.float32)
        all_2 = tl.zeros((LAST_BLOCK_P, BLOCK_C), tl.float32)
        for start in tl.range(0, splits, LAST_BLOCK_P, loop_unroll_factor=LAST_UNROLL):
            offs_s = start + tl.arange(0, LAST_BLOCK_P)
            inside = (offs_s < splits)[:, None] & in_c[None, :]
            at = offs_s[:, None] * (BRANCHES + 1) * columns + offs_c[None, :]
            all_g += tl.load(part + at, mask=inside, other=0.0, cache_modifier=".cg")
            all_1 += tl.load(part + columns + at, mask=inside, other=0.0, cache_modifier=".cg")
            if BRANCHES == 2:
                all_2 += tl.load(part + 2 * columns + at, mask=inside, other=0.0, cache_modifier=".cg")
        dbeta = tl.sum(all_g, 0)
        _hand_on(sums + offs_c, dbeta1 + offs_c, dbeta, in_c, ACCUMULATE)
        _hand_on(sums + columns + offs_c, dgamma1 + offs_c, tl.sum(all_1, 0), in_c, ACCUMULATE)
        if BRANCHES == 2:
            _hand_on(sums + offs_c, dbeta2 + offs_c, dbeta, in_c, ACCUMULATE)
            _hand_on(sums + 2 * columns + offs_c, dgamma2 + offs_c, tl.sum(all_2, 0), in_c, ACCUMULATE)


@triton.jit(do_not_specialize=["rows"])
def gradient_kernel(
    dy1, dy2, sums, g_joined, g_dense, g_second, g_third,
    y1, mean1, rstd1, gamma1, beta1, y2, mean2, rstd2, gamma2, beta2,
    rows, columns, joined_stride, dense_stride, second_stride, third_stride, dense_from,
    BRANCHES: tl.constexpr, HAS_JOINED: tl.constexpr, DENSE_PARTS: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
) -> None:  # fmt: skip
    """Gradients of the convolution outputs, from the sums of `gradient_sums_kernel`."""
    row, offs_p, offs_c, in_c, inside = _tile(rows, columns, BLOCK_P, BLOCK_C)
    at = _rows_at(row, offs_p, columns) + offs_c[None, :]
    per_row = 1.0 / rows.to(tl.float32)
    r1 = _column(rstd1, offs_c, in_c)
    a1 = r1 * _column(gamma1, offs_c, in_c)
    off1 = tl.load(y1 + at, mask=inside, other=0.0).to(tl.float32) - _column(mean1, offs_c, in_c)
    s = off1 * a1 + _column(beta1, offs_c, in_c)
    if BRANCHES == 2:
        r2 = _column(rstd2, offs_c, in_c)
        a2 = r2 * _column(gamma2, offs_c, in_c)
        off2 = tl.load(y2 + at, mask=inside, other=0.0).to(tl.float32) - _column(mean2, offs_c, in_c)
        s += off2 * a2 + _column(beta2, offs_c, in_c)
    g = _incoming(
        g_joined, g_dense, g_second, g_third, row, offs_p, offs_c, inside,
        joined_stride, dense_stride, second_stride, third_stride, dense_from, HAS_JOINED, DENSE_PARTS,
    )  # fmt: skip
    g = g * silu_slope(s) - _column(sums, offs_c, in_c) * per_row
    slope1 = _column(sums + columns, offs_c, in_c) * (per_row * r1)
    tl.store(dy1 + at, a1 * (g - off1 * slope1), mask=inside)
    if BRANCHES == 2:
        slope2 = _column(sums + 2 * columns, offs_c, in_c) * (per_row * r2)
        tl.store(dy2 + at, a2 * (g - off2 * slope2), mask=inside)
