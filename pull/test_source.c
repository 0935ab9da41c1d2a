#include "source.h"

#include "http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void refused(const char *text)
{
    struct source s;
    struct vt_err err;
    if (source_parse(&s, text, &err) == 0)
        fail_msg("'%s' was taken", text);
    assert_int_equal(err.code, VT_E_USAGE);
}

static void hub(void **state)
{
    struct source s;
    struct vt_err err;
    char url[300];
    assert_int_equal(source_parse(&s, "hf:o-w/re.po/sub dir/x#y.gguf", &err), 0);
    assert_true(s.hub);
    assert_string_equal(s.repo, "o-w/re.po");
    assert_string_equal(s.rev, "main");
    assert_string_equal(s.file, "sub dir/x#y.gguf");
    assert_int_equal(source_hub_url(&s, "https://h", s.rev, s.file, url, sizeof url, &err), 0);
    assert_string_equal(url, "https://h/o-w/re.po/resolve/main/sub%20dir/x%23y.gguf");
    assert_int_equal(source_hub_url(&s, "https://h", s.rev, s.file, url, 40, &err), -1);
    assert_int_equal(source_parse(&s, "hf:o/r@v1.0:Q4_K_M", &err), 0);
    assert_string_equal(s.rev, "v1.0");
    assert_string_equal(s.quant, "Q4_K_M");
    assert_string_equal(s.file, "");
    assert_int_equal(source_parse(&s, "hf:o/r", &err), 0);
    assert_string_equal(s.quant, "");
    static const char *const bad[] = {"hf:",
                                      "hf:o",
                                      "hf:/r",
                                      "hf:o/",
                                      "hf:o/r/",
                                      "hf:o/r/../x.gguf",
                                      "hf:o/r//x.gguf",
                                      "hf:../r",
                                      "hf:o/r:",
                                      "hf:o/r@",
                                      "hf:o/r@/x.gguf",
                                      "hf:o/r:Q4 K",
                                      "hf:o/r/./x.gguf",
                                      "hf:o r/r",
                                      "hf:o/r:a/b",
                                      "hf:o/r/a\n",
                                      "model.gguf",
                                      "ftp://h/x.gguf",
                                      "file:///x.gguf",
                                      "https://h/a b.gguf",
                                      ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i]);
}

static void urls(void **state)
{
    struct source s;
    struct vt_err err;
    char name[300], shown[300];
    assert_int_equal(source_parse(&s, "https://huggingface.co/o/r/blob/main/x.gguf?download=true", &err), 0);
    assert_false(s.hub);
    assert_string_equal(s.url, "https://huggingface.co/o/r/resolve/main/x.gguf?download=true");
    assert_int_equal(source_name(s.url, name, sizeof name, &err), 0);
    assert_string_equal(name, "x.gguf");
    assert_int_equal(source_name("http://h/d/a%20b.GGUF#f", name, sizeof name, &err), 0);
    assert_string_equal(name, "a b.GGUF");
    static const char *const bad[] = {
        "http://h/",          "http://h",           "http://h/x.bin", "http://h/%2e%2e%2fx.gguf",
        "http://h/.x.gguf",   "http://h/a%00.gguf", "http://h/.gguf", "http://h/a%0a.gguf",
        "http://h/?x=y.gguf", "http://x.gguf"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (source_name(bad[i], name, sizeof name, &err) == 0)
            fail_msg("'%s' gave '%s'", bad[i], name);
    assert_string_equal(source_shown("https://me:secret@h/x.gguf?token=secret#s", shown, sizeof shown),
                        "https://h/x.gguf");
    assert_string_equal(source_shown("https://h/a@b.gguf", shown, sizeof shown), "https://h/a@b.gguf");
}

static void sets(void **state)
{
    char part[300];
    assert_int_equal(source_parts("x.gguf"), 1);
    assert_int_equal(source_parts("x-00002-of-00005.gguf"), 5);
    assert_int_equal(source_parts("x-00002-of-00005.gguf?a=b"), 5);
    assert_int_equal(source_parts("x-00006-of-00005.gguf"), 1);
    assert_int_equal(source_parts("x-00000-of-00005.gguf"), 1);
    assert_int_equal(source_parts("-00001-of-00002.gguf"), 1);
    assert_int_equal(source_parts("x-0001-of-00005.gguf"), 1);
    source_part("http://h/x-00002-of-00005.gguf?a=b", 4, part, sizeof part);
    assert_string_equal(part, "http://h/x-00004-of-00005.gguf?a=b");
    source_part("x.gguf", 1, part, sizeof part);
    assert_string_equal(part, "x.gguf");
}

static void header(struct http_reply *r, const char *line)
{
    http_header(r, line, strlen(line));
}

static void headers(void **state)
{
    static const char sum[] = "A5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818";
    struct http_reply r = {.linked_size = -1};
    char line[200];
    header(&r, "HTTP/1.1 302 Found\r\n");
    header(&r, "content-length: 99\r\n");
    snprintf(line, sizeof line, "X-Linked-Etag: \"%s\"\r\n", sum);
    header(&r, line);
    header(&r, "X-Linked-Size:  253113024 \r\n");
    header(&r, "HTTP/2 206\r\n");
    assert_int_equal(r.status, 206);
    assert_int_equal(r.length, -1); /* that was the redirect's */
    header(&r, "Content-Range: bytes 5-9/10\r\n");
    header(&r, "ETag: W/\"weak\"\r\n");
    assert_string_equal(r.etag, "");
    header(&r, "ETag: \"strong\"\r\n");
    header(&r, "Retry-After: 7\r\n");
    header(&r, "no colon");
    assert_string_equal(r.etag, "\"strong\"");
    assert_int_equal(r.range_from, 5);
    assert_int_equal(r.range_size, 10);
    assert_int_equal(r.linked_size, 253113024);
    assert_int_equal(r.retry_after_s, 7);
    assert_string_equal(r.linked_sha, "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818");
    header(&r, "Content-Range: bytes */4\r\n");
    assert_int_equal(r.range_from, -1);
    assert_int_equal(r.range_size, 4);
    header(&r, "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n");
    assert_int_equal(r.retry_after_s, 0); /* past */
    header(&r, "Content-Length: -5\r\n");
    assert_int_equal(r.length, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hub),
        cmocka_unit_test(urls),
        cmocka_unit_test(sets),
        cmocka_unit_test(headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
