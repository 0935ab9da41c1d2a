#include "view/mark.h"
#include "term/gate.h"

#include <math.h>
#include <string.h>

static const char *const large[] = {
    "            ⢀    ⣆   ⣴   ⢠",
    "            ⠈⣷⡀ ⢰⣿⣆ ⣸⣿⡄ ⣠⣿   ⣠",
    "         ⢷⣤⡀ ⣿⣿⣦⣸⣿⣿⣤⣿⣿⣧⣴⣿⣿ ⣠⣾⡏",
    "     ⠠⣄⡀ ⠈⣿⣿⣦⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣾⣿⣿⠁⣀⣴⡾⠁         ⣠⣄",
    "      ⠘⣿⣷⣦⣼⣿⣿⣿⣿⣿⡿⠿⣻⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⡿⠁          ⣿⣿",
    "   ⠲⣤⣤⣀⣈⣿⣿⣿⣿⣿⠟⢋⣤⣶⡿⢻⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⠁  ⣠⣄   ⢻⣆  ⠿⠿  ⣰⡏   ⣠⣄",
    "    ⠈⠻⣿⣿⣿⣿⣿⠟⠁ ⣼⣿⠁ ⠸⣿⣿⣿⣿⣿⡿⠿⣿⣿⣿⣿⣿⣿⣷⣶⣿⣿⣷⣄  ⣁⣤⣴⣶⣶⣤⣤⣈  ⣠⣾⠟⠁",
    " ⠲⢶⣶⣶⣶⣾⣿⣿⣿⠏  ⣸⣿⣿⡆⣠⣴⣿⣿⣿⣿⣿⣇⡐⢗⣴⣿⣿⣿⣿⣿⣿⣿⣿⣿⣉⣱⡿⠟⠉⠉  ⠉⠙⠻⢿⣦⡈⠁",
    "   ⠉⠻⢿⣿⣿⣿⡏   ⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⠏          ⠹⣿⡄⠰⠾⠛",
    "⠠⣤⣴⣶⣾⣿⣿⣿⣿⠇   ⣿⣿⣿⣿⣿⣿⣿⡟⢿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⠛⠛⣿⡿⣿⡏    ⢀⣤⣤⡀    ⢹⣿",
    "  ⠈⠉⠛⣻⣿⣿⣿⡆   ⣿⣿⣿⣿⣧⠘⣿⣷⡈⢿⣿⣿⣿⣿⣿⠿⠋⠙⠇  ⠘⠹⣿⡇    ⢿⣿⣿⡷    ⢸⣿ ⠿⠿⠿⠿⠇",
    " ⣀⣤⣶⣿⣿⣿⣿⣿⣇   ⠘⣿⣿⣿⣿⣧⡈⢿⣷⣈⣿⣿⣿⣿⣿⡇       ⣿⣇    ⠈⠉⠉     ⣼⡿",
    " ⠉⠉⠉⠉⢉⣽⣿⣿⣿⣆   ⠘⣿⣿⣿⣿⣷⣾⣿⡿⠻⣿⣿⣿⣿⣿⡀  ⡀   ⠘⢿⣦⡀        ⢀⣴⡿⠁⠘⠷⢦",
    "   ⣠⣶⣿⣿⠿⣿⣿⣿⣦⡀  ⠘⢿⣿⣿⣿⣿⣿⣿⣦⡈⠻⣿⣿⣿⣿⣷⣼⣧  ⢀⣦⠈⠻⢿⣦⣤⣀⣀⣀⣀⣤⣶⡿⠋⣠⣄",
    "  ⠈⠉  ⢀⣼⣿⣿⣿⣿⣿⣦⣄  ⠈⠻⣿⣿⣿⣿⣿⣿⣦⣼⣿⣿⣿⣿⣿⣿⣿⣶⣾⣿⣄ ⢀⣈⠙⠛⠛⠛⠛⠋⣁  ⠙⢿⣷⣄",
    "     ⣠⡿⠟⠛⢩⣿⣿⣿⣿⣿⣿⣷⣶⣤⣤⣽⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⡿⠃⣼⠃  ⣾⣷  ⠸⣧   ⠙⠋",
    "     ⠁  ⢀⣾⡿⠟⢹⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⡟⠛⠿⣿⡟⠛⠛⠛⠛⠁     ⣿⣿",
    "        ⠜⠋  ⣼⣿⠟⢸⣿⣿⠟⣿⣿⣿⠹⣿⣿⠇⠙⢿⣧  ⠈⠑          ⠉⠉",
    "            ⠟⠁  ⣿⠏ ⠸⣿⠇ ⠹⣿   ⠹",
    "                ⠏   ⠻   ⠘",
    NULL,
};

