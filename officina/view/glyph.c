#include "view/glyph.h"
/* What blocks and braille draw alike. */
#define DRAWN                                                                                                \
    .unknown = "┄", .ok = "✓", .running = "◐", .failed = "✗", .refused = "⊘", .done = "●", .doing = "◐",     \
    .open = "○", .down = "↓", .h = "─", .v = "│", .tl = "┌", .tr = "┐", .bl = "└", .br = "┘", .left = "├",   \
    .right = "┤", .top = "┬", .bottom = "┴", .folded = "▸", .unfolded = "▾", .more = "…", .dash = "–",       \
    .dot = "·", .bullet = "•", .prompt = "›", .skip = "⋮", .sum = "Σ", .arrow = "→", .sun = "☉",             \
    .minus = "−"

static const struct glyph_set sets[] = {
    [GLYPHS_FULL] = {.kind = GLYPHS_FULL, .full = "⣿", .half = "⡇", .empty = "⠄", .evicted = "⤓", DRAWN},
    [GLYPHS_BLOCKS] = {.kind = GLYPHS_BLOCKS, .full = "█", .half = "▌", .empty = "·", .evicted = "↓", DRAWN},
    [GLYPHS_ASCII] = {.kind = GLYPHS_ASCII,
                      .full = "#",
                      .half = "+",
                      .empty = ".",
                      .unknown = "-",
                      .ok = "ok",
                      .running = "..",
                      .failed = "!!",
                      .refused = "no",
                      .done = "[x]",
                      .doing = "[~]",
                      .open = "[ ]",
                      .evicted = "ev",
                      .down = "v",
                      .h = "-",
                      .v = "|",
                      .tl = "+",
                      .tr = "+",
                      .bl = "+",
                      .br = "+",
                      .left = "+",
                      .right = "+",
                      .top = "+",
                      .bottom = "+",
                      .folded = ">",
                      .unfolded = "v",
                      .more = "...",
                      .dash = "-",
                      .dot = "-",
                      .bullet = "*",
                      .prompt = ">",
                      .skip = ":",
                      .sum = "sum",
                      .arrow = "->",
                      .sun = "(o)",
                      .minus = "-"},
};

const struct glyph_set *glyphs_of(enum glyphs g)
{
    return &sets[g];
}

char glyphs_plain(uint32_t cp)
{
    switch (cp) {
    case 0x2010:
    case 0x2011:
    case 0x2013:
    case 0x2014:
    case 0x2212:
    case 0x2500:
    case 0xb7: return '-';
    case 0x2018:
    case 0x2019: return '\'';
    case 0x201c:
    case 0x201d: return '"';
    case 0x2026: return '.';
    case 0x203a:
    case 0x2192: return '>';
    case 0x2190: return '<';
    case 0x2191: return '^';
    case 0x2193:
    case 0x2913: return 'v';
    case 0x2502:
    case 0x258f: return '|';
    case 0x2022: return '*';
    case 0x3a3: return 'S';
    case 0xd7: return 'x';
    default: return cp < 0x80 ? (char)cp : '?';
    }
}
