#include "tools/secrets.h"

#include "hash.h"

#include "tools/wild.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

static void put_mark(struct text *out, const char *secret, size_t n)
{
    uint8_t h[VT_SHA256_LEN];
    vt_sha256(secret, n, h);
    text_printf(out, "[redacted %02x%02x]", h[0], h[1]);
}

/* Shapes of tokens: a prefix, how many characters of [A-Za-z0-9_-.] must follow at least. */
static const struct {
    const char *prefix;
    size_t least;
} SHAPES[] = {{"sk-", 20},      {"ghp_", 30},        {"gho_", 30},   {"ghu_", 30},  {"ghs_", 30},
              {"ghr_", 30},     {"github_pat_", 30}, {"glpat-", 18}, {"xoxb-", 20}, {"xoxp-", 20},
              {"xoxa-", 20},    {"AKIA", 16},        {"ASIA", 16},   {"AIza", 30},  {"hf_", 30},
              {"npm_", 30},     {"pypi-", 40},       {"eyJ", 60},    {"SG.", 40},   {"sk_live_", 16},
              {"rk_live_", 16}, {"dop_v1_", 40},     {"ya29.", 30}};

static bool token_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

static size_t token_at(const char *s, size_t n)
{
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        size_t k = strlen(SHAPES[i].prefix);
        if (n < k || memcmp(s, SHAPES[i].prefix, k) != 0)
            continue;
        size_t len = k;
        while (len < n && token_char(s[len]))
            len++;
        if (len - k >= SHAPES[i].least)
            return len;
    }
    return 0;
}

static bool key_name(const char *s, size_t n)
{
    static const char *const words[] = {"password",   "passwd",       "secret",        "api_key",
                                        "apikey",     "api-key",      "access_key",    "private_key",
                                        "auth_token", "access_token", "refresh_token", "client_secret",
                                        "credential"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t k = strlen(words[i]);
        for (size_t a = 0; a + k <= n; a++)
            if (strncasecmp(s + a, words[i], k) == 0)
                return true;
    }
    return (n >= 6 && strncmp(s + n - 6, "_TOKEN", 6) == 0) ||
           (n >= 4 && strncmp(s + n - 4, "_KEY", 4) == 0) || (n == 5 && strncmp(s, "TOKEN", 5) == 0);
}

static bool name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* At s a name begins. When it is a key's and has a literal value, *value and *len are that; true. */
static bool assignment(const char *s, size_t n, size_t *value, size_t *len)
{
    size_t k = 0;
    while (k < n && name_char(s[k]))
        k++;
    if (!k || !key_name(s, k))
        return false;
    if (k < n && (s[k] == '"' || s[k] == '\''))
        k++;
    while (k < n && s[k] == ' ')
        k++;
    if (k >= n || (s[k] != '=' && s[k] != ':'))
        return false;
    bool equals = s[k++] == '=';
    size_t blanks = k;
    while (k < n && s[k] == ' ')
        k++;
    char quote = k < n && (s[k] == '"' || s[k] == '\'') ? s[k++] : 0;
    size_t from = k;
    while (k < n && s[k] != '\n' && s[k] != '\r' && (quote ? s[k] != quote : !strchr(" \t,;&|)}\"'", s[k])))
        k++;
    /* code such as `password = read_it()` and `token: str` is no secret: unquoted values need the shell's
     * form */
    bool shell = equals && blanks == from && !memchr(s + from, '(', k - from);
    if (k - from < 6 || s[from] == '$' || s[from] == '<' || (!quote && !shell))
        return false;
    *value = from;
    *len = k - from;
    return true;
}

static const char *find(const char *s, size_t n, const char *what)
{
    return memmem(s, n, what, strlen(what));
}

/* Copies what is no key; returns bytes of s used by a key block from its beginning. */
static size_t skip_key(const char *s, size_t n, bool *in_key)
{
    const char *end = find(s, n, "-----END ");
    const char *nl = end ? memchr(end, '\n', n - (size_t)(end - s)) : NULL;
    *in_key = !end;
    return !end || !nl ? n : (size_t)(nl - s);
}