static const char *const middle[] = {
    "         ⣆ ⢸⣇ ⣼⡆ ⣼  ⡀",
    "      ⠰⣦⡀⣿⣷⣼⣿⣶⣿⣧⣾⣿⣠⣾⠇ ⣀",
    "    ⠱⣦⣄⣻⣿⣿⣿⣿⢿⣿⣿⣿⣿⣿⣿⣿⣴⣾⠃      ⢰⣶",
    "  ⠐⢤⣤⣼⣿⣿⡿⠛⣩⡶⠛⣿⣿⣿⣿⣿⣿⣿⣿⣇⡀⢠⣄  ⢷ ⠘⠟ ⢰⠃ ⢀⣤",
    " ⣀⣀⣀⣹⣿⣿⡟ ⢰⣿⡄⢀⣿⣿⣿⣿⠉⣟⣿⣿⣿⣿⣿⣿⡗⢠⡴⠾⠛⠛⠻⢶⣤⡐⠟⠁",
    "  ⠉⢻⣿⣿⡟  ⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⠏      ⠈⢷⡄⠶⠂",
    "⠐⠚⠿⢿⣿⣿⡇  ⣿⣿⣿⡻⣿⡍⢿⣿⣿⣿⣿⠟⡿⠉⠹⢿⡏   ⣴⣶⡄  ⠘⣧⢠⣤⣤⡄",
    " ⣠⣴⣾⣿⣿⣧  ⠹⣿⣿⣷⡘⣿⣌⣿⣿⣿⣇    ⠘⣷   ⠙⠋⠁  ⣸⡏",
    "   ⣠⣾⣿⣿⣧  ⠹⣿⣿⣿⣿⣯⡙⢿⣿⣿⣤⣀⡄  ⡙⢷⣄⡀   ⣀⣴⠟ ⠉⠃",
    "  ⠈⠉⢉⣽⣿⣿⣷⣤⣀⠈⠛⢿⣿⣿⣿⣦⣽⣿⣿⣿⣿⣶⣾⣇ ⢉⠛⠛⠛⠛⢋⠁⠘⢷⣄",
    "   ⠠⠚⠋⢡⣿⡿⣿⣿⣿⣶⣶⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⠿⠁⠋ ⢸⣿ ⠈⠃  ⠁",
    "      ⠟⠁⢸⡿⠋⣿⡿⢿⣿⠻⣿⡏⠻⣷ ⠉⠃      ⠈⠋",
    "        ⠘⠁ ⡿⠁⠘⡟ ⠹⡇ ⠈",
    "              ⠁",
    NULL,
};

static const char *const small[] = {
    "       ⢀ ⢀",
    "    ⢄⡈⣦⣸⣦⣿⣠⡇⣠⠆⢀",
    "   ⢶⣼⣿⡿⢿⣿⣿⣿⣿⣿⣶⠏  ⢀ ⢰ ⢀",
    "⢀⣈⣻⣿⡿⠋⣼⡋⣸⣿⣿⢻⣿⣿⣶⣾⡦⣈⡤⠾⠦⣅⡠⠞",
    "⢀⣈⣿⣿⠃ ⣿⣿⣿⢿⣿⣿⣿⣿⡿⣿⣿⠁ ⣀  ⢳⡐⠃",
    "⢀⣨⣽⣿⡄ ⢿⣿⡜⣧⣻⣿⣏⠉ ⠈⢧  ⠛⠃ ⢸⠇⠛⠋",
    " ⠠⠾⢿⣷⣄⠈⠿⣿⣿⣯⡻⣿⣦⣦⣀⡌⠳⣤⣀⣠⠴⢫⡈⠁",
    "  ⠰⠛⣻⣿⣷⣶⣬⣿⣿⣿⣿⣿⣿⣿⡿⠰ ⢰ ⠲ ⠙",
    "   ⠐⠁⠸⠋⣿⠻⡟⢻⡏⠻ ⠁    ⠈",
    "       ⠁ ⠁",
    NULL,
};

