#include "framing.h"

#include <string.h>
#include <strings.h>

void framing_fini(struct framing *f)
{
    buf_fini(&f->line);
}

static void bad(struct framing *f, unsigned status, const char *why)
{
    f->in_body = f->state >= FRAMING_BODY;
    f->state = FRAMING_BAD;
    f->status = status;
    f->why = why;
}

static void next_request(struct framing *f)
{
    const bool last = f->close || (f->old && !f->keep);
    buf_fini(&f->line);
    *f = (struct framing){.state = last ? FRAMING_LAST : FRAMING_START, .heads = f->heads};
}

static bool is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] >= 127 || strchr("\"(),/:;<=>?@[\\]{}", s[i]))
            return false;
    return n > 0;
}

/* METHOD SP target SP HTTP/1.x */
static void request_line(struct framing *f, const char *s, size_t n)
{
    const char *a = memchr(s, ' ', n), *b = a ? memchr(a + 1, ' ', n - (size_t)(a + 1 - s)) : NULL;
    if (!b || b == a + 1 || memchr(b + 1, ' ', n - (size_t)(b + 1 - s)) || !is_token(s, (size_t)(a - s))) {
        bad(f, 400, "the request line is not METHOD PATH HTTP/1.1");
        return;
    }
    const char *v = b + 1;
    const size_t len = n - (size_t)(v - s);
    for (const char *p = a + 1; p < b; p++)
        if ((unsigned char)*p <= ' ' || *p == 127) {
            bad(f, 400, "the path holds a control character");
            return;
        }
    if (len != 8 || memcmp(v, "HTTP/", 5) != 0 || v[5] < '0' || v[5] > '9' || v[6] != '.' || v[7] < '0' ||
        v[7] > '9')
        bad(f, 400, "the request line does not end with HTTP/1.1");
    else if (v[5] != '1')
        bad(f, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    if (f->state == FRAMING_BAD)
        return;
    f->state = FRAMING_HEADER;
    f->old = v[7] == '0';
}

static bool word_in(const char *s, size_t n, const char *word)
{
    const size_t k = strlen(word);
    for (size_t i = 0; i + k <= n; i++)
        if (strncasecmp(s + i, word, k) == 0)
            return true;
    return false;
}

static void content_length(struct framing *f, const char *s, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') {
            bad(f, 400, "Content-Length is not a number");
            return;
        }
        if (v > (uint64_t)INT64_MAX / 10 - 1) {
            bad(f, 413, "Content-Length is too large");
            return;
        }
        v = 10 * v + (uint64_t)(s[i] - '0');
    }
    if (n == 0)
        bad(f, 400, "Content-Length is empty");
    else if (f->has_length)
        bad(f, 400, "Content-Length is there twice");
    f->has_length = true;
    f->left = v;
}

static bool header_syntax(struct framing *f, const char *s, size_t n)
{
    const char *colon = memchr(s, ':', n);
    if (!colon || !is_token(s, (size_t)(colon - s))) {
        bad(f, 400, "a header line is not NAME: VALUE");
        return false;
    }
    for (const char *p = colon; p < s + n; p++)
        if (((unsigned char)*p < ' ' && *p != '\t') || *p == 127) {
            bad(f, 400, "a header holds a control character");
            return false;
        }
    return true;
}

static void header_line(struct framing *f, const char *s, size_t n)
{
    if (!header_syntax(f, s, n))
        return;
    if (++f->headers > FRAMING_HEADERS) {
        bad(f, 431, "the request has more than 256 headers");
        return;
    }
    const char *v = memchr(s, ':', n);
    const size_t name = (size_t)(v++ - s);
    size_t len = n - name - 1;
    while (len > 0 && (*v == ' ' || *v == '\t')) {
        v++;
        len--;
    }
    while (len > 0 && (v[len - 1] == ' ' || v[len - 1] == '\t'))
        len--;
    if (name == 14 && strncasecmp(s, "Content-Length", name) == 0) {
        content_length(f, v, len);
    } else if (name == 17 && strncasecmp(s, "Transfer-Encoding", name) == 0) {
        if (f->coded || len != 7 || strncasecmp(v, "chunked", 7) != 0)
            bad(f, 400, "the only Transfer-Encoding of a request can be chunked");
        f->coded = true;
    } else if (name == 10 && strncasecmp(s, "Connection", name) == 0) {
        f->close |= word_in(v, len, "close");
        f->keep |= word_in(v, len, "keep-alive");
    }
}

