/* Answer: one HTTP request that generates, with its choices. It turns token ids into text (whole characters, stop strings,
 * reasoning and tool calls split off) and hands the parts to a surface, which knows the shape that the client expects.
 *
 * Made by answer_start, freed by itself when everything is told or the client has gone. One thread. */
#ifndef ANSWER_H
#define ANSWER_H

#include "../gateway.h"
#include "../stream/stop.h"
#include "../stream/utf8.h"
#include "../toolcall/scanner.h"
#include "calls.h"
#include "params.h"

struct answer;

struct choice {
    struct answer *a;
    unsigned index;
    struct job job;
    bool over, truncated;
    enum job_why why;
    int stop_hit; /* index of the stop string that ended it, -1 */
    struct utf8_hold utf8;
    struct stop_state stop;
    struct scanner scan;
    bool parse;           /* reasoning or tools are looked for */
    size_t text_n, let_n; /* bytes of text made, and let through by the stop strings */
    uint32_t chars;       /* characters of text_n */
    size_t echo_skip;     /* bytes that the prompt's ids put in front of the prompt's text */
    uint32_t head_chars;  /* of the prompt's first id, when the prompt is told with its log-probabilities */
    struct text_end {
        uint32_t bytes, chars;
    } * ends; /* text_n and chars behind each id, for telling which ids belong to told text */
    size_t ends_cap;
    size_t taken;       /* ids that are text by now */
    size_t told;        /* ids whose text has been handed to the surface */
    size_t told_before; /* the same at the surface's last call */
    uint32_t reasoning_tokens;
    uint64_t seen_us; /* when ids came last */
    uint64_t made_us; /* when the first one behind the prompt came */
    bool newline;
    /* since the surface's last call when streaming, else since the beginning */
    struct buf content, reasoning;
    struct calls calls; /* all of them */
    bool broken;        /* a call of which a part was handed out came to nothing */
    bool oom;
};

struct surface {
    const char *prefix;              /* of the id: "chatcmpl-" */
    const char *object;              /* of a whole answer */
    const char *terminator;          /* last event of a stream, NULL when there is none */
    bool named;                      /* events carry the type of their data as a name, errors, too */
    const char *prompt_field;        /* named in overflow errors */
    void (*begin)(struct answer *a); /* stream: headers are out */
    void (*progress)(struct choice *c, uint32_t done, uint32_t total);
    void (*delta)(struct choice *c);  /* stream: the choice has something new */
    void (*finish)(struct choice *c); /* stream: the choice is over */
    void (*end)(struct answer *a);    /* stream: before the terminator; else: makes the whole reply */
    void (*fail)(struct answer *a,
                 const struct api_err *e); /* stream: the event that tells it; NULL: the usual */
};

struct answer_opts {
    bool logprobs;
    unsigned n_top;
    bool think, think_open, legacy_think, tools, parallel_tools;
    bool forced;     /* the answer is calls and nothing else */
    bool show_think; /* marks of reasoning stay in the text */
    bool echo;
    json_t *tool_list; /* the request's, NULL when there is none; owned by the answer */
    json_t *extra;     /* the surface's own; owned by the answer */
};

struct answer_prompt {
    uint32_t *ids; /* malloc'd, taken */
    size_t n;
    char *text; /* malloc'd, taken; NULL when not needed */
    size_t text_n;
};

struct answer {
    struct gateway *gw;
    struct http_req *http;
    const struct surface *surface;
    struct params p;
    struct answer_opts o;
    char id[64];
    int64_t created;
    struct choice *choices;
    unsigned n_choices, n_over;
    struct answer_prompt *prompts;
    unsigned n_prompts;
    unsigned n_per_prompt;
    bool begun;
    uint64_t start_us;
    struct buf out; /* events of the present turn */
    struct answer *prev, *next;
};

/* Takes p, o->extra and prompts (the array is copied, the ids are taken) in every case. Replies with an error when the
 * request cannot run. */
void answer_start(struct gateway *gw, struct http_req *r, const struct surface *s, struct params *p,
                  const struct answer_opts *o, struct answer_prompt *prompts, unsigned n_prompts);
/* Comments on streams that have been silent for too long. */
void answers_ping(struct gateway *gw);

/* For surfaces. */
void answer_event(struct answer *a, json_t *data); /* steals data; one event on the stream */
void answer_failure_event(struct answer *a, const struct api_err *e);
json_t *answer_usage(const struct answer *a);
json_t *choice_timings(const struct choice *c);
/* {"token","logprob","bytes","id","top_logprobs"} of ids from..to, as an array; with probs "prob" and "top_probs" in 0..1
 * instead of the logarithms. */
json_t *choice_logprobs(const struct choice *c, size_t from, size_t to, bool probs);
/* The same of the prompt's first id, whose log-probability nobody can tell: null. */
json_t *choice_head(const struct choice *c);
const struct answer_prompt *choice_prompt(const struct choice *c);
const char *choice_stop_text(const struct choice *c, size_t *len);
const char *answer_fingerprint(const struct answer *a);
bool choice_is_counted(const struct choice *c,
                       size_t i); /* id i stands for text, not for the end of a turn */

#endif
