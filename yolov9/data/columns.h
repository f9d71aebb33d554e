/* Moves and blends pixels within a row, which compilers do not turn into vector instructions on their own: with 16-byte
 * vectors, and with 64-byte ones where the processor has AVX-512. Both give the same pixels. */
#include <stdint.h>
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
    GROUP = 8, /* pixels that are blended at a time */
    ONE = 256  /* shares of neighbouring pixels add up to it */
};
static const uint64_t EACH_CHANNEL = 0x0001000100010001; /* what is done alike to the four 16-bit parts of a pixel */

static inline words load(const uint64_t *both)
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

/* A level of a pixel less 128, so that `_mm512_maddubs_epi16` takes it. */
typedef int8_t level;

/* Writes up to 63 levels more than `count`. */
static void blend_rows(const uint8_t *upper, const uint8_t *lower, int count, int share, level *row)
{
    const uint8_t *first = share == ONE ? lower : upper, *second = share == 0 ? upper : lower;
    const int of_second = share % ONE ? share : ONE / 2; /* a share of all of it is not a byte */
    const __m512i shares = _mm512_set1_epi16((short)((ONE - of_second) | of_second << 8));
    const __m512i middle = _mm512_set1_epi8((char)128), half = _mm512_set1_epi16(ONE / 2);
    for (int i = 0; i < count; i += 64) {
        const __mmask64 left = count - i < 64 ? (1ull << (count - i)) - 1 : ~0ull;
        const __m512i a = _mm512_xor_si512(_mm512_maskz_loadu_epi8(left, first + i), middle);
        const __m512i b = _mm512_xor_si512(_mm512_maskz_loadu_epi8(left, second + i), middle);
        const __m512i low = _mm512_maddubs_epi16(shares, _mm512_unpacklo_epi8(a, b));
        const __m512i high = _mm512_maddubs_epi16(shares, _mm512_unpackhi_epi8(a, b));
        _mm512_storeu_si512(row + i, _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(low, half), 8),
                                                        _mm512_srai_epi16(_mm512_add_epi16(high, half), 8)));
    }
}

/* Makes `at` of a group that of its leftmost pixel; `places` are then those of both neighbours of each channel, from
 * there, and `shares` theirs. All neighbours of a group must lie within 64 levels of the row. Returns whether they do. */
static int plan_columns(double step, int channels, int *at, const int *of_right, int count, uint64_t *places,
                        uint64_t *shares)
{
    const double width = (GROUP - 1) * (step < 0 ? -step : step) + 2;
    if (width * channels + 4 > 64)
        return 0;
    for (int i = 0; i < count; i += GROUP) {
        const int end = i + GROUP < count ? i + GROUP : count, first = at[i] < at[end - 1] ? at[i] : at[end - 1];
        for (int x = i; x < end; x++) {
            const int right = of_right[x] % ONE ? of_right[x] : ONE / 2; /* a share of all of it is not a byte */
            const int a = at[x] - first + (of_right[x] == ONE ? channels : 0);
            const int b = at[x] - first + (of_right[x] == 0 ? 0 : channels);
            places[x] = 0x0303020201010000 + EACH_CHANNEL * (uint64_t)(a | b << 8);
            shares[x] = EACH_CHANNEL * (uint64_t)((ONE - right) | right << 8);
        }
        for (int x = i; x < end; x++)
            at[x] = first;
    }
    return 1;
}

static void blend_groups(const level *row, const int *at, int count, const uint64_t *places, const uint64_t *shares,
                         uint32_t *line)
{
    const __m512i half_and_128 = _mm512_set1_epi16((short)(ONE / 2 + 128 * ONE));
    for (int i = 0; i < count; i += GROUP) {
        const __m512i both = _mm512_permutexvar_epi8(_mm512_loadu_si512(places + i), _mm512_loadu_si512(row + at[i]));
        const __m512i sum = _mm512_maddubs_epi16(_mm512_loadu_si512(shares + i), both);
        const __m512i pixel = _mm512_srli_epi16(_mm512_add_epi16(sum, half_and_128), 8);
        _mm256_storeu_si256((__m256i *)(line + i), _mm512_cvtepi16_epi8(pixel));
    }
}

