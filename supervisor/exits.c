#include "exits.h"

#include "err.h"

#include <signal.h>
#include <stddef.h>

static const struct {
    const char *name;
    bool final;
} classes[CLASS_COUNT] = {
    [CLASS_NONE] = {"none", false},
    [CLASS_STOPPED] = {"stopped", false},
    [CLASS_CONFIG] = {"config", true},
    [CLASS_PAYLOAD] = {"payload", true},
    [CLASS_PERM] = {"perm", true},
    [CLASS_VERSION] = {"version", true},
    [CLASS_DEVICE_OOM_LOAD] = {"device_oom_load", false},
    [CLASS_DEVICE_OOM_RUN] = {"device_oom_run", false},
    [CLASS_DEVICE_LOST] = {"device_lost", false},
    [CLASS_HUNG] = {"hung", false},
    [CLASS_OOM_KILL] = {"oom_kill", false},
    [CLASS_SIGNAL] = {"signal", false},
    [CLASS_SIGKILL_UNKNOWN] = {"sigkill_unknown", false},
    [CLASS_UNEXPECTED_EXIT] = {"unexpected_exit", false},
    [CLASS_HELLO_TIMEOUT] = {"hello_timeout", false},
    [CLASS_LOAD_STALL] = {"load_stall", false},
    [CLASS_PROTOCOL] = {"protocol", false},
    [CLASS_HOST_MEM] = {"host_mem", false},
    [CLASS_UNKILLABLE] = {"unkillable", true},
    [CLASS_DRAIN_DEADLINE] = {"drain_deadline", false},
    [CLASS_SPAWN_FAILED] = {"spawn_failed", false},
    [CLASS_VRAM_NOT_RETURNED] = {"vram_not_returned", false},
};

static enum exit_class by_code(const struct exit_facts *f)
{
    switch (f->status) {
    case VT_EX_USAGE:
    case VT_EX_CONFIG: return CLASS_CONFIG;
    case VT_EX_PAYLOAD:
    case VT_EX_NOINPUT: return CLASS_PAYLOAD;
    case VT_EX_PERM: return CLASS_PERM;
    case VT_EX_PROTOCOL: return CLASS_VERSION;
    case VT_EX_DEVICE_OOM_LOAD:
        return f->state == VT_CHILD_LOADING ? CLASS_DEVICE_OOM_LOAD : CLASS_DEVICE_OOM_RUN;
    case VT_EX_DEVICE_OOM_RUN: return CLASS_DEVICE_OOM_RUN;
    case VT_EX_DEVICE_LOST: return CLASS_DEVICE_LOST;
    case VT_EX_HOST_MEM: return CLASS_HOST_MEM;
    default: return CLASS_UNEXPECTED_EXIT;
    }
}

enum exit_class exit_classify(const struct exit_facts *f)
{
    if (!f->signalled && f->status == 0 && f->ordered)
        return CLASS_STOPPED;
    if (f->killed_for != CLASS_NONE && f->signalled && f->status == SIGKILL)
        return f->killed_for;
    if (!f->signalled)
        return by_code(f);
    if (f->status != SIGKILL)
        return CLASS_SIGNAL;
    return f->oom_kill ? CLASS_OOM_KILL : CLASS_SIGKILL_UNKNOWN;
}

const char *exit_class_name(enum exit_class c)
{
    return (unsigned)c < CLASS_COUNT ? classes[c].name : "?";
}

bool exit_class_final(enum exit_class c)
{
    return (unsigned)c < CLASS_COUNT && classes[c].final;
}

bool exit_class_resumable(enum exit_class c)
{
    return !exit_class_final(c);
}
