# Driver of the end-to-end tests: a real terminal by tmux. Sourced by screens.sh.
#
#   begin SCRIPT [WxH] [options]   a scripted gateway with that script and officina in a pane, in a shell
#   keys KEY…                      tmux's key names: Enter Escape Tab M-y C-c F2 Up
#   type TEXT [MS]                 as typed, MS between characters
#   paste FILE                     bracketed
#   look_at SESSION;  first FUNCTION  see below
#   expect TEXT [SECONDS]          the screen shows it within that time (10)
#   gone TEXT [SECONDS]            and no more
#   never TEXT [SECONDS]           it does not show up meanwhile (1)
#   shot NAME                      keeps the screen for the manual
#   frame                          the screen's text;  colours  with its colours
#   resize WxH;  mouse BYTES;  signal SIG;  finish
#
# Its own tmux server, no configuration, its own state folder and project. Needs OFFICINA and GATEWAY: the two programs.
set -u
work=$(mktemp -d "${TMPDIR:-/tmp}/officina-screen.XXXXXX")
failed=0
case_name=''
screen=screen # the session that is looked at and typed into
before=:
shop_path=$PATH # of the program
gateway_pid=''
export LC_ALL=C.UTF-8

tm() { tmux -S "$work/tmux" -f /dev/null "$@"; }

frame() { tm capture-pane -p -t "$screen" 2>/dev/null; }
# Keeps the screen as SHOTS/NAME.txt, for the manual; without SHOTS nothing.
shot() {
    [ -n "${SHOTS:-}" ] && frame | sed "s|$work/project|~/my-project|" >"$SHOTS/$1.txt"
    return 0
}

colours() { tm capture-pane -e -p -t "$screen" 2>/dev/null; }

fail() {
    failed=$((failed + 1))
    echo "FAILED in $case_name: $*"
    frame | sed 's/^/    | /'
}

expect() {
    i=$((${2:-10} * 30)) # three times as long before it counts as a fault: other programs run, too
    while [ "$i" -gt 0 ]; do
        frame | grep -qF -- "$1" && return 0
        sleep 0.1
        i=$((i - 1))
    done
    fail "no \"$1\" within ${2:-10} s"
    return 1
}

gone() {
    i=$((${2:-10} * 30))
    while [ "$i" -gt 0 ]; do
        frame | grep -qF -- "$1" || return 0
        sleep 0.1
        i=$((i - 1))
    done
    fail "still \"$1\" after ${2:-10} s"
}

never() {
    i=$((${2:-1} * 10))
    while [ "$i" -gt 0 ]; do
        if frame | grep -qF -- "$1"; then
            fail "\"$1\" showed up"
            return 1
        fi
        sleep 0.1
        i=$((i - 1))
    done
}

look_at() { screen=$1; }
# The next begin calls it when the folders are there and the program is not.
first() { before=$1; }

keys() { tm send-keys -t "$screen" "$@"; }

type() {
    if [ -z "${2:-}" ]; then
        tm send-keys -t "$screen" -l -- "$1"
        return
    fi
    text=$1
    while [ -n "$text" ]; do
        rest=${text#?}
        tm send-keys -t "$screen" -l -- "${text%"$rest"}"
        text=$rest
        sleep "$(printf '0.%03d' "$2")"
    done
}

paste() {
    tm load-buffer "$1"
    tm paste-buffer -p -t screen
}

mouse() { # bytes of an SGR report: "<0;5;5M"
    hex=$(printf '\033[%s' "$1" | od -An -tx1)
    # shellcheck disable=SC2086
    tm send-keys -t "$screen" -H $hex
}

resize() { tm resize-window -t screen -x "${1%x*}" -y "${1#*x}"; }

# The workshop itself, not its keeper.
workshop() { pgrep -P "$(pgrep -P "$(tm display-message -p -t screen '#{pane_pid}')" -n)" -n; }
signal() { kill "-$1" "$(workshop)"; }

gateway() {
    printf '%s\n' "$1" >"$work/script"
    rm -f "$work/gateway.log" # the last one's says that it listens, until the new one has begun its own
    "$GATEWAY" "$work/script" --port "${2:-0}" >"$work/gateway.log" 2>&1 &
    gateway_pid=$!
    i=300
    while [ "$i" -gt 0 ] && ! grep -qs 'listening' "$work/gateway.log"; do
        sleep 0.1
        i=$((i - 1))
    done
    port=$(sed -n 's/.*listening on 127.0.0.1:\([0-9]*\).*/\1/p' "$work/gateway.log")
}

begin() {
    case_name=$1
    size=${3:-80x24}
    gateway "$2"
    rm -rf "${work:?}/home" "${work:?}/project"
    mkdir -p "$work/home" "$work/project"
    chmod 700 "$work/home"
    "$before"
    before=:
    shift 2
    [ $# -gt 0 ] && shift
    echo 'set +m; PS1="shell> "' >"$work/rc"
    # the server of the case before may still be on its way out, and takes a new session with it
    tries=0
    until tm new-session -d -s screen -x "${size%x*}" -y "${size#*x}" \
        "cd '$work/project' && env PATH='$shop_path' OFFICINA_HOME='$work/home' EDITOR='$work/editor' TERM=tmux-256color bash --noprofile --rcfile '$work/rc' -i" ||
        [ $((tries += 1)) -eq 5 ]; do
        sleep 0.3
    done
    tm set-option -t screen history-limit 0 >/dev/null
    expect 'shell>' 5
    type "set -m; clear; '$OFFICINA' . --engine http://127.0.0.1:$port $*"
    keys Enter
}

finish() {
    tm kill-server 2>/dev/null
    [ -n "$gateway_pid" ] && kill "$gateway_pid" 2>/dev/null && wait "$gateway_pid" 2>/dev/null
    gateway_pid=''
}

pane() { tm display-message -p -t screen "#{$1}"; }

same() { # what is, what should be, of what
    [ "$1" = "$2" ] || fail "$3 is \"$1\" and not \"$2\""
}

# The project has that file by now.
there() {
    i=600
    while [ "$i" -gt 0 ]; do
        [ -e "$work/project/$1" ] && return 0
        sleep 0.1
        i=$((i - 1))
    done
    fail "the project has no file $1"
}

# The terminal is the shell's again: main screen, cursor, cooked mode, nothing reported.
restored() {
    expect 'shell>' 5
    same "$(pane alternate_on)" 0 'the alternate screen'
    same "$(pane cursor_flag)" 1 'the cursor'
    same "$(pane mouse_any_flag)" 0 'mouse reports'
    type 'clear; stty -a | tr " ;" "\n\n" | grep -x -e "-*icanon" -e "-*echo" -e "-*isig" | tr "\n" " "; echo .'
    keys Enter
    expect 'isig icanon echo .' 5
}
