/* Draws 8-bit pictures: bilinear resampling along the axes, and the change of hue, saturation and value, in one pass.
 *
 * `brush.py` has the same with OpenCV, which is the specification. A pixel is three bytes in pictures and four inside
 * (the last one means nothing), so that compilers turn all loops over pixels into vector instructions; what they do not
 * is in `columns.h`. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "columns.h"
enum {
    BLOCK = 256, /* pixels that stay in the first-level cache */
    LANES = 16   /* pixels that a processor calculates at a time, at most */
};
enum { KEPT, OF_SOURCE, OF_RESULT }; /* colours */

static inline float least(float a, float b) { return a < b ? a : b; }
static inline float most(float a, float b) { return a > b ? a : b; }
static inline float whole(float a) { return (float)(int)a; }
static inline float size(float a) { return a < 0.0f ? -a : a; }

/* distance: how much of the chroma a channel lacks, before it is limited to 0 to 1. OpenCV cuts off, too. */
static inline uint32_t channel(float distance, float value, float chroma)
{
    return (uint32_t)(int)(value - chroma * most(0.0f, least(1.0f, distance)));
}

/* Blue, green, red, from the lowest byte on, to red, green, blue. Up to LANES - 1 pixels more than `count` are changed:
 * the rest of a line would take as long one by one as a hundred pixels take together.
 *
 * Three short loops: in one, a processor would wait for results most of the time. */
static void recolour_line(uint32_t *pixels, int count, const float *factors)
{
    float hues[BLOCK], saturations[BLOCK], values[BLOCK];
    const float hue = factors[0], saturation = factors[1], value = factors[2];
    for (int first = 0; first < count; first += BLOCK) {
        const int end = count - first < BLOCK ? (count - first + LANES - 1) & -LANES : BLOCK;
        uint32_t *block = pixels + first;
        for (int i = 0; i < end; i++) {
            uint32_t bgr = block[i];
            float b = (float)(int)(bgr & 255), g = (float)(int)(bgr >> 8 & 255), r = (float)(int)(bgr >> 16 & 255);
            float v = most(most(b, g), r), range = v - least(least(b, g), r);
            float h = r - g + 4.0f * range;
            h = v == g ? b - r + 2.0f * range : h;
            h = v == r ? g - b : h;
            float divisor_h = most(range, 1.0f), divisor_s = most(v, 1.0f);
            float both = 1.0f / (divisor_h * divisor_s); /* divisions are what takes the time here */
            hues[i] = h * (30.0f * both * divisor_s);
            saturations[i] = range * (255.0f * both * divisor_h);
            values[i] = v;
        }
        for (int i = 0; i < end; i++) {
            float h = whole(hues[i] + 30.5f) - 30.0f; /* OpenCV's 0 to 179; the least is -30 */
            h = h < 0.0f ? h + 180.0f : h;
            h = whole(h * hue) * (1.0f / 30.0f);
            hues[i] = h >= 6.0f ? h - 6.0f : h;
            float s = whole(saturations[i] + 0.5f);
            s = whole(least(s * saturation, 255.0f));
            float v = whole(least(values[i] * value, 255.0f));
            saturations[i] = v * s * (1.0f / 255.0f);
            values[i] = v + 1e-4f;
        }
        for (int i = 0; i < end; i++) {
            float h = hues[i], v = values[i], chroma = saturations[i];
            block[i] = channel(2.0f - size(h - 3.0f), v, chroma) | channel(size(h - 2.0f) - 1.0f, v, chroma) << 8 |
                       channel(size(h - 4.0f) - 1.0f, v, chroma) << 16;
        }
    }
}

static void mix(const uint8_t *first, const uint8_t *second, int count, uint16_t of_second, uint8_t *out)
{
    const uint16_t of_first = (uint16_t)(ONE - of_second);
    for (int i = 0; i < count; i++)
        out[i] = (uint8_t)((uint16_t)(first[i] * of_first + second[i] * of_second + ONE / 2) / ONE);
}

/* pitch: bytes from one row to the next. The pictures are the same one or do not overlap.
 * other, share: a picture of the same form that is blended in first, and how much of it, in 1 / ONE; NULL for none. */
