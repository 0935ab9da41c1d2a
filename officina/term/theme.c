#include "term/theme.h"

/* Light values are darkened until their contrast to white is at least 4.5 to 1; test_theme.c works it out. */
struct value {
    int dark, light;     /* 24-bit */
    short p256, l256;    /* of 256 */
    short p16, l16;      /* of 16 */
    unsigned char alone; /* attributes when there is no colour */
};

static const struct value inks[ROLE_N] = {
    [ROLE_TEXT] = {-1, -1, -1, -1, -1, -1, 0},
    [ROLE_DIM] = {0x8a8f7a, 0x666a58, 245, 242, 8, 8, ATTR_DIM},
    [ROLE_VERDIGRIS] = {0x3fa66b, 0x27764a, 71, 29, 2, 2, ATTR_BOLD},
    [ROLE_GOLD] = {0xd9a441, 0x8a6212, 179, 94, 3, 3, ATTR_UNDERLINE},
    [ROLE_CINNABAR] = {0xc8452f, 0xb03a26, 167, 124, 1, 1, ATTR_REVERSE},
    [ROLE_SILVER] = {0xb9c4cc, 0x4d5a63, 251, 240, 15, 0, ATTR_BOLD},
    [ROLE_ADDED] = {0x7fd69a, 0x1d6b3a, 114, 22, 2, 2, 0},
    [ROLE_REMOVED] = {0xf09a88, 0x9c2f1d, 210, 88, 1, 1, 0},
    [ROLE_COMMENT] = {0x8a8f7a, 0x666a58, 245, 242, 8, 8, 0},
    [ROLE_STRING] = {0x87af87, 0x3f6b3f, 108, 22, 2, 2, 0},
    [ROLE_NUMBER] = {0xd7af5f, 0x855f00, 179, 94, 3, 3, 0},
    [ROLE_KEYWORD] = {0x87afd7, 0x2a5f95, 110, 25, 4, 4, 0},
    [ROLE_TYPE] = {0x5fafaf, 0x1f6f6f, 73, 23, 6, 6, 0},
    [ROLE_FUNCTION] = {0xd7af87, 0x7d5a33, 180, 95, 15, 0, 0},
};

/* Grounds. Changed lines and words have none at 16 colours: their text takes the colour. */
static const struct value grounds[ROLE_N] = {
    [ROLE_ADDED] = {0x16301f, 0xd9f2e0, 22, 194, -1, -1, 0},
    [ROLE_REMOVED] = {0x3a1a15, 0xf9dcd6, 52, 224, -1, -1, 0},
    [ROLE_ADDED_WORD] = {0x24552f, 0xa9e0b8, 28, 157, -1, -1, ATTR_BOLD},
    [ROLE_REMOVED_WORD] = {0x6b2a20, 0xf0b4a8, 88, 217, -1, -1, ATTR_BOLD},
    [ROLE_SELECTION] = {0x2f3a44, 0xc9d6e0, 238, 252, -1, -1, ATTR_REVERSE},
    [ROLE_CINNABAR] = {0xc8452f, 0xb03a26, 167, 124, 1, 1, ATTR_REVERSE},
    [ROLE_GOLD] = {0xd9a441, 0x8a6212, 179, 94, 3, 3, ATTR_REVERSE},
};

static int pick(const struct value *v, enum depth depth, bool light)
{
    switch (depth) {
    case DEPTH_TRUE: return light ? v->light : v->dark;
    case DEPTH_256: return light ? v->l256 : v->p256;
    case DEPTH_16: return light ? v->l16 : v->p16;
    case DEPTH_8: {
        int c = light ? v->l16 : v->p16;
        return c < 0 ? c : c == 8 ? COLOUR_DEFAULT : c & 7;
    }
    default: return COLOUR_DEFAULT;
    }
}

struct ink theme_ink(struct style st, enum depth depth, bool light)
{
    struct ink k = {.fg = pick(&inks[st.fg], depth, light), .bg = COLOUR_DEFAULT, .attr = st.attr};
    if (depth == DEPTH_NONE)
        k.attr |= inks[st.fg].alone;
    if (depth == DEPTH_8 && st.fg == ROLE_DIM)
        k.attr |= ATTR_DIM;
    if (!st.bg)
        return k;
    const struct value *ground = &grounds[st.bg];
    k.bg = depth == DEPTH_NONE ? COLOUR_DEFAULT : pick(ground, depth, light);
    if (k.bg == COLOUR_DEFAULT && depth != DEPTH_NONE) {
        bool added = st.bg == ROLE_ADDED || st.bg == ROLE_ADDED_WORD;
        if (added || st.bg == ROLE_REMOVED || st.bg == ROLE_REMOVED_WORD)
            k.fg = pick(&inks[added ? ROLE_ADDED : ROLE_REMOVED], depth, light);
    }
    if (k.bg == COLOUR_DEFAULT)
        k.attr |= ground->alone;
    return k;
}