int secrets_redact(const char *s, size_t n, struct text *out, bool *in_key)
{
    int found = 0;
    for (size_t i = 0; i < n;) {
        size_t value, len;
        if (*in_key) {
            i += skip_key(s + i, n - i, in_key);
            continue;
        }
        bool first = i == 0 || !name_char(s[i - 1]);
        if (n - i > 11 && memcmp(s + i, "-----BEGIN ", 11) == 0) {
            size_t line = strcspn(s + i, "\n");
            line = line < n - i ? line : n - i;
            if (find(s + i, line, "PRIVATE KEY")) {
                put_mark(out, s + i, line);
                i += skip_key(s + i, n - i, in_key);
                found++;
                continue;
            }
        }
        if (first && (len = token_at(s + i, n - i)) > 0) {
            put_mark(out, s + i, len);
            i += len;
            found++;
        } else if (first && assignment(s + i, n - i, &value, &len)) {
            text_add(out, s + i, value);
            put_mark(out, s + i + value, len);
            i += value + len;
            found++;
        } else {
            size_t k = 1;
            if (name_char(s[i]))
                while (i + k < n && name_char(s[i + k]))
                    k++;
            text_add(out, s + i, k);
            i += k;
        }
    }
    return found;
}

bool secrets_in_key(const char *s, size_t n)
{
    const char *end = s + n, *at = s;
    while ((at = find(at, (size_t)(end - at), "-----BEGIN ")) != NULL) {
        const char *nl = memchr(at, '\n', (size_t)(end - at));
        bool key = find(at, (size_t)((nl ? nl : end) - at), "PRIVATE KEY") != NULL;
        if (!nl)
            return false; /* the line itself is not over: it begins the block where it is shown */
        at = key ? find(nl, (size_t)(end - nl), "-----END ") : nl;
        if (!at)
            return true;
    }
    return false;
}

static size_t skip_blanks(const char *s, size_t n, size_t at)
{
    while (at < n && (s[at] == ' ' || s[at] == '\t'))
        at++;
    return at;
}

/* Where the secret of such a line begins; n: it has none. */
static size_t secret_at(const char *s, size_t n)
{
    const char *word;
    size_t at = skip_blanks(s, n, 0);
    if (at == n || strchr("#;[{}", s[at]) || find(s + at, n - at, "-----"))
        return n;
    for (size_t i = at; i < n; i++)
        if (s[i] == '=' || s[i] == ':')
            return skip_blanks(s, n, i + 1);
    if ((word = find(s + at, n - at, "password ")) != NULL)
        return skip_blanks(s, n, (size_t)(word - s) + 9);
    return n - at >= 12 && !memchr(s + at, ' ', n - at) ? at : n;
}

int secrets_redact_line(const char *s, size_t n, struct text *out, bool *in_key)
{
    size_t at = *in_key ? n : secret_at(s, n), end = n;
    while (end > at && strchr(" \t\r\n,", s[end - 1]))
        end--;
    if (at >= end)
        return secrets_redact(s, n, out, in_key);
    text_add(out, s, at);
    put_mark(out, s + at, end - at);
    text_add(out, s + end, n - end);
    return 1;
}

bool secrets_path(const char *path)
{
    static const char *const names[] = {".env",        ".env.*",
                                        "*.pem",       "*.key",
                                        "*.p12",       "*.pfx",
                                        "*.jks",       "*.kdbx",
                                        "*.keystore",  "id_rsa*",
                                        "id_dsa*",     "id_ecdsa*",
                                        "id_ed25519*", ".netrc",
                                        ".npmrc",      ".pypirc",
                                        ".pgpass",     ".htpasswd",
                                        "credentials", "credentials.*",
                                        "secrets.*",   ".git-credentials",
                                        "token.json",  "*.ppk"};
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (strcmp(base, ".env.example") == 0 || strcmp(base, ".env.sample") == 0)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (wild_path(names[i], base))
            return true;
    return strstr(path, ".ssh/") || strstr(path, ".gnupg/") || strstr(path, ".aws/");
}

bool secrets_env(const char *name)
{
    static const char *const names[] = {"PATH",        "HOME",
                                        "USER",        "LOGNAME",
                                        "LANG",        "LANGUAGE",
                                        "TZ",          "SHELL",
                                        "HOSTNAME",    "CC",
                                        "CXX",         "CFLAGS",
                                        "CXXFLAGS",    "LDFLAGS",
                                        "GOPATH",      "GOROOT",
                                        "JAVA_HOME",   "CARGO_HOME",
                                        "RUSTUP_HOME", "VIRTUAL_ENV",
                                        "MAKEFLAGS",   "PKG_CONFIG_PATH",
                                        "CCACHE_DIR",  "LD_LIBRARY_PATH",
                                        "PYTHONPATH"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return strncmp(name, "LC_", 3) == 0;
}
