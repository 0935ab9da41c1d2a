#include "tools/shell.h"

#include "util/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* want: the parts' words, joined by " | "; NULL: the line cannot be read. */
static void parts(const char *line, const char *want)
{
    struct shell_line l;
    struct text t = {0};
    shell_read(&l, line);
    if (!want) {
        if (!l.why)
            fail_msg("'%s' was read", line);
        shell_free(&l);
        return;
    }
    if (l.why)
        fail_msg("'%s': %s", line, l.why);
    for (size_t i = 0; i < l.n; i++) {
        char *w = shell_words(&l.parts[i]);
        text_printf(&t, "%s%s", i ? " | " : "", w);
        for (size_t k = 0; k < l.parts[i].n_redirects; k++)
            text_printf(&t, "%s%s", l.parts[i].redirects[k].writes ? ">" : "<",
                        l.parts[i].redirects[k].target);
        text_puts(&t, l.parts[i].why ? "!" : "");
        free(w);
    }
    if (strcmp(text_str(&t), want) != 0)
        fail_msg("'%s' → '%s', wanted '%s'", line, text_str(&t), want);
    text_free(&t);
    shell_free(&l);
}

static void lines_are_split(void **state)
{
    parts("make test && rm -rf build/tmp", "make test | rm -rf build/tmp");
    parts("a;b\nc|d&e||f", "a | b | c | d | e | f");
    parts("echo 'a;b' \"c|d\" e\\;f", "echo a;b c|d e;f");
    parts("echo $(rm x)", "rm x | echo $(rm x)");
    parts("echo `rm x`", "rm x | echo `rm x`");
    parts("echo ${a:-$(rm x)}", "rm x | echo ${a:-$(rm x)}");
    parts("echo $((1 + 2))", "echo $((1 + 2))");
    parts("cmake -S a \\\n  -B b", "cmake -S a -B b");
    parts("(cd a; rm b) > c", "cd a | rm b | >c");
    parts("{ a; b; } 2>&1", "a | b");
    parts("if test -f x; then rm y; else b; fi", "test -f x | rm y | b");
    parts("for i in $(ls); do rm $i; done", "ls | rm $i");
    parts("while true; do a; done", "true | a");
    parts("A=1 B=2 cmd x", "cmd x");
    parts("a > b 2>>c <d >&2", "a>b>c<d");
    parts("cat <<EOF\nrm x; \nEOF\nls", "cat | ls");
    parts("cat <<'EOF'\n$(rm x)\nEOF", "cat");
    parts("cat <<EOF\n$(rm x)\nEOF", NULL);
    parts("a # b; c\nd", "a | d");
    parts("! a", "a");
}

static void wrappers_are_looked_through(void **state)
{
    parts("timeout 5 rm x", "rm x");
    parts("timeout -s KILL 5 nice -n 3 rm x", "rm x");
    parts("env -i A=1 rm x", "rm x");
    parts("nohup rm x &", "rm x");
    parts("find . -name '*.o' | xargs rm -f", "find . -name *.o | rm -f");
    parts("find . -exec rm {} \\; -print", "find . -exec rm {} ; -print | rm {}");
    parts("sudo -u bob rm x", "sudo -u bob rm x | rm x");
    parts("sh -c 'rm x; ls'", ": | rm x | ls");
    parts("dash -ec 'timeout 1 rm x'", ": | rm x");
    parts("bash -c 'rm x'", "bash -c rm x!");
    parts("./sh -c ls", "./sh -c ls!");
    parts("./timeout 5 ls", "./timeout 5 ls");
    parts("env '-Stouch p' ls", "env -Stouch p ls!");
    parts("time -o f ls", "time -o f ls!");
    parts("timeout $T ls", "timeout $T ls!");
    parts("env A=$x ls", "env A=$x ls!");
    parts("nice -n3 -- ls", "ls");
    parts("nice - ls", "nice - ls!");
    parts("timeout - `ls`", "ls | timeout - `ls`!");
    parts("xargs -0 -n1 -P 2 rm", "rm");
    parts("sh -c \"$X\"", "sh -c $X!");
    parts("python3 -c 'import os'", "python3 -c import os!");
    parts("perl -pe s/a/b/ f", "perl -pe s/a/b/ f!");
    parts("eval rm x", "eval rm x!");
    parts("$CMD x", "$CMD x!");
    parts("command -v gcc", "command -v gcc");
}

