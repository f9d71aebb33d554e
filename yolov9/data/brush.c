/* Draws 8-bit pictures: bilinear resampling along the axes, and the change of hue, saturation and value, in one pass.
 *
 * `brush.py` has the same with OpenCV, which is the specification. A pixel is three bytes in pictures and four inside
 * (the last one means nothing), so that compilers turn all loops over pixels into vector instructions. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512VBMI__
#include <immintrin.h>
#endif

typedef uint8_t bytes __attribute__((vector_size(16)));
typedef uint16_t words __attribute__((vector_size(16)));
typedef uint64_t halves __attribute__((vector_size(16)));

#ifdef __clang__
#define PICK(v, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
#else
#define PICK(v, ...) __builtin_shuffle(v, (bytes){__VA_ARGS__})
#endif

enum {
    BLOCK = 256, /* pixels that stay in the first-level cache */
    LANES = 16,  /* pixels that a processor calculates at a time, at most */
    ONE = 256    /* shares of neighbouring pixels add up to it */
};

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
            float h = v == r ? g - b : v == g ? b - r + 2.0f * range : r - g + 4.0f * range;
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

#ifdef __AVX512VBMI__

/* Where a byte of 16 pixels lies when they take four bytes each, and three. */
static const uint8_t UNPACKED[64] = {0,  1,  2,  2,  3,  4,  5,  5,  6,  7,  8,  8,  9,  10, 11, 11, 12, 13, 14, 14, 15, 16,
                                     17, 17, 18, 19, 20, 20, 21, 22, 23, 23, 24, 25, 26, 26, 27, 28, 29, 29, 30, 31, 32, 32,
                                     33, 34, 35, 35, 36, 37, 38, 38, 39, 40, 41, 41, 42, 43, 44, 44, 45, 46, 47, 47};
static const uint8_t PACKED[64] = {0,  1,  2,  4,  5,  6,  8,  9,  10, 12, 13, 14, 16, 17, 18, 20, 21, 22, 24, 25, 26, 28,
                                   29, 30, 32, 33, 34, 36, 37, 38, 40, 41, 42, 44, 45, 46, 48, 49, 50, 52, 53, 54, 56, 57,
                                   58, 60, 61, 62};

static inline __mmask64 bytes_of(int pixels) { return pixels < 16 ? (1ull << 3 * pixels) - 1 : (1ull << 48) - 1; }

/* Up to LANES - 1 pixels more than `count` are written. */
static void unpack(const uint8_t *packed, uint32_t *pixels, int count)
{
    const __m512i order = _mm512_loadu_si512(UNPACKED);
    for (int i = 0; i < count; i += 16) {
        __m512i v = _mm512_maskz_loadu_epi8(bytes_of(count - i), packed + 3 * i);
        _mm512_storeu_si512(pixels + i, _mm512_permutexvar_epi8(order, v));
    }
}

static void pack(const uint32_t *pixels, uint8_t *packed, int count)
{
    const __m512i order = _mm512_loadu_si512(PACKED);
    for (int i = 0; i < count; i += 16) {
        __m512i v = _mm512_permutexvar_epi8(order, _mm512_loadu_si512(pixels + i));
        _mm512_mask_storeu_epi8(packed + 3 * i, bytes_of(count - i), v);
    }
}

#else

