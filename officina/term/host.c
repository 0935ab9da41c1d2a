#include "term/host.h"
#include "util/text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLIPBOARD_MAX 74994 /* bytes that terminals take in one clipboard sequence */

int host_write(const char *path, const char *s, size_t n)
{
    struct text tmp = {0};
    text_printf(&tmp, "%s.new", path);
    int fd = open(tmp.s, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = fd < 0 ? -1 : 0;
    while (rc == 0 && n) {
        ssize_t k = write(fd, s, n);
        if (k <= 0) {
            rc = -1;
        } else {
            s += k;
            n -= (size_t)k;
        }
    }
    if (fd >= 0 && close(fd) != 0)
        rc = -1;
    if (rc == 0)
        rc = rename(tmp.s, path);
    text_free(&tmp);
    return rc;
}

static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    bool found = false;
    for (const char *p = path ? path : ""; *p && !found;) {
        size_t n = strcspn(p, ":");
        struct text t = {0};
        text_printf(&t, "%.*s/%s", (int)n, p, program);
        found = n && access(t.s, X_OK) == 0;
        text_free(&t);
        p += n + (p[n] == ':');
    }
    return found;
}

/* Gives s to the program's standard input. */
static bool feed(const char *const *argv, const char *s)
{
    int fds[2], status;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return false;
    pid_t child = fork();
    if (child == 0) {
        dup2(fds[0], STDIN_FILENO);
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(fds[0]);
    size_t n = strlen(s);
    bool good = child > 0;
    while (good && n) {
        ssize_t k = write(fds[1], s, n);
        good = k > 0;
        s += good ? k : 0;
        n -= good ? (size_t)k : 0;
    }
    close(fds[1]);
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0 && good;
}

static const char *helper(const char *s)
{
    static const char *const wayland[] = {"wl-copy", NULL}, *const x11[] = {"xclip", "-selection",
                                                                            "clipboard", NULL};
    if (getenv("WAYLAND_DISPLAY") && in_path("wl-copy") && feed(wayland, s))
        return "wl-copy";
    if (getenv("DISPLAY") && in_path("xclip") && feed(x11, s))
        return "xclip";
    return NULL;
}

/* OSC 52 with the text in base 64. */
static bool by_terminal(struct tty *t, const char *s)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = strlen(s);
    struct text out = {0};
    if (n > CLIPBOARD_MAX)
        return false;
    text_puts(&out, "\x1b]52;c;");
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = 0;
        char four[4];
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (i + k < n ? (unsigned char)s[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            four[k] = i + k > n ? '=' : digits[v >> (18 - 6 * k) & 63];
        text_add(&out, four, 4);
    }
    text_puts(&out, "\x1b\\");
    tty_send(t, out.s, out.len);
    text_free(&out);
    return true;
}

char *host_copy(struct tty *t, const char *home, const char *s)
{
    struct text path = {0}, words = {0};
    text_printf(&path, "%s/last-copy.txt", home);
    bool file = host_write(path.s, s, strlen(s)) == 0;
    const char *by = helper(s);
    bool sent = by || by_terminal(t, s);
    if (by)
        text_printf(&words, "copied by %s", by);
    else if (sent)
        text_puts(&words, "sent to the terminal's clipboard");
    else
        text_puts(&words, "too long for the terminal's clipboard");
    text_puts(&words, file ? "; also in last-copy.txt" : "; last-copy.txt could not be written");
    text_free(&path);
    return text_take(&words);
}

static char *read_back(const char *path)
{
    struct text t = {0};
    char buf[8192];
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return NULL;
    while ((n = read(fd, buf, sizeof buf)) > 0 && t.len < DECODE_PASTE_MAX)
        text_add(&t, buf, (size_t)n);
    close(fd);
    while (t.len && t.s[t.len - 1] == '\n')
        text_replace(&t, t.len - 1, 1, "", 0);
    return text_take(&t);
}

char *host_edit(struct tty *t, const char *home, const char *s, char **why)
{
    const char *editor = getenv("VISUAL");
    struct text path = {0}, command = {0};
    char *out = NULL;
    int status = -1;
    *why = NULL;
    if (!editor || !*editor)
        editor = getenv("EDITOR");
    if (!editor || !*editor)
        editor = "vi";
    text_printf(&path, "%s/prompt.md", home);
    if (host_write(path.s, s, strlen(s)) != 0) {
        *why = mem_dup("the prompt could not be written for the editor");
        text_free(&path);
        return NULL;
    }
    text_printf(&command, "%s \"$1\"", editor);
    tty_leave(t);
    pid_t child = fork();
    if (child == 0) {
        static const int mine[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT, SIGPIPE, SIGTSTP};
        for (size_t i = 0; i < sizeof mine / sizeof mine[0]; i++)
            signal(mine[i], SIG_DFL);
        execl("/bin/sh", "sh", "-c", command.s, "sh", path.s, (char *)NULL);
        _exit(127);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    tty_return(t);
    if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        out = read_back(path.s);
    if (!out) {
        struct text words = {0};
        text_printf(&words, "the editor (%.60s) did not end well: nothing was changed", editor);
        *why = text_take(&words);
    }
    unlink(path.s);
    text_free(&path);
    text_free(&command);
    return out;
}

/* ---- looks ---- */

bool looks_glyphs(const char *word, enum glyphs *out)
{
    static const struct {
        const char *word;
        enum glyphs g;
    } words[] = {{"full", GLYPHS_FULL},
                 {"braille", GLYPHS_FULL},
                 {"plain", GLYPHS_BLOCKS},
                 {"blocks", GLYPHS_BLOCKS},
                 {"ascii", GLYPHS_ASCII}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(word, words[i].word) == 0) {
            *out = words[i].g;
            return true;
        }
    }
    return false;
}

bool looks_theme(const char *word, enum tty_theme *out)
{
    if (strcmp(word, "auto") == 0)
        *out = TTY_THEME_AUTO;
    else if (strcmp(word, "dark") == 0)
        *out = TTY_THEME_DARK;
    else if (strcmp(word, "light") == 0)
        *out = TTY_THEME_LIGHT;
    else
        return false;
    return true;
}

static void looks_path(struct text *t, const char *home, const char *type)
{
    text_printf(t, "%s/looks-", home);
    for (const char *p = type ? type : "none"; *p; p++)
        text_printf(t, "%c", isalnum((unsigned char)*p) || *p == '-' || *p == '+' ? *p : '_');
}

void looks_read(struct looks *l, const char *home, const char *type)
{
    struct text path = {0};
    char line[64];
    looks_path(&path, home, type);
    FILE *f = fopen(path.s, "re");
    text_free(&path);
    if (!f)
        return;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "glyphs = ", 9) == 0)
            looks_glyphs(line + 9, &l->glyphs);
        else if (strncmp(line, "theme = ", 8) == 0)
            looks_theme(line + 8, &l->theme);
        else if (strncmp(line, "mouse = ", 8) == 0)
            l->mouse = strcmp(line + 8, "on") == 0;
        else if (strncmp(line, "motion = ", 9) == 0)
            l->motion = strcmp(line + 9, "on") == 0;
    }
    fclose(f);
}

void looks_write(const struct looks *l, const char *home, const char *type)
{
    static const char *const glyphs[] = {"full", "blocks", "ascii"}, *const themes[] = {"auto", "dark",
                                                                                        "light"};
    struct text path = {0}, t = {0};
    looks_path(&path, home, type);
    text_printf(&t, "glyphs = %s\ntheme = %s\nmouse = %s\nmotion = %s\n", glyphs[l->glyphs], themes[l->theme],
                l->mouse ? "on" : "off", l->motion ? "on" : "off");
    host_write(path.s, t.s, t.len);
    text_free(&path);
    text_free(&t);
}