static void what_cannot_be_read_says_so(void **state)
{
    static const char *const bad[] = {"echo 'a",
                                      "echo \"a",
                                      "echo $(a",
                                      "(a",
                                      "a)",
                                      "f() { a; }",
                                      "case x in y) z;; esac",
                                      "a <(b)",
                                      "cat <<EOF\nx",
                                      "echo \"`a`\"",
                                      "echo $((1 + $(rm x)))",
                                      "echo $((a) | (b))",
                                      "echo $[1]",
                                      "echo ${a:-'}'rm x}",
                                      "echo ${a:-\"}\"}",
                                      "echo ${a:=b}",
                                      "echo ${a@P}",
                                      "echo ${a[1]}",
                                      "l\\\ns",
                                      "echo \"$\\\n(rm x)\"",
                                      "echo $\\\n(rm x)",
                                      "a &\\\n& b",
                                      "cat <<EOF $(a\nEOF\nrm x)\nEOF",
                                      "(cat <<EOF\nx\nEOF\n)",
                                      "cat <<EOF 'a\nEOF\nrm x'",
                                      "cat <<EOF\n$\\\n(rm x)\nEOF",
                                      "for x do rm y; done",
                                      "for x\ndo rm y; done",
                                      "for x in a # '\ndo rm y #'\ndone",
                                      "for PATH in .; do ls; done",
                                      "for",

                                      "for $x in a; do b; done",
                                      "a \\",
                                      "echo $'a'",
                                      "a <<<b",
                                      "a >",
                                      "echo `a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        parts(bad[i], NULL);
    char deep[201] = "";
    for (int i = 0; i < 50; i++)
        strcat(deep, "$(");
    parts(deep, NULL);
}

static void reads(const char *line, bool want)
{
    struct shell_line l;
    bool all = true;
    shell_read(&l, line);
    for (size_t i = 0; i < l.n; i++)
        all = all && shell_reads(&l.parts[i]);
    if ((all && !l.why) != want)
        fail_msg("'%s' %s", line, want ? "is asked" : "counts as reading");
    shell_free(&l);
}

static void reading_commands_are_known(void **state)
{
    static const char *const yes[] = {"ls -la",
                                      "cat a | grep b | sort | uniq -c",
                                      "git status",
                                      "git log -3 -- x",
                                      "git diff HEAD~1",
                                      "sed -n 3,9p f",
                                      "find . -name '*.c'",
                                      "wc -l f 2>/dev/null",
                                      "cd src && ls",
                                      "git branch -a",
                                      "test -f x && echo yes",
                                      "uniq -c f",
                                      "find . -name '*.c' | xargs grep -n x",
                                      "sh -c 'ls; cat f'",
                                      "for i in *.c; do wc -l $i; done",
                                      "rg --pretty x",
                                      "printf '%s' a"};
    static const char *const no[] = {"rm x",
                                     "ls > f",
                                     "sort -o f f",
                                     "git commit -m x",
                                     "git -c core.pager=x log",
                                     "sed -i s/a/b/ f",
                                     "sed -n 'w f' g",
                                     "find . -delete",
                                     "find . -exec rm {} +",
                                     "cat .env",
                                     "cat ~/.ssh/id_rsa",
                                     "PATH=. ls",
                                     "LD_PRELOAD=x ls",
                                     "git diff --output=f",
                                     "git diff --ext-diff",
                                     "./ls",
                                     "git branch new",
                                     "git branch -D x",
                                     "tee f",
                                     "ls; $X",
                                     "awk 1",
                                     "curl x",
                                     "git stash",
                                     "uniq a b",
                                     "date -s x",
                                     "echo $(rm x)",
                                     "xargs cat .env",
                                     "rg --pre sh x",
                                     "sort --outp=f",
                                     "sort $X",
                                     "find . $X",
                                     "find *",
                                     "ls | xargs sort",
                                     "ls | xargs find",
                                     "ls | xargs xargs",
                                     "git log $X",
                                     "git diff --outp=f",
                                     "git grep -Osh pat",
                                     "git branch --set-upstream-to=x",
                                     "env '-Stouch p' ls",
                                     "time -o f ls",
                                     "uniq - f",
                                     "uniq -c *",
                                     "uniq -c a b",
                                     "sed -n 1p $X",
                                     "tree -R",
                                     "file -C",
                                     "printf -v PATH x",
                                     "XDG_CONFIG_HOME=. git status",
                                     "(ls)#'\nrm x #'",
                                     "./sh -c ls",
                                     "bash -c ls",
                                     "tree -o f"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        reads(yes[i], true);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        reads(no[i], false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_split),
        cmocka_unit_test(wrappers_are_looked_through),
        cmocka_unit_test(what_cannot_be_read_says_so),
        cmocka_unit_test(reading_commands_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