/* Four pixels at a time, as long as 16 bytes can be touched without leaving the row. */
static void unpack(const uint8_t *packed, uint32_t *pixels, int count)
{
    int i = 0;
    for (; i + 6 <= count; i += 4) {
        bytes v;
        memcpy(&v, packed + 3 * i, sizeof v);
        v = PICK(v, 0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
        memcpy(pixels + i, &v, sizeof v);
    }
    for (; i < count; i++)
        pixels[i] = packed[3 * i] | packed[3 * i + 1] << 8 | packed[3 * i + 2] << 16;
}

static void pack(const uint32_t *pixels, uint8_t *packed, int count)
{
    int i = 0;
    for (; i + 6 <= count; i += 4) {
        bytes v;
        memcpy(&v, pixels + i, sizeof v);
        v = PICK(v, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 15, 15, 15);
        memcpy(packed + 3 * i, &v, sizeof v);
    }
    for (; i < count; i++)
        for (int c = 0; c < 3; c++)
            packed[3 * i + c] = (uint8_t)(pixels[i] >> 8 * c);
}

#endif

/* pitch: bytes from one row to the next. The two pictures are the same one or do not overlap. */
void recolour(const uint8_t *bgr, ptrdiff_t bgr_pitch, uint8_t *rgb, ptrdiff_t rgb_pitch, int height, int width,
              const float *factors)
{
    uint32_t line[BLOCK] = {0};
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x += BLOCK) {
            int count = width - x < BLOCK ? width - x : BLOCK;
            unpack(bgr + y * bgr_pitch + 3 * x, line, count);
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

static void blend_rows(const uint8_t *upper, const uint8_t *lower, int count, int share, uint16_t *row)
{
    const uint16_t of_lower = (uint16_t)share, of_upper = (uint16_t)(ONE - share);
    for (int i = 0; i < count; i++)
        row[i] = (uint16_t)((uint16_t)(upper[i] * of_upper) + (uint16_t)(lower[i] * of_lower) + ONE / 2) / ONE;
}

static inline words load(const uint16_t *both)
{
    words v;
    memcpy(&v, both, sizeof v);
    return v;
}

static inline words load_two(const uint16_t *first, const uint16_t *second)
{
    uint64_t a, b;
    memcpy(&a, first, sizeof a);
    memcpy(&b, second, sizeof b);
    return (words)(halves){a, b};
}

/* Two pixels at a time. at: where the left neighbour lies in the row. left, right: shares, four times each. */
static void blend_columns(const uint16_t *row, int channels, const int *at, const uint16_t *left, const uint16_t *right,
                          int count, uint32_t *line)
{
    for (int i = 0; i < count; i += 2) {
        const uint16_t *a = row + at[i], *b = row + at[i + 1];
        words sum = load_two(a, b) * load(left + 4 * i) +
                    load_two(a + channels, b + channels) * load(right + 4 * i) + ONE / 2;
        bytes rounded = PICK((bytes)sum, 1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15); /* the upper bytes */
        memcpy(line + i, &rounded, 8);
    }
}

#ifdef __AVX512VBMI__

enum { GROUP = 8 }; /* pixels that are blended at a time */

/* Tells whether the neighbours of any GROUP pixels lie within 64 values of the row. */
static int is_dense(double step, int channels) { return ((GROUP - 1) * size((float)step) + 2.0f) * channels + 4.0f <= 64.0f; }

/* Makes `at` of a group that of its leftmost pixel, and `places` count from there. */
static void group_columns(int *at, uint16_t *places, int count)
{
    for (int i = 0; i < count; i += GROUP) {
        const int end = i + GROUP < count ? i + GROUP : count, first = at[i] < at[end - 1] ? at[i] : at[end - 1];
        for (int x = i; x < end; x++)
            for (int c = 0; c < 4; c++)
                places[4 * x + c] = (uint16_t)(at[x] - first + c);
        at[i] = first;
    }
}

/* As `blend_columns`, with columns in groups. */
static void blend_dense_columns(const uint16_t *row, int channels, const int *at, const uint16_t *places,
                                const uint16_t *right, int count, uint32_t *line)
{
    const __m512i next = _mm512_set1_epi16((short)channels), half = _mm512_set1_epi16(ONE / 2);
    for (int i = 0; i < count; i += GROUP) {
        const uint16_t *first = row + at[i];
        const __m512i low = _mm512_loadu_si512(first), high = _mm512_loadu_si512(first + 32);
        const __m512i place = _mm512_loadu_si512(places + 4 * i);
        const __m512i a = _mm512_permutex2var_epi16(low, place, high);
        const __m512i b = _mm512_permutex2var_epi16(low, _mm512_add_epi16(place, next), high);
        const __m512i change = _mm512_mullo_epi16(_mm512_sub_epi16(b, a), _mm512_loadu_si512(right + 4 * i));
        const __m512i sum = _mm512_add_epi16(_mm512_add_epi16(_mm512_slli_epi16(a, 8), half), change);
        _mm256_storeu_si256((__m256i *)(line + i), _mm512_cvtepi16_epi8(_mm512_srli_epi16(sum, 8)));
    }
}

#endif

/* Averages of neighbours in a row of sums of two. */
static void halve_columns(const uint16_t *sums, int count, uint32_t *line)
{
#ifdef __AVX512VBMI__
    uint16_t places[32];
    for (int k = 0; k < 32; k++)
        places[k] = (uint16_t)(k / 4 * 6 + k % 4);
    const __m512i left = _mm512_loadu_si512(places), right = _mm512_add_epi16(left, _mm512_set1_epi16(3));
    for (int x = 0; x < count; x += GROUP) {
        const __m512i low = _mm512_loadu_si512(sums + 6 * x), high = _mm512_loadu_si512(sums + 6 * x + 32);
        const __m512i sum = _mm512_add_epi16(_mm512_permutex2var_epi16(low, left, high),
                                             _mm512_permutex2var_epi16(low, right, high));
        const __m512i mean = _mm512_srli_epi16(_mm512_add_epi16(sum, _mm512_set1_epi16(2)), 2);
        _mm256_storeu_si256((__m256i *)(line + x), _mm512_cvtepi16_epi8(mean));
    }
#else
    for (int x = 0; x < count; x += 2) {
        const uint16_t *a = sums + 6 * x, *b = a + 6;
        words mean = (load_two(a, b) + load_two(a + 3, b + 3) + 2) / 4;
        bytes narrow = PICK((bytes)mean, 0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14); /* the lower bytes */
        memcpy(line + x, &narrow, 8);
    }
#endif
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
        for (int i = 0; i < 3 * source_width; i++)
            sums[i] = (uint16_t)(upper[i] + lower[i]);
        if (source_width < 2 * width)
            memcpy(sums + 3 * source_width, sums + 3 * (source_width - 1), 3 * sizeof *sums);
        halve_columns(sums, width, line);
        pack(line, out + y * out_pitch, width);
    }
    free(sums), free(line);
    return failed ? -1 : 0;
}

/* Writes every pixel of `out` from the source at start + number x step, in pixels from centre to centre.
 *
 * factors: change of colours, and blue, green, red become red, green, blue; NULL for none.
 * colours_first: change those of the source, which has fewer pixels.
 * Returns 0, or -1 when there is no memory. */
int resample(const uint8_t *source, ptrdiff_t source_pitch, int source_height, int source_width,
             uint8_t *out, ptrdiff_t out_pitch, int height, int width,
             double start_x, double step_x, double start_y, double step_y, const float *factors, int colours_first)
{
    const int before = factors != NULL && colours_first, channels = before ? 4 : 3;
    const size_t columns = (size_t)width + LANES, source_columns = (size_t)source_width + LANES;
    uint16_t *left = calloc(columns, 4 * sizeof *left), *right = calloc(columns, 4 * sizeof *right);
    uint16_t *row = calloc(source_columns, 4 * sizeof *row);
    uint32_t *line = calloc(columns, sizeof *line), *recoloured = calloc(2 * source_columns, sizeof *recoloured);
    int *at = calloc(columns, sizeof *at), recoloured_y[2] = {-1, -1}, share;
    const int failed = !left || !right || !row || !line || !recoloured || !at;
    for (int x = 0; !failed && x < width; x++) {
        at[x] = channels * neighbour(start_x + x * step_x, source_width, &share);
        for (int c = 0; c < 4; c++) {
            left[4 * x + c] = (uint16_t)(ONE - share);
            right[4 * x + c] = (uint16_t)share;
        }
    }
#ifdef __AVX512VBMI__
    const int dense = !failed && is_dense(step_x, channels);
    if (dense)
        group_columns(at, left, width);
#endif
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
#ifdef __AVX512VBMI__
        if (dense)
            blend_dense_columns(row, channels, at, left, right, width, line);
        else
#endif
        blend_columns(row, channels, at, left, right, width, line);
        if (factors != NULL && !before)
            recolour_line(line, width, factors);
        pack(line, out + y * out_pitch, width);
    }
    free(left), free(right), free(row), free(line), free(recoloured), free(at);
    return failed ? -1 : 0;
}