static void blend_columns(const level *row, int channels, const int *at, const int *of_right, int planned, int count,
                          const uint64_t *places, const uint64_t *shares, uint32_t *line)
{
    if (planned) {
        blend_groups(row, at, count, places, shares, line);
        return;
    }
    for (int x = 0; x < count; x++) {
        const level *left = row + at[x], *right = left + channels;
        line[x] = 0;
        for (int c = 0; c < 3; c++) {
            const int sum = (left[c] + 128) * (ONE - of_right[x]) + (right[c] + 128) * of_right[x];
            line[x] |= (uint32_t)((sum + ONE / 2) / ONE) << 8 * c;
        }
    }
}

/* Averages of two by two pixels; where the source ends between them, its edge is repeated. */
static void halve_row(const uint8_t *upper, const uint8_t *lower, int source_width, int width, uint16_t *sums,
                      uint32_t *line)
{
    (void)sums;
    uint8_t places[64];
    for (int k = 0; k < 64; k++)
        places[k] = (uint8_t)(k / 8 * 6 + k % 8 / 2 + k % 2 * 3);
    const __m512i both = _mm512_loadu_si512(places), ones = _mm512_set1_epi8(1), two = _mm512_set1_epi16(2);
    for (int x = 0; x < width; x += GROUP) {
        const __mmask64 there = bytes_of(source_width - 2 * x);
        const __m512i a = _mm512_permutexvar_epi8(both, _mm512_maskz_loadu_epi8(there, upper + 6 * x));
        const __m512i b = _mm512_permutexvar_epi8(both, _mm512_maskz_loadu_epi8(there, lower + 6 * x));
        const __m512i sum = _mm512_add_epi16(_mm512_maddubs_epi16(a, ones), _mm512_maddubs_epi16(b, ones));
        const __m512i mean = _mm512_srli_epi16(_mm512_add_epi16(sum, two), 2);
        _mm256_storeu_si256((__m256i *)(line + x), _mm512_cvtepi16_epi8(mean));
    }
    for (int c = 0, end = 3 * source_width - 3; c < 3 && source_width < 2 * width; c++)
        ((uint8_t *)(line + width - 1))[c] = (uint8_t)((upper[end + c] + lower[end + c] + 1) / 2);
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

/* Averages of two by two pixels; where the source ends between them, its edge is repeated. */
static void halve_row(const uint8_t *upper, const uint8_t *lower, int source_width, int width, uint16_t *sums,
                      uint32_t *line)
{
    for (int i = 0; i < 3 * source_width; i++)
        sums[i] = (uint16_t)(upper[i] + lower[i]);
    if (source_width < 2 * width)
        memcpy(sums + 3 * source_width, sums + 3 * (source_width - 1), 3 * sizeof *sums);
    for (int x = 0; x < width; x += 2) {
        const uint16_t *a = sums + 6 * x, *b = a + 6;
        words mean = (load_two(a, b) + load_two(a + 3, b + 3) + 2) / 4;
        bytes narrow = PICK((bytes)mean, 0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14); /* the lower bytes */
        memcpy(line + x, &narrow, 8);
    }
}

typedef uint16_t level;

static void blend_rows(const uint8_t *upper, const uint8_t *lower, int count, int share, level *row)
{
    const uint16_t of_lower = (uint16_t)share, of_upper = (uint16_t)(ONE - share);
    for (int i = 0; i < count; i++)
        row[i] = (uint16_t)((uint16_t)(upper[i] * of_upper) + (uint16_t)(lower[i] * of_lower) + ONE / 2) / ONE;
}

/* Makes the shares of both neighbours, four times each. */
static int plan_columns(double step, int channels, int *at, const int *of_right, int count, uint64_t *left,
                        uint64_t *right)
{
    (void)step, (void)channels, (void)at;
    for (int x = 0; x < count; x++) {
        left[x] = EACH_CHANNEL * (uint64_t)(ONE - of_right[x]);
        right[x] = EACH_CHANNEL * (uint64_t)of_right[x];
    }
    return 1;
}

/* Two pixels at a time. */
static void blend_columns(const level *row, int channels, const int *at, const int *of_right, int planned, int count,
                          const uint64_t *left, const uint64_t *right, uint32_t *line)
{
    (void)of_right, (void)planned;
    for (int i = 0; i < count; i += 2) {
        const level *a = row + at[i], *b = row + at[i + 1];
        words sum = load_two(a, b) * load(left + i) + load_two(a + channels, b + channels) * load(right + i) + ONE / 2;
        bytes rounded = PICK((bytes)sum, 1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15); /* the upper bytes */
        memcpy(line + i, &rounded, 8);
    }
}

#endif
