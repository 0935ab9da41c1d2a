#include "rules.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { KEEP_COMM, KEEP_UNIT, KEEP_FILE };

/* Programs, by file name. A trailing * stands for any ending. */
static const char *const login[] = {"sshd",
                                    "sshd-session",
                                    "sshd-auth",
                                    "dropbear",
                                    "mosh-server",
                                    "login",
                                    "agetty",
                                    "getty",
                                    "su",
                                    "sudo",
                                    "doas",
                                    "polkitd",
                                    "pkexec",
                                    "polkit-agent-helper-1",
                                    "polkit-gnome-authentication-agent-1",
                                    "polkit-kde-authentication-agent-1",
                                    "lxpolkit",
                                    "tmux",
                                    "screen",
                                    "zellij",
                                    "systemd",
                                    "systemd-executor",
                                    "dbus-daemon",
                                    "dbus-broker",
                                    "dbus-broker-launch",
                                    "gpg-agent",
                                    "ssh-agent",
                                    "gnome-keyring-daemon",
                                    "kwalletd*",
                                    "pam_*",
                                    NULL};
static const char *const display[] = {"Xorg",
                                      "X",
                                      "Xwayland",
                                      "Xvnc",
                                      "Xtigervnc",
                                      "x11vnc",
                                      "gnome-shell",
                                      "gnome-session*",
                                      "gdm*",
                                      "mutter",
                                      "kwin*",
                                      "plasmashell",
                                      "plasma_session",
                                      "ksmserver",
                                      "startplasma*",
                                      "sddm*",
                                      "sway",
                                      "swaylock",
                                      "weston",
                                      "wayfire",
                                      "labwc",
                                      "river",
                                      "Hyprland",
                                      "niri",
                                      "cosmic-*",
                                      "xfwm4",
                                      "xfce4-session",
                                      "xfce4-panel",
                                      "cinnamon*",
                                      "mate-session",
                                      "marco",
                                      "lxsession",
                                      "lxqt-session",
                                      "openbox",
                                      "i3",
                                      "awesome",
                                      "bspwm",
                                      "dwm",
                                      "lightdm*",
                                      "greetd",
                                      "xscreensaver*",
                                      "ibus-daemon",
                                      "ibus-*",
                                      "fcitx",
                                      "fcitx5",
                                      "pipewire",
                                      "pipewire-pulse",
                                      "wireplumber",
                                      "pulseaudio",
                                      NULL};
static const char *const storage[] = {"sshfs",
                                      "fusermount",
                                      "fusermount3",
                                      "rclone",
                                      "gvfsd*",
                                      "gocryptfs",
                                      "encfs",
                                      "cryfs",
                                      "mount.*",
                                      "ntfs-3g",
                                      "s3fs",
                                      "openvpn",
                                      "openconnect",
                                      "wg-quick",
                                      "wireguard-go",
                                      "tailscaled",
                                      "nm-*",
                                      "NetworkManager",
                                      "syncthing",
                                      "apt",
                                      "apt-get",
                                      "aptitude",
                                      "dpkg",
                                      "dpkg-deb",
                                      "unattended-upgr*",
                                      "dnf",
                                      "dnf5",
                                      "yum",
                                      "rpm",
                                      "pacman",
                                      "zypper",
                                      "snap",
                                      "flatpak",
                                      "packagekitd",
                                      NULL};
static const char *const debuggers[] = {"gdb",    "gdbserver", "lldb", "lldb-server", "strace",
                                        "ltrace", "rr",        "perf", NULL};

/* Their units, as components of the cgroup path. */
static const char *const login_units[] = {"dbus.service",
                                          "dbus-broker.service",
                                          "gpg-agent.service",
                                          "ssh-agent.service",
                                          "init.scope",
                                          "ssh.service",
                                          NULL};
static const char *const display_units[] = {"pipewire.service",
                                            "pipewire-pulse.service",
                                            "wireplumber.service",
                                            "pulseaudio.service",
                                            "org.gnome.Shell*",
                                            "plasma-plasmashell.service",
                                            "plasma-kwin_wayland.service",
                                            "plasma-kwin_x11.service",
                                            NULL};

static bool like(const char *pattern, const char *name, size_t n)
{
    size_t p = strlen(pattern);
    if (p > 0 && pattern[p - 1] == '*')
        return n >= p - 1 && strncmp(pattern, name, p - 1) == 0;
    return n == p && strncmp(pattern, name, n) == 0;
}