struct art {
    const char *const *rows;
    int w, h;
    double sun_x, sun_y; /* centre of the sun, as parts of the size */
    double sun_from;     /* columns behind this part are the sun's */
};

static const struct art arts[] = {
    {large, 58, 20, 0.80, 0.55, 0.66},
    {middle, 40, 14, 0.78, 0.50, 0.62},
    {small, 26, 10, 0.75, 0.53, 0.63},
};

static const char motto_1[] = "Visita Interiora Terrae Rectificando", motto_2[] = "Invenies Occultum Lapidem";

/* A fixed number from 0 to 1 for each dot. */
static double threshold(const struct art *a, int dot_x, int dot_y)
{
    uint32_t h = (uint32_t)dot_x * 0x9e3779b1u ^ (uint32_t)dot_y * 0x85ebca77u;
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    h ^= h >> 12;
    double dx = dot_x / 2.0 / a->w - a->sun_x, dy = dot_y / 4.0 / a->h - a->sun_y;
    double far = sqrt(dx * dx + dy * dy);
    return 0.5 * (h & 0xffff) / 65536.0 + 0.5 * (far < 1 ? far : 1);
}

/* The cell's dots that are still there in that frame. Bits of braille: columns of 1,2,3,7 and 4,5,6,8. */
static uint32_t left_of(const struct art *a, uint32_t cp, int x, int y, int frame)
{
    static const struct {
        uint8_t x, y;
    } dots[8] = {{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}, {0, 3}, {1, 3}};
    uint32_t bits = cp & 0xff;
    for (int i = 0; i < 8; i++)
        if (threshold(a, 2 * x + dots[i].x, 4 * y + dots[i].y) < (double)frame / MARK_FRAMES)
            bits &= ~(1u << i);
    return bits;
}

static void draw_art(struct grid *g, const struct art *a, int x0, int y0, int frame)
{
    for (int y = 0; a->rows[y]; y++) {
        const char *s = a->rows[y];
        size_t n = strlen(s);
        int x = 0;
        for (size_t i = 0; i < n; x++) {
            uint32_t cp;
            char utf8[4];
            i += gate_decode(s + i, n - i, &cp);
            if (cp < 0x2800 || cp > 0x28ff)
                continue;
            uint32_t bits = left_of(a, cp, x, y, frame);
            if (!bits)
                continue;
            struct piece p = {.width = 1};
            p.n = (uint8_t)gate_encode(0x2800 + bits, utf8);
            memcpy(p.bytes, utf8, p.n);
            bool sun = (double)x / a->w > a->sun_from;
            grid_piece(g, x0 + x, y0 + y, &p,
                       (struct style){.fg = sun ? ROLE_GOLD : ROLE_VERDIGRIS, .attr = ATTR_DIM});
        }
    }
}

static void centred(struct grid *g, int y, int w, const char *s, struct style st)
{
    int n = (int)gate_width(s, strlen(s), GATE_RUNNING);
    grid_str(g, (w - n) / 2, y, w, st, s);
}

void mark_draw(struct grid *g, int y0, int y1, int w, const struct caps *caps, int frame)
{
    int h = y1 - y0;
    if (frame >= MARK_FRAMES)
        return;
    for (size_t i = 0; caps->glyphs == GLYPHS_FULL && w >= 60 && i < sizeof arts / sizeof arts[0]; i++) {
        const struct art *a = &arts[i];
        bool motto = h >= a->h + 3;
        if (h < a->h + 2 || w < a->w + 4)
            continue;
        int spare = h - a->h - (motto ? 2 : 0), top = y0 + spare / 2 + (spare >= 2);
        draw_art(g, a, (w - a->w) / 2, top, frame);
        if (motto && frame == 0) {
            centred(g, top + a->h, w, motto_1, style_of(ROLE_DIM));
            centred(g, top + a->h + 1, w, motto_2, style_of(ROLE_DIM));
        }
        return;
    }
    if (frame == 0)
        centred(g, y0 + h / 2, w, caps->glyphs == GLYPHS_ASCII ? "(o)" : "☉",
                (struct style){.fg = ROLE_GOLD});
}
