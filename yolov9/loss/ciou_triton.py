"""CIoU and its slopes as device functions for the loss kernels; the formulas are those of `yolov9.ops.iou`."""

import triton
import triton.language as tl

HEIGHT_EPSILON = tl.constexpr(1e-7)
"""As in `yolov9.ops.iou`."""
ASPECT_SCALE = tl.constexpr(0.4052847345693511)
"""4 / pi**2."""
HALF_PI = tl.constexpr(1.5707963267948966)


@triton.jit
def _arc_tangent(x):
    """atan of x >= 0, 1e-7 off at most: Abramowitz & Stegun, Handbook of Mathematical Functions, 4.4.49 (to 1), and
    atan(x) = pi/2 - atan(1/x) beyond."""
    small = tl.where(x > 1.0, 1.0 / tl.maximum(x, 1.0), x)
    z = small * small
    series = -0.0161657367 + z * 0.0028662257
    series = 0.0429096138 + z * series
    series = -0.0752896400 + z * series
    series = 0.1065626393 + z * series
    series = -0.1420889944 + z * series
    series = 0.1999355085 + z * series
    series = -0.3333314528 + z * series
    angle = small + small * z * series
    return tl.where(x > 1.0, HALF_PI - angle, angle)


@triton.jit
def ciou_of(left_a, top_a, right_a, bottom_a, left_b, top_b, right_b, bottom_b) -> tl.tensor:
    """CIoU of boxes a and b; the arguments broadcast."""
    width_a, height_a = right_a - left_a, bottom_a - top_a + HEIGHT_EPSILON
    width_b, height_b = right_b - left_b, bottom_b - top_b + HEIGHT_EPSILON
    across = tl.maximum(tl.minimum(right_a, right_b) - tl.maximum(left_a, left_b), 0.0)
    down = tl.maximum(tl.minimum(bottom_a, bottom_b) - tl.maximum(top_a, top_b), 0.0)
    overlap = across * down
    iou = overlap / (width_a * height_a + width_b * height_b - overlap + HEIGHT_EPSILON)
    outer_width = tl.maximum(right_a, right_b) - tl.minimum(left_a, left_b)
    outer_height = tl.maximum(bottom_a, bottom_b) - tl.minimum(top_a, top_b)
    diagonal = outer_width * outer_width + outer_height * outer_height + HEIGHT_EPSILON
    dx, dy = (left_b + right_b) - (left_a + right_a), (top_b + bottom_b) - (top_a + bottom_a)
    angle = _arc_tangent(width_b / height_b) - _arc_tangent(width_a / height_a)
    aspect = angle * angle * ASPECT_SCALE
    weight = aspect / (aspect - iou + (1.0 + HEIGHT_EPSILON))
    return iou - (dx * dx + dy * dy) / (4.0 * diagonal) - aspect * weight


@triton.jit
def _slope(overlap, union, by_overlap, by_area, distance, diagonal, by_distance, by_diagonal):
    """Slope of IoU - distance / (4 diagonal) along one edge, from the slopes of its parts."""
    iou_slope = (by_overlap * union - overlap * (by_area - by_overlap)) / (union * union)
    return iou_slope - (by_distance * diagonal - distance * by_diagonal) / (4.0 * diagonal * diagonal)


@triton.jit
def ciou_slopes(left_a, top_a, right_a, bottom_a, left_b, top_b, right_b, bottom_b) -> tuple[tl.tensor, ...]:
    """Slopes of CIoU along left, top, right, bottom of a; the weight of the aspect penalty counts as a constant."""
    width_a, height_a = right_a - left_a, bottom_a - top_a + HEIGHT_EPSILON
    width_b, height_b = right_b - left_b, bottom_b - top_b + HEIGHT_EPSILON
    across = tl.minimum(right_a, right_b) - tl.maximum(left_a, left_b)
    down = tl.minimum(bottom_a, bottom_b) - tl.maximum(top_a, top_b)
    # Where the boxes are apart nothing changes with the edge: the slope of a cut at 0.
    meets_x, meets_y = across >= 0.0, down >= 0.0
    across, down = tl.maximum(across, 0.0), tl.maximum(down, 0.0)
    overlap = across * down
    union = width_a * height_a + width_b * height_b - overlap + HEIGHT_EPSILON
    outer_width = tl.maximum(right_a, right_b) - tl.minimum(left_a, left_b)
    outer_height = tl.maximum(bottom_a, bottom_b) - tl.minimum(top_a, top_b)
    diagonal = outer_width * outer_width + outer_height * outer_height + HEIGHT_EPSILON
    dx, dy = (left_b + right_b) - (left_a + right_a), (top_b + bottom_b) - (top_a + bottom_a)
    distance = dx * dx + dy * dy
    left = _slope(
        overlap, union, tl.where(meets_x & (left_a > left_b), -down, 0.0), -height_a,
        distance, diagonal, -2.0 * dx, tl.where(left_a < left_b, -2.0 * outer_width, 0.0),
    )  # fmt: skip
    right = _slope(
        overlap, union, tl.where(meets_x & (right_a < right_b), down, 0.0), height_a,
        distance, diagonal, -2.0 * dx, tl.where(right_a > right_b, 2.0 * outer_width, 0.0),
    )  # fmt: skip
    top = _slope(
        overlap, union, tl.where(meets_y & (top_a > top_b), -across, 0.0), -width_a,
        distance, diagonal, -2.0 * dy, tl.where(top_a < top_b, -2.0 * outer_height, 0.0),
    )  # fmt: skip
    bottom = _slope(
        overlap, union, tl.where(meets_y & (bottom_a < bottom_b), across, 0.0), width_a,
        distance, diagonal, -2.0 * dy, tl.where(bottom_a > bottom_b, 2.0 * outer_height, 0.0),
    )  # fmt: skip
    angle = _arc_tangent(width_b / height_b) - _arc_tangent(width_a / height_a)
    aspect = angle * angle * ASPECT_SCALE
    weight = aspect / (aspect - overlap / union + (1.0 + HEIGHT_EPSILON))
    per_angle = weight * 2.0 * ASPECT_SCALE * angle / (width_a * width_a + height_a * height_a)
    by_width, by_height = per_angle * height_a, -per_angle * width_a
    return left - by_width, top - by_height, right + by_width, bottom + by_height