static void end_of_head(struct framing *f)
{
    if (f->coded && (f->has_length || f->old)) {
        bad(f, 400,
            f->old ? "HTTP/1.0 has no Transfer-Encoding"
                   : "Content-Length and Transfer-Encoding cannot go together");
        return;
    }
    f->heads++;
    if (f->coded)
        f->state = FRAMING_CHUNK_SIZE;
    else if (f->left > 0)
        f->state = FRAMING_BODY;
    else
        next_request(f);
}

static void chunk_size(struct framing *f, const char *s, size_t n)
{
    uint64_t v = 0;
    size_t i = 0;
    for (; i < n; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *d = s[i] ? strchr(digits, s[i] >= 'A' && s[i] <= 'F' ? s[i] + 32 : s[i]) : NULL;
        if (!d || i > 12)
            break;
        v = 16 * v + (uint64_t)(d - digits);
    }
    if (i == 0 || i > 12 || (i < n && s[i] != ';')) {
        bad(f, 400, "the size of a chunk is not a hexadecimal number");
        return;
    }
    f->left = v;
    f->head = 0; /* trailers are counted anew */
    f->state = v > 0 ? FRAMING_CHUNK : FRAMING_TRAILER;
}

static void take_line(struct framing *f, const char *s, size_t n)
{
    switch (f->state) {
    case FRAMING_START:
        if (n > 0)
            request_line(f, s, n);
        break;
    case FRAMING_HEADER:
        if (n > 0)
            header_line(f, s, n);
        else
            end_of_head(f);
        break;
    case FRAMING_CHUNK_SIZE: chunk_size(f, s, n); break;
    case FRAMING_CHUNK_END:
        if (n > 0)
            bad(f, 400, "a chunk is longer than its size");
        else
            f->state = FRAMING_CHUNK_SIZE;
        break;
    default:
        if (n == 0)
            next_request(f);
        else
            header_syntax(f, s, n);
    }
}

static void limits(struct framing *f, const char *s, size_t n)
{
    f->head += n;
    for (size_t i = 0; i < n && f->state <= FRAMING_HEADER; i++)
        f->marks += s[i] == '&' || s[i] == ';';
    if (f->line.n > FRAMING_LINE)
        bad(f, f->state == FRAMING_START ? 414 : 431,
            f->state == FRAMING_START ? "the request line is longer than 16384 bytes"
                                      : "a header is longer than 16384 bytes");
    else if (f->head > FRAMING_HEAD)
        bad(f, 431, "the head of the request is longer than 49152 bytes");
    else if (f->marks > FRAMING_MARKS)
        bad(f, 431, "the head of the request holds too many values");
}

/* A piece of a line, with its end or without. Returns how much was taken. */
static size_t feed_line(struct framing *f, const char *p, size_t n)
{
    const char *end = memchr(p, '\n', n);
    const size_t take = end ? (size_t)(end - p) : n;
    buf_add(&f->line, p, take < FRAMING_LINE + 1 ? take : FRAMING_LINE + 1);
    if (f->line.failed)
        bad(f, 500, "out of memory");
    else
        limits(f, p, take + (end ? 1 : 0));
    if (f->state != FRAMING_BAD && end) {
        struct buf line = f->line;
        f->line = (struct buf){0};
        size_t len = line.n;
        if (len > 0 && line.p[len - 1] == '\r')
            len--;
        take_line(f, line.p ? line.p : "", len);
        buf_fini(&line);
    }
    return take + (end ? 1 : 0);
}

uint64_t framing_blind(const struct framing *f)
{
    return f->state == FRAMING_BODY || f->state == FRAMING_CHUNK ? f->left
           : f->state == FRAMING_LAST || f->state == FRAMING_BAD ? UINT64_MAX
                                                                 : 0;
}

void framing_skip(struct framing *f, uint64_t n)
{
    if (f->state != FRAMING_BODY && f->state != FRAMING_CHUNK)
        return;
    f->left -= n;
    if (f->left == 0 && f->state == FRAMING_BODY)
        next_request(f);
    else if (f->left == 0)
        f->state = FRAMING_CHUNK_END;
}

bool framing_feed(struct framing *f, const char *p, size_t n)
{
    while (n > 0 && f->state != FRAMING_BAD) {
        const uint64_t blind = framing_blind(f);
        size_t used = blind < n ? (size_t)blind : n;
        if (blind > 0)
            framing_skip(f, used);
        else
            used = feed_line(f, p, n);
        p += used;
        n -= used;
    }
    return f->state != FRAMING_BAD;
}
