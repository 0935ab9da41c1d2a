#include "tools/secrets.h"
#include "tools/shell_priv.h"

#include "util/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *base_name(const char *s)
{
    const char *slash = strrchr(s, '/');
    return slash ? slash + 1 : s;
}

static bool among(const char *s, const char *words)
{
    size_t n = strlen(s);
    for (const char *p = words; n && !strchr(s, ' ') && (p = strstr(p, s)); p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
            return true;
    return false;
}

static void drop_words(struct shell_part *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(p->argv[i]);
    memmove(p->argv, p->argv + n, (p->argc + 1 - n) * sizeof *p->argv);
    memmove(p->dynamic, p->dynamic + n, (p->argc - n) * sizeof *p->dynamic);
    p->argc -= n;
}

/* A program of the system by that name: without a path, or in the usual places. */
static const char *system_name(const char *s)
{
    const char *base = base_name(s);
    size_t n = (size_t)(base - s);
    bool usual =
        n == 0 || (n == 5 && memcmp(s, "/bin/", 5) == 0) || (n == 9 && memcmp(s, "/usr/bin/", 9) == 0);
    return usual ? base : "";
}

/* One option of a wrapper: how many words it takes, 0 when it is not known. alone, with: names as they are
 * written; those of one letter in `with` may have a number behind them. */
static size_t option_words(const char *s, const char *alone, const char *with)
{
    size_t n = strcspn(s, "=");
    char head[40] = "";
    if (n < sizeof head)
        memcpy(head, s, n);
    if (among(s, alone))
        return 1;
    if (among(s, with))
        return 2;
    if (s[1] == '\0')
        return 0; /* a lone - is nothing that a wrapper without it knows */
    if (s[1] == '-')
        return s[n] && among(head, with) ? 1 : 0;
    head[2] = 0;
    return s[2] && strspn(s + 2, "0123456789") == strlen(s + 2) && among(head, with) ? 1 : 0;
}

/* How many words of a wrapper stand before the command that it runs; 0: it is none, runs nothing, or is not
 * known well enough (then part->why says so). */
static size_t wrapper_words(struct shell_part *p)
{
    static const struct {
        const char *name, *alone, *with; /* options, and those that take a word */
        size_t operands;
    } list[] = {{"env", "- -i --ignore-environment", "-u --unset -C --chdir", 0},
                {"timeout", "--preserve-status --foreground -v --verbose", "-s -k --signal --kill-after", 1},
                {"nice", "", "-n --adjustment", 0},
                {"nohup", "", "", 0},
                {"stdbuf", "-oL -o0 -eL -e0 -i0", "-i -o -e", 0},
                {"setsid", "-f --fork -w --wait", "", 0},
                {"ionice", "-t --ignore", "-c -n", 0},
                {"time", "-p -v", "-f", 0},
                {"command", "", "", 0},
                {"exec", "", "-a", 0},
                {"builtin", "", "", 0},
                {"xargs", "-0 --null -r --no-run-if-empty -t -x -I{}", "-n -I -P -L -d -s -a -E", 0},
                {"chrt", "-b -f -i -o -r", "", 1},
                {"taskset", "-c", "", 1}};
    const char *name = system_name(p->argv[0]);
    for (size_t k = 0; k < sizeof list / sizeof *list; k++) {
        if (strcmp(name, list[k].name) != 0)
            continue;
        if (strcmp(name, "command") == 0 && p->argc > 1 && p->argv[1][0] == '-')
            return 0; /* command -v asks, it does not run */
        size_t i = 1, n = 1;
        bool ends = false;
        for (; n && !ends && i < p->argc && p->argv[i][0] == '-'; i += n) {
            ends = strcmp(p->argv[i], "--") == 0;
            n = ends ? 1 : option_words(p->argv[i], list[k].alone, list[k].with);
        }
        for (size_t eq; strcmp(name, "env") == 0 && i < p->argc && (eq = shell_assigns(p->argv[i])); i++)
            shell_assign(p, p->argv[i], eq);
        i += list[k].operands;
        for (size_t w = 1; w < i && w < p->argc; w++)
            if (p->dynamic[w])
                n = 0;
        if (!n) {
            p->why = "what it runs is not known before it runs";
            return 0;
        }
        p->fed = p->fed || strcmp(name, "xargs") == 0;
        return i < p->argc ? i : 0;
    }
    return 0;
}

static void append_part(struct shell_line *l, size_t of, size_t from, size_t to, bool fed)
{
    struct shell_part new = {.fed = fed};
    if (from >= to)
        return;
    if (l->n >= 400) {
        l->why = "it has too many commands";
        return;
    }
    for (size_t k = from; k < to; k++)
        shell_add_word(&new, mem_dup(l->parts[of].argv[k]), l->parts[of].dynamic[k]);
    new.text = shell_words(&new);
    l->parts = mem_room(l->parts, l->n, &l->cap, sizeof *l->parts);
    l->parts[l->n++] = new;
}

static void find_exec(struct shell_line *l, size_t i)
{
    for (size_t k = 1; k < l->parts[i].argc; k++) {
        if (!among(l->parts[i].argv[k], "-exec -execdir -ok -okdir"))
            continue;
        size_t end = k + 1;
        while (end < l->parts[i].argc && strcmp(l->parts[i].argv[end], ";") != 0 &&
               strcmp(l->parts[i].argv[end], "+") != 0)
            end++;
        append_part(l, i, k + 1, end, true);
        k = end;
    }
}

static bool is_shell(const char *name)
{
    return among(name, "sh bash dash zsh ksh ash busybox fish");
}

/* The word behind -c (or a cluster such as -ec); 0: none. */
static size_t program_text(const struct shell_part *p)
{
    for (size_t i = 1; i < p->argc && p->argv[i][0] == '-' && p->argv[i][1] != '-'; i++)
        if (strchr(p->argv[i], 'c'))
            return i + 1 < p->argc ? i + 1 : 0;
    return 0;
}

/* An interpreter that is given its program as an argument. */
static bool has_program(const struct shell_part *p, const char *name)
{
    const char *flags = strncmp(name, "python", 6) == 0 ? "-c"
                        : among(name, "perl ruby lua node nodejs bun php osascript Rscript")
                            ? "-e -E -p -pe -ne -r --eval --print"
                            : NULL;
    for (size_t i = 1; flags && i < p->argc; i++)
        if (among(p->argv[i], flags) || (p->argv[i][0] == '-' && isalpha((unsigned char)p->argv[i][1]) &&
                                         strlen(p->argv[i]) > 2 && strncmp(flags, p->argv[i], 2) == 0))
            return true;
    return false;
}

void shell_unwrap(struct shell_line *l, size_t i, void (*read)(void *arg, const char *s), void *arg)
{
    size_t n;
    while (l->parts[i].argc && !l->parts[i].dynamic[0] && !l->parts[i].why &&
           (n = wrapper_words(&l->parts[i])))
        drop_words(&l->parts[i], n);
    struct shell_part *p = &l->parts[i];
    if (!p->argc)
        return;
    if (p->dynamic[0]) {
        p->why = "the name of the program is not known before it runs";
        return;
    }
    if (p->why)
        return;
    const char *name = base_name(p->argv[0]);
    if (strcmp(name, "find") == 0) {
        find_exec(l, i);
    } else if (among(name, "sudo doas")) {
        size_t k = 1;
        while (k < p->argc && p->argv[k][0] == '-')
            k += among(p->argv[k], "-u -g -h -p -C") ? 2 : 1;
        append_part(l, i, k, p->argc, false);
    } else if (is_shell(name) && (n = program_text(p))) {
        if (!among(system_name(p->argv[0]), "sh dash")) {
            p->why = "it runs a program text of another shell";
            return;
        }
        if (p->dynamic[n] || p->fed) {
            p->why = "it runs a program text that is not known before it runs";
            return;
        }
        char *text = mem_dup(p->argv[n]);
        read(arg, text);
        free(text);
        drop_words(&l->parts[i], l->parts[i].argc - 1);
        free(l->parts[i].argv[0]);
        l->parts[i].argv[0] = mem_dup(":"); /* its text is judged; the shell itself does nothing more */
    } else if (among(name, "eval . source trap")) {
        p->why = "it runs a program text";
    } else if (has_program(p, name)) {
        p->why = "it runs a program text";
    }
}

/* ---- the built-in list of commands that only read ---- */

/* A long option that is, or is short for, one of these (options: words with one blank between). */
static bool has_long(const struct shell_part *p, const char *options)
{
    for (size_t i = 1; i < p->argc; i++) {
        const char *s = p->argv[i];
        size_t n = strcspn(s, "=");
        if (n < 3 || strncmp(s, "--", 2) != 0)
            continue;
        for (const char *o = options; *o; o += strcspn(o, " "), o += *o == ' ')
            if (strncmp(o, s, n) == 0)
                return true;
    }
    return false;
}

static bool has_word(const struct shell_part *p, const char *words)
{
    for (size_t i = 1; i < p->argc; i++)
        if (among(p->argv[i], words))
            return true;
    return false;
}

/* A cluster of short options holds c: -no has o. */
static bool has_short(const struct shell_part *p, char c)
{
    for (size_t i = 1; i < p->argc; i++)
        if (p->argv[i][0] == '-' && p->argv[i][1] != '-' && strchr(p->argv[i], c))
            return true;
    return false;
}

/* All words behind the name are of these. */
static bool only_words(const struct shell_part *p, size_t from, const char *words)
{
    for (size_t i = from; i < p->argc; i++)
        if (!among(p->argv[i], words))
            return false;
    return true;
}

static bool git_reads(const struct shell_part *p)
{
    if (p->argc < 2)
        return false;
    const char *sub = p->argv[1];
    if (strcmp(sub, "branch") == 0)
        return only_words(p, 2, "-a -r -v -vv --all --remotes --list --show-current --verbose");
    if (strcmp(sub, "remote") == 0)
        return only_words(p, 2, "-v --verbose");
    if (strcmp(sub, "tag") == 0)
        return only_words(p, 2, "-l --list -n");
    return among(sub, "status log diff show ls-files rev-parse blame describe shortlog ls-tree cat-file "
                      "rev-list merge-base grep") &&
           !has_short(p, 'O') && !has_word(p, "-c") &&
           !has_long(p, "--output --ext-diff --textconv --filters --open-files-in-pager --show-signature "
                        "--exec-path --git-dir --work-tree");
}

/* At most one operand: the second is written. */
static bool uniq_reads(const struct shell_part *p)
{
    size_t operands = 0;
    for (size_t i = 1; i < p->argc; i++) {
        const char *s = p->argv[i];
        if (s[0] != '-' || !s[1])
            operands++;
        else if (strspn(s + 1, "cdDiuz") != strlen(s + 1) &&
                 !among(s, "--count --repeated --unique --ignore-case"))
            return false;
    }
    return operands < 2;
}

static bool sed_reads(const struct shell_part *p)
{
    if (p->argc < 3 || strcmp(p->argv[1], "-n") != 0)
        return false;
    size_t n = strlen(p->argv[2]);
    if (!n || p->argv[2][n - 1] != 'p' || strspn(p->argv[2], "0123456789,$") != n - 1)
        return false;
    for (size_t i = 3; i < p->argc; i++)
        if (p->argv[i][0] == '-')
            return false;
    return true;
}

static bool program_reads(const struct shell_part *p)
{
    static const char always[] = "cat head tail wc ls pwd echo true false : grep egrep fgrep "
                                 "cut tr stat du df id uname "
                                 "which type basename dirname realpath readlink diff cmp comm nl od hexdump "
                                 "md5sum sha1sum sha256sum sha512sum "
                                 "cksum seq sleep cd column fold expand unexpand paste join rev tac jq nproc "
                                 "free uptime ps whoami groups strings";
    const char *name = p->argv[0];
    if (strchr(name, '/'))
        return false; /* a program of that name somewhere else */
    if (among(name, always))
        return true;
    for (size_t i = 0; i < p->argc; i++) /* what comes to stand there may be an option that writes */
        if (p->dynamic[i])
            return false;
    if (p->fed)
        return false;
    if (strcmp(name, "git") == 0)
        return git_reads(p);
    if (strcmp(name, "sed") == 0)
        return sed_reads(p);
    if (strcmp(name, "sort") == 0)
        return !has_long(p, "--output --compress-program") && !has_short(p, 'o');
    if (strcmp(name, "uniq") == 0)
        return uniq_reads(p);
    if (strcmp(name, "date") == 0)
        return !has_long(p, "--set") && !has_short(p, 's');
    if (strcmp(name, "tree") == 0)
        return !has_short(p, 'o') && !has_short(p, 'R') && !has_long(p, "--output");
    if (strcmp(name, "rg") == 0)
        return !has_long(p, "--pre --hostname-bin");
    if (strcmp(name, "file") == 0)
        return !has_long(p, "--compile") && !has_short(p, 'C');
    if (among(name, "test ["))
        return !has_word(p, "-v"); /* in some shells it computes the subscript of an array */
    if (strcmp(name, "printf") == 0)
        return p->argc < 2 || p->argv[1][0] != '-';
    if (strcmp(name, "command") == 0)
        return p->argc == 3 && among(p->argv[1], "-v -V");
    if (strcmp(name, "find") == 0)
        return !has_word(p, "-delete -fprint -fprint0 -fprintf -fls -ok -okdir");
    return false;
}

static bool writes_file(const struct shell_part *p)
{
    for (size_t i = 0; i < p->n_redirects; i++)
        if (p->redirects[i].writes &&
            (p->redirects[i].dynamic || strcmp(p->redirects[i].target, "/dev/null") != 0))
            return true;
    return false;
}

static bool names_secret(const struct shell_part *p)
{
    for (size_t i = 1; i < p->argc; i++)
        if (secrets_path(p->argv[i]))
            return true;
    for (size_t i = 0; i < p->n_redirects; i++)
        if (secrets_path(p->redirects[i].target))
            return true;
    return false;
}

bool shell_reads(const struct shell_part *p)
{
    if (p->why || p->sets || writes_file(p) || names_secret(p))
        return false;
    return !p->argc || (program_reads(p) && !p->dynamic[0]);
}

const char *shell_why_not(const struct shell_part *p)
{
    static const struct {
        const char *names, *why;
    } list[] = {{"rm rmdir unlink shred", "deletes files"},
                {"mv cp install ln rsync", "moves or copies files"},
                {"sudo doas su", "runs as another user"},
                {"chmod chown chgrp", "changes permissions"},
                {"curl wget ssh scp nc ncat telnet ftp", "uses the network"},
                {"kill pkill killall", "ends processes"},
                {"dd mkfs mount umount fdisk", "changes disks"},
                {"tee touch mkdir truncate", "writes files"},
                {"git", "changes the repository"}};
    if (p->why)
        return p->why;
    if (p->sets)
        return "sets a variable that changes what programs do";
    if (writes_file(p))
        return "writes a file";
    if (names_secret(p))
        return "names a file of credentials";
    for (size_t i = 0; p->argc && i < sizeof list / sizeof *list; i++)
        if (among(base_name(p->argv[0]), list[i].names))
            return list[i].why;
    return "no rule allows it";
}