static bool listed(const char *const *list, const char *name)
{
    for (; *list != NULL; list++) {
        if (like(*list, name, strlen(name)))
            return true;
    }
    return false;
}

/* Any component of a path. */
static bool in_unit(const char *const *units, const char *cgroup)
{
    for (const char *at = cgroup; *at != '\0';) {
        size_t n = strcspn(at, "/");
        for (const char *const *u = units; n > 0 && *u != NULL; u++) {
            if (like(*u, at, n))
                return true;
        }
        at += n + (at[n] == '/');
    }
    return false;
}

static const char *program_of(const struct task *t)
{
    const char *slash = strrchr(t->exe, '/');
    return slash != NULL ? slash + 1 : t->comm;
}

static bool below(const char *path, const char *top)
{
    size_t n = strlen(top);
    return n > 0 && strncmp(path, top, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static bool own(const struct rules *r, const struct task *t, bool related)
{
    if (related || below(t->cgroup, r->own_cgroup))
        return true;
    size_t n = strlen(r->own_dir);
    return n > 0 && strncmp(t->exe, r->own_dir, n) == 0 && strncmp(t->exe + n, "/vitriol", 8) == 0;
}

static bool kept(const struct rules *r, const struct task *t)
{
    for (unsigned i = 0; i < r->n_keep; i++) {
        const struct keep *k = &r->keep[i];
        const char *const unit[] = {k->text, NULL};
        if (k->kind == KEEP_COMM && strcmp(t->comm, k->text) == 0)
            return true;
        if (k->kind == KEEP_UNIT && in_unit(unit, t->cgroup))
            return true;
        if (k->kind == KEEP_FILE && t->exe[0] != '\0' && t->exe_dev == k->dev && t->exe_ino == k->ino)
            return true;
    }
    return false;
}

enum verdict rules_judge(const struct rules *r, const struct task *t, bool related)
{
    const char *name = program_of(t);
    if (t->pid == 1 || t->kernel || t->uid != r->uid || !t->one_uid)
        return KEEP_INIT;
    if (own(r, t, related))
        return KEEP_OWN;
    if (t->adj < 0)
        return KEEP_PROTECTED;
    if (listed(login, name) || in_unit(login_units, t->cgroup))
        return KEEP_LOGIN;
    if (listed(display, name) || in_unit(display_units, t->cgroup))
        return KEEP_DISPLAY;
    if (t->fuse || listed(storage, name))
        return KEEP_STORAGE;
    if (t->tracer != 0 || listed(debuggers, name))
        return KEEP_DEBUG;
    if (kept(r, t))
        return KEEP_LISTED;
    if (t->bytes < r->min_bytes)
        return KEEP_SMALL;
    return t->adj >= r->floor ? KEEP_AT_FLOOR : MAY_MARK;
}

int rules_keep(struct rules *r, const char *text, char *bad, size_t size)
{
    struct stat st;
    r->n_keep = 0;
    while (*(text += strspn(text, " ,\t")) != '\0') {
        size_t n = strcspn(text, " ,\t");
        snprintf(bad, size, "%.*s", (int)n, text);
        if (r->n_keep == RULES_KEEP || n >= sizeof r->keep[0].text)
            return -1;
        struct keep *k = &r->keep[r->n_keep++];
        *k = (struct keep){.kind = KEEP_COMM};
        snprintf(k->text, sizeof k->text, "%.*s", (int)n, text);
        if (strncmp(k->text, "unit:", 5) == 0) {
            k->kind = KEEP_UNIT;
            memmove(k->text, k->text + 5, strlen(k->text + 5) + 1);
        } else if (k->text[0] == '/') {
            k->kind = KEEP_FILE;
            if (stat(k->text, &st) < 0)
                return -1;
            k->dev = st.st_dev;
            k->ino = st.st_ino;
        }
        if (k->text[0] == '\0' || (k->kind != KEEP_FILE && strchr(k->text, '/') != NULL))
            return -1;
        text += n;
    }
    bad[0] = '\0';
    return 0;
}

const char *verdict_name(enum verdict v)
{
    static const char *const names[VERDICTS] = {"marked",   "other user or system",
                                                "own",      "protected",
                                                "login",    "display",
                                                "storage",  "debugger",
                                                "listed",   "small",
                                                "at floor", "unreadable"};
    return (unsigned)v < VERDICTS ? names[v] : "?";
}