void recolour(const uint8_t *bgr, ptrdiff_t bgr_pitch, const uint8_t *other, int share, uint8_t *rgb,
              ptrdiff_t rgb_pitch, int height, int width, float hue, float saturation, float value)
{
    const float factors[] = {hue, saturation, value};
    uint32_t line[BLOCK] = {0};
    uint8_t mixed[3 * BLOCK];
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x += BLOCK) {
            int count = width - x < BLOCK ? width - x : BLOCK;
            const ptrdiff_t at = y * bgr_pitch + 3 * x;
            if (other)
                mix(bgr + at, other + at, 3 * count, (uint16_t)share, mixed);
            unpack(other ? mixed : bgr + at, line, count);
            recolour_line(line, count, factors);
            pack(line, rgb + y * rgb_pitch + 3 * x, count);
        }
}

/* The pixel at or before a position and the share of the one after it; the edges of a picture go on for ever. */
static int neighbour(double position, int size, int *share)
{
    int last = size - 1, at = (int)position;
    if (position <= 0.0 || last == 0) {
        *share = 0;
        return 0;
    }
    if (at >= last) {
        *share = ONE;
        return last - 1;
    }
    *share = (int)((position - at) * ONE + 0.5);
    return at;
}

/* Averages of two by two pixels; where the source ends between them, its edge is repeated. Returns as `resample`. */
int halve(const uint8_t *source, ptrdiff_t source_pitch, int source_height, int source_width,
          uint8_t *out, ptrdiff_t out_pitch, int height, int width)
{
    uint16_t *sums = calloc((size_t)width + LANES, 2 * 3 * sizeof *sums);
    uint32_t *line = calloc((size_t)width + LANES, sizeof *line);
    const int failed = !sums || !line;
    for (int y = 0; !failed && y < height; y++) {
        const uint8_t *upper = source + 2 * y * source_pitch;
        const uint8_t *lower = 2 * y + 1 < source_height ? upper + source_pitch : upper;
        halve_row(upper, lower, source_width, width, sums, line);
        pack(line, out + y * out_pitch, width);
    }
    free(sums), free(line);
    return failed ? -1 : 0;
}

/* Writes every pixel of `out` from the source at start + number x step, in pixels from centre to centre.
 *
 * colours: change them with the factors, and blue, green, red become red, green, blue.
 * Returns 0, or -1 when there is no memory. */
int resample(const uint8_t *source, ptrdiff_t source_pitch, int source_height, int source_width,
             uint8_t *out, ptrdiff_t out_pitch, int height, int width,
             double start_x, double step_x, double start_y, double step_y, int colours, float hue, float saturation,
             float value)
{
    const float factors[] = {hue, saturation, value};
    const int before = colours == OF_SOURCE, channels = before ? 4 : 3;
    const size_t columns = (size_t)width + LANES, source_columns = (size_t)source_width + LANES;
    uint64_t *left = calloc(columns, sizeof *left), *right = calloc(columns, sizeof *right);
    level *row = calloc(source_columns, 4 * sizeof *row);
    uint32_t *line = calloc(columns, sizeof *line), *recoloured = calloc(2 * source_columns, sizeof *recoloured);
    int *at = calloc(columns, sizeof *at), *of_right = calloc(columns, sizeof *of_right);
    int recoloured_y[2] = {-1, -1}, share;
    const int failed = !left || !right || !row || !line || !recoloured || !at || !of_right;
    for (int x = 0; !failed && x < width; x++)
        at[x] = channels * neighbour(start_x + x * step_x, source_width, of_right + x);
    const int planned = !failed && plan_columns(step_x, channels, at, of_right, width, left, right);
    for (int y = 0; !failed && y < height; y++) {
        const uint8_t *rows[2];
        int upper = neighbour(start_y + y * step_y, source_height, &share);
        for (int k = 0; k < 2; k++) {
            int number = upper + k < source_height ? upper + k : upper;
            rows[k] = source + number * source_pitch;
            if (before) {
                uint32_t *kept = recoloured + (number & 1) * source_columns;
                if (recoloured_y[number & 1] != number) {
                    unpack(rows[k], kept, source_width);
                    recolour_line(kept, source_width, factors);
                    recoloured_y[number & 1] = number;
                }
                rows[k] = (const uint8_t *)kept;
            }
        }
        blend_rows(rows[0], rows[1], channels * source_width, share, row);
        blend_columns(row, channels, at, of_right, planned, width, left, right, line);
        if (colours == OF_RESULT)
            recolour_line(line, width, factors);
        pack(line, out + y * out_pitch, width);
    }
    free(left), free(right), free(row), free(line), free(recoloured), free(at), free(of_right);
    return failed ? -1 : 0;
}
