/* Boss: vitriold and one engine, played by a test against the real vitriol-gateway, and the HTTP client in front of it. All
 * in one thread: whatever waits for the client turns the boss meanwhile. Failures end the test (cmocka). */
#ifndef TEST_BOSS_H
#define TEST_BOSS_H

#include "frame.h"
#include "sock.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { BOSS_REQUESTS = 16, BOSS_LIFE_LINK = 0x77 };

/* A request as the engine has it. */
struct boss_request {
    bool used;
    uint64_t id;
    uint8_t rid[16];
    uint32_t prompt[4096];
    size_t n_prompt;
    uint64_t resumed_from; /* ids that came with the resume map */
    bool has_resume, cancelled;
    uint64_t attempt, seed, max_new, logprobs;
    uint64_t sent, credit; /* absolute */
    double temperature;
    uint64_t pool;
};

struct boss {
    pid_t gateway;
    uint16_t port;
    struct vt_sock *life, *data;
    char life_path[108], data_path[108];
    uint8_t nonce[16], link_nonce[16];
    struct vt_enc enc;
    bool welcomed, data_up, ready;
    uint32_t link, gen, next_link;
    uint64_t held; /* of the last GW_STATS */
    /* what the engine does */
    const char *answer; /* its bytes are the ids */
    uint64_t stop_at;   /* sends no more than this many ids; UINT64_MAX: all, and DONE */
    uint64_t skip;      /* repeats this many ids in front of each TOKENS frame */
    bool step;          /* tokens of all requests in STEP frames, one id each */
    bool mute;          /* accepts nothing */
    bool keep;          /* has no vectors yet */
    unsigned lack;      /* sends that many vectors less than it should */
    bool stopping;      /* its vitriold ends: said with the next routes */
    uint32_t depth;     /* certified, of the routes */
    int refuse;         /* answers SUBMIT with this code */
    unsigned submits, cancels, relayed;
    char target[256]; /* of the newest relayed request */
    /* what is answered to a relayed request; type NULL: nothing */
    const char *type, *reply;
    size_t reply_parts; /* how often reply comes */
    struct boss_request req[BOSS_REQUESTS];
    uint32_t seen[4096]; /* the prompt that came last */
    size_t n_seen;
};

/* Starts the gateway (program in $VT_GATEWAY) with extra --set arguments (NULL-terminated) and sees it through WELCOME. */
void boss_start(struct boss *b, const char *const *sets);
/* A new engine generation: mints a link and tells routes. */
void boss_engine_up(struct boss *b);
/* A new link to the same generation. */
void boss_relink(struct boss *b);
/* The engine dies: its socket goes, INTERRUPTED and routes are told. */
void boss_engine_dies(struct boss *b, bool resume);
void boss_drop_link(struct boss *b);
/* The engine lets go of its newest request (enum vt_park_why) and lives on. */
void boss_park(struct boss *b, unsigned why);
void boss_routes(struct boss *b, unsigned state);
void boss_hold(struct boss *b, bool on);
void boss_order(struct boss *b, unsigned verb, unsigned deadline_ms);
/* One look at every socket; for ms. */
void boss_turn(struct boss *b);
void boss_run(struct boss *b, int ms);
/* Turns until it holds, for a minute at most. */
#define boss_until(b, holds)                                                                                 \
    for (uint64_t until_ = test_ms() + 60000; !(holds); boss_run(b, 1))                                      \
    assert_true(test_ms() < until_)
/* That many requests have come, and each was sent all that it gets for now. */
bool boss_sent(const struct boss *b, unsigned submits);
/* Turns until the newest request gets nothing more for ms; how many ids it has. */
uint64_t boss_still(struct boss *b, int ms);
/* Limits of waits, here and of http_read, are those of a quiet machine; a busy one takes several times as long. */
enum { BOSS_PATIENCE = 6 };
/* Exit code of the gateway within ms, -1 when it lives. */
int boss_exit(struct boss *b, int ms);
void boss_stop(struct boss *b);
struct boss_request *boss_last(struct boss *b);
/* The prompt that came last: bytes as themselves, <|im_start|> as [, <|im_end|> as ], marks of a gap as letters from A on. */
const char *boss_prompt(const struct boss *b, char *out, size_t size);

/* ---- HTTP ---- */
/* Zero it before the first call. */
struct reply {
    int status;
    char *head, *body; /* malloc'd, NUL-terminated; body is without its chunk frames */
    size_t n;
    bool complete; /* the body had its end */
    char *raw;     /* as it came */
    size_t raw_n, raw_cap;
};
void reply_free(struct reply *r);

int http_dial(struct boss *b);
void http_send(int fd, const char *method, const char *path, const char *headers, const char *body);
/* Reads (on) until the answer is complete, the connection ends, or until (not NULL) is in the body. */
void http_read(struct boss *b, int fd, struct reply *r, const char *until, int ms);
/* All in one. */
void http_call(struct boss *b, struct reply *r, const char *method, const char *path, const char *headers,
               const char *body);

/* All content of a chat stream, and whether it ended as it must. */
struct told {
    char text[65536], reasoning[4096], finish[32], calls[4096], name[64];
    size_t n;
    bool done, error, usage;
    int events, usage_tokens;
};
void read_stream(const struct reply *r, struct told *t);
/* A stream that ended well with this text. */
void check_stream(const struct reply *r, const char *text);
json_t *reply_json(const struct reply *r);
/* type of an error object, which is checked on the way. */
const char *error_type(const struct reply *r, char *out, size_t size);

uint64_t test_ms(void);
/* Writes a model file with a byte vocabulary: id = byte for 0..255, then <|im_start|> 256, <|im_end|> 257, <think> 258,
 * </think> 259, <tool_call> 260, </tool_call> 261, <|fim_prefix|> 262, <|fim_suffix|>, <|fim_middle|>, <|repo_name|>,
 * <|file_sep|> 266. */
const char *test_model(const char *dir);
/* The same vocabulary with a template of harmony. */
void test_model_harmony(const char *path);

#endif
