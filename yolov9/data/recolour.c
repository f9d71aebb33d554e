/* Changes hue, saturation and value of 8-bit pictures in one pass. `augment.py` has the same with OpenCV, which is the
 * specification. Written so that a compiler turns the middle loop into vector instructions. */
#include <stddef.h>
#include <stdint.h>

enum { BLOCK = 256 }; /* pixels that stay in the first-level cache */

static inline float least(float a, float b) { return a < b ? a : b; }
static inline float most(float a, float b) { return a > b ? a : b; }
static inline float whole(float a) { return (float)(int)a; }

/* place: hue in sixths of the circle plus 5, 3 or 1 for red, green, blue. OpenCV cuts off, too. */
static inline uint8_t channel(float place, float value, float chroma)
{
    float k = place >= 6.0f ? place - 6.0f : place;
    float share = most(0.0f, least(1.0f, least(k, 4.0f - k)));
    return (uint8_t)(int)(value - chroma * share + 1e-4f);
}

static void block(const uint8_t *bgr, uint8_t *rgb, int count, float hue, float saturation, float value)
{
    float b[BLOCK], g[BLOCK], r[BLOCK];
    uint8_t red[BLOCK], green[BLOCK], blue[BLOCK];
    for (int i = 0; i < count; i++) {
        b[i] = bgr[3 * i];
        g[i] = bgr[3 * i + 1];
        r[i] = bgr[3 * i + 2];
    }
    for (int i = 0; i < count; i++) {
        float v = most(most(b[i], g[i]), r[i]), range = v - least(least(b[i], g[i]), r[i]);
        float h = v == r[i] ? g[i] - b[i] : v == g[i] ? b[i] - r[i] + 2.0f * range : r[i] - g[i] + 4.0f * range;
        h = whole(h * (30.0f / most(range, 1.0f)) + 30.5f) - 30.0f; /* OpenCV's 0 to 179; the least is -30 */
        h = h < 0.0f ? h + 180.0f : h;
        h = whole(h * hue) * (1.0f / 30.0f); /* divisions are what takes the time here */
        h = h >= 6.0f ? h - 6.0f : h;
        float s = whole(range * (255.0f / most(v, 1.0f)) + 0.5f);
        s = whole(least(s * saturation, 255.0f));
        v = whole(least(v * value, 255.0f));
        float chroma = v * s * (1.0f / 255.0f);
        red[i] = channel(h + 5.0f, v, chroma);
        green[i] = channel(h + 3.0f, v, chroma);
        blue[i] = channel(h + 1.0f, v, chroma);
    }
    for (int i = 0; i < count; i++) {
        rgb[3 * i] = red[i];
        rgb[3 * i + 1] = green[i];
        rgb[3 * i + 2] = blue[i];
    }
}

/* pitch: bytes from one row to the next. The two pictures are the same one or do not overlap. */
void recolour(const uint8_t *bgr, ptrdiff_t bgr_pitch, uint8_t *rgb, ptrdiff_t rgb_pitch, int height, int width,
              float hue, float saturation, float value)
{
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x += BLOCK)
            block(bgr + y * bgr_pitch + 3 * x, rgb + y * rgb_pitch + 3 * x, width - x < BLOCK ? width - x : BLOCK,
                  hue, saturation, value);
}
