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

/* Makes `at` of a group that of its leftmost pixel, and `places` count from there; both neighbours of all pixels of a
 * group must lie within 64 values of the row. Returns whether they do. */
static int group_columns(double step, int channels, int *at, uint16_t *places, int count)
{
    const double width = (GROUP - 1) * (step < 0 ? -step : step) + 2;
    if (width * channels + 4 > 64)
        return 0;
    for (int i = 0; i < count; i += GROUP) {
        const int end = i + GROUP < count ? i + GROUP : count, first = at[i] < at[end - 1] ? at[i] : at[end - 1];
        for (int x = i; x < end; x++)
            for (int c = 0; c < 4; c++)
                places[4 * x + c] = (uint16_t)(at[x] - first + c);
        at[i] = first;
    }
    return 1;
}

/* As `blend_columns`, for what `group_columns` made. */
static void blend_groups(const uint16_t *row, int channels, const int *at, const uint16_t *places, const uint16_t *right,
                         int count, uint32_t *line)
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

/* Averages of neighbours in a row of sums of two. */
static void halve_columns(const uint16_t *sums, int count, uint32_t *line)
{
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

/* Averages of neighbours in a row of sums of two. */
static void halve_columns(const uint16_t *sums, int count, uint32_t *line)
{
    for (int x = 0; x < count; x += 2) {
        const uint16_t *a = sums + 6 * x, *b = a + 6;
        words mean = (load_two(a, b) + load_two(a + 3, b + 3) + 2) / 4;
        bytes narrow = PICK((bytes)mean, 0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14); /* the lower bytes */
        memcpy(line + x, &narrow, 8);
    }
}

/* Only long vectors take groups. */
static int group_columns(double step, int channels, int *at, uint16_t *places, int count)
{
    (void)step, (void)channels, (void)at, (void)places, (void)count;
    return 0;
}

#endif

/* Two pixels at a time. at: where the left neighbour lies in the row. left, right: shares, four times each.
 * grouped: as `group_columns` says; `left` is then its `places`. */
static void blend_columns(const uint16_t *row, int channels, const int *at, const uint16_t *left, const uint16_t *right,
                          int grouped, int count, uint32_t *line)
{
#ifdef __AVX512VBMI__
    if (grouped) {
        blend_groups(row, channels, at, left, right, count, line);
        return;
    }
#else
    (void)grouped;
#endif
    for (int i = 0; i < count; i += 2) {
        const uint16_t *a = row + at[i], *b = row + at[i + 1];
        words sum = load_two(a, b) * load(left + 4 * i) +
                    load_two(a + channels, b + channels) * load(right + 4 * i) + ONE / 2;
        bytes rounded = PICK((bytes)sum, 1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15); /* the upper bytes */
        memcpy(line + i, &rounded, 8);
    }
}
