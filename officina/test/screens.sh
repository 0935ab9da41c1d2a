#!/bin/sh
# End-to-end tests of the workshop's screen: the real program in a real terminal against the scripted gateway.
# usage: screens.sh [CASE…]; OFFICINA and GATEWAY name the programs.
# shellcheck disable=SC2317,SC2154,SC2034,SC1091 # cases are called by their name; the driver has the variables
. "$(dirname "$0")/tmux.sh"
trap 'finish; rm -rf "$work"' EXIT

engine='engine n_ctx=32768 certified=32768 slots=1 model=scripted-1 checkpoints=on cut=any'
cat >"$work/editor" <<'EOS'
#!/bin/sh
printf 'written in the editor\nsecond line\n' >"$1"
EOS
chmod +x "$work/editor"

case_start() {
    begin start "$engine
ON 1 say \"ok\" end"
    expect READY && expect 'Visita Interiora' && shot start && expect 'OFFICINA'
    colours | grep -q '38;5;71' || fail 'no verdigris in 256 colours'
    type x
    expect '› x'
    gone 'Visita' 3
    keys C-c
    gone '› x' 3
    keys C-c
    expect 'press Ctrl-C again to leave' 3
    keys C-c
    restored
}

# The first frame does not wait for the sandbox's trial; what is typed until then is not lost.
case_first() {
    mkdir -p "$work/slow"
    printf '%s\n' '#!/bin/sh' "while [ ! -e '$work/go' ]; do sleep 0.1; done" "PATH=\${PATH#*:}" 'exec bwrap "$@"' >"$work/slow/bwrap"
    chmod +x "$work/slow/bwrap"
    shop_path="$work/slow:$PATH"
    begin first "$engine
ON 1 say \"here\" end"
    shop_path=$PATH
    expect 'Visita Interiora' && expect OPENING
    never READY 1
    type 'typed early'
    touch "$work/go"
    expect '› typed early'
    keys Enter
    expect here
}

# What cannot start says why on the terminal that was there before, and no answer of the terminal is typed into the shell.
case_fault() {
    begin_broken() { printf 'this is no database, only some text that is long enough\n' >"$work/home/officina.db"; }
    first begin_broken
    begin fault "$engine
ON 1 say \"here\" end"
    expect 'officina: ' && expect 'officina.db'
    never '2c' 1
    restored
}

case_states() {
    begin states "$engine delta=4 gap=40
ON 1 progress 4000 0 1000 pause 2000 progress 4000 0 2500 pause 1000 think \"let me think about this for some while now\" pause 2000 say \"a long answer that takes its time to arrive\" pause 2000 end
ON 2 say \"slow\" pause 5000 end
ON 3 status 400 bad"
    expect READY
    type 'go'
    keys Enter
    expect READING 5 && shot reading && expect THINKING 8 && expect WRITING 8 && expect 'thought' 5
    expect READY 8
    type 'again'
    keys Enter
    expect WRITING 5
    type 'and this'
    keys Enter
    expect 'QUEUED 1' 5
    keys M-q
    expect '› and this' 5
    keys C-u
    keys Escape
    expect INTERRUPTED 5
    type 'wrong'
    keys Enter
    expect ERROR 8
}

case_approval() {
    begin approval "$engine
ON 1 say \"I will make a file.\" call bash {\"command\":\"touch made-by-model && rm -rf gone\"} end
ON 2 say \"it is denied\" call bash {\"command\":\"touch second\"} end
ON 3 say \"finished\" end"
    expect READY
    type 'make it'
    keys Enter
    expect 'AWAITING APPROVAL ─ bash'
    expect '$ touch made-by-model && rm -rf gone'
    shot approval
    sleep 0.6
    # typing never approves: every letter, Enter, space, digits
    type 'y yes s p n Y S P N 1 2 3 ok allow approve ' 5
    keys Tab
    keys Tab
    sleep 0.3
    expect 'AWAITING APPROVAL' 1
    [ -e "$work/project/made-by-model" ] && fail 'typing ran the command'
    # a chord in the middle of typing does not count either
    tm send-keys -t screen -l abc \; send-keys -t screen M-y # at once, whatever the machine does
    sleep 0.3
    [ -e "$work/project/made-by-model" ] && fail 'a chord within 250 ms of a key ran the command'
    sleep 0.6
    keys C-u
    sleep 0.6
    type 'keep it'
    sleep 0.6
    keys M-n
    expect 'denied: keep it' 5
    expect 'touch second' 5
    sleep 0.8
    keys C-x
    keys y
    expect finished 8
    there second
    [ -e "$work/project/made-by-model" ] && fail 'the denied command ran'
}

# The first key of a chord before the box was there, the second when it was: it was not read by then.
case_ahead() {
    begin ahead "$engine
ON 1 say \"I will make a file.\" pause 2000 call bash {\"command\":\"touch ahead\"} end
ON 2 say \"finished\" end"
    expect READY
    type 'go'
    keys Enter
    expect 'I will make'
    keys C-x
    expect 'AWAITING APPROVAL ─ bash'
    sleep 0.8
    keys y
    expect 'that came too quickly' 3
    [ -e "$work/project/ahead" ] && fail 'a chord that began before the box approved'
    sleep 0.8
    keys F1 # and a box that is covered
    sleep 0.6
    keys M-y
    sleep 0.4
    [ -e "$work/project/ahead" ] && fail 'a covered box was approved'
    keys F1
    sleep 0.8
    keys M-y
    expect finished 8
    there ahead
}

case_click() {
    begin click "$engine
ON 1 call bash {\"command\":\"touch clicked\"} end
ON 2 say \"finished\" end"
    expect READY
    type 'make it'
    keys Enter
    expect 'Alt-Y once'
    sleep 0.8
    row=$(frame | grep -n 'Alt-Y once' | head -1 | cut -d: -f1)
    mouse "<0;6;${row}M"
    mouse "<0;6;${row}m"
    expect finished 8
    there clicked
}

case_paste() {
    begin paste "$engine
ON 1 say \"one message\" end"
    expect READY
    i=0
    while [ "$i" -lt 30 ]; do
        i=$((i + 1))
        echo "pasted line $i"
    done >"$work/pasted"
    paste "$work/pasted"
    expect 'pasted line 30'
    never 'YOU' 1
    keys BSpace
    keys Enter
    expect 'one message'
    same "$(frame | grep -c 'YOU  t0002')" 0 'a second message'
}

case_sizes() {
    begin sizes "$engine
ON 1 say \"here\" end"
    expect READY
    type 'a draft'
    resize 37x9
    expect 'window too small: 37×9'
    shot small
    resize 40x12
    expect '› a draft'
    resize 120x40
    expect '─ COUPLING' && expect '─ CONTEXT' && expect '› a draft'
    shot panel
    resize 200x50
    expect '─ COUPLING' && expect '› a draft'
    resize 80x24
    gone '─ COUPLING' 5
    sleep 0.5
    keys F2
    expect '─ COUPLING' 5
    keys Escape
    gone '─ COUPLING' 5
}

case_kill() {
    begin kill "$engine
ON 1 say \"here\" end"
    expect READY
    type 'a draft'
    sleep 0.5
    signal KILL
    restored
    type 'clear'
    keys Enter
    type "'$OFFICINA' . --engine http://127.0.0.1:$port --resume last"
    keys Enter
    expect READY
    expect '› a draft' 5
    signal TERM
    restored
}

case_suspend() {
    begin suspend "$engine
ON 1 say \"here\" end"
    expect READY
    type 'a draft'
    keys C-z
    expect Stopped 5
    same "$(pane alternate_on)" 0 'the alternate screen'
    type 'fg'
    keys Enter
    expect '› a draft' 5
    expect READY
    keys C-u
    keys C-d C-d
    restored
}

case_away() {
    begin away "$engine
ON 1 say \"here\" end
ON 2 say \"back again\" end"
    expect READY
    old=$port
    kill "$gateway_pid"
    wait "$gateway_pid" 2>/dev/null
    expect 'ENGINE AWAY' 30
    expect 'Alt-R now' 2
    shot away
    type 'while it is away'
    keys Enter
    expect 'YOU  t0001' 5
    gateway "$engine
ON 1 say \"back again\" end" "$old"
    keys M-r
    expect 'back again' 20
}

case_loading() {
    begin loading "$engine
HEALTH 1.0s loading
ON 1 say \"here\" end"
    expect 'ENGINE LOADING' 15
    keys C-c C-c
    restored
}

case_bouncing() {
    begin bouncing "$engine
HEALTH 2.0s bouncing eta=20
ON 1 say \"here\" end"
    expect 'ENGINE BOUNCING' 15
    expect 'planned restart' 2
    expect 'clean restart' 2
    shot bouncing
}

case_compose() {
    begin compose "$engine
ON 1 say \"here\" end
ON 2 say \"there\" end"
    expect READY
    type 'first prompt'
    keys Enter
    expect here
    type 'first lime'
    keys BSpace
    keys BSpace
    type 'ne'
    keys C-a
    keys C-k
    keys C-y
    expect '› first line'
    keys C-u
    keys C-_
    expect '› first line'
    keys M-Enter
    type 'second line'
    expect '  second line'
    keys C-c
    gone 'second line' 3
    keys Up
    expect '  second line' 3
    keys C-c
    keys C-r
    expect 'search:' 3
    type 'first pr'
    expect '▸ first prompt' 3
    keys Enter
    expect '› first prompt' 3
    keys C-u
    keys C-g
    expect '› written in the editor' 5
    expect '  second line' 3
    keys C-c
    type '/re'
    expect '/rewind' 3 && expect '/resume' 3
    shot menu
    keys Escape
    gone '/resume' 3
    keys C-u
    echo x >"$work/project/some-file.c"
    type 'see @som'
    expect 'some-file.c' 3
    keys Tab
    expect '› see @some-file.c' 3
    keys C-u
    keys F1
    expect 'approve once' 3
    keys Escape
    gone 'approve once' 3
    keys Tab
    expect '── PLAN' 3
    keys Tab
    expect '── BUILD' 3
}

case_scroll() {
    long=$(i=0; while [ "$i" -lt 60 ]; do i=$((i + 1)); printf 'row %d of the answer  \\n\\n' "$i"; done)
    begin scroll "$engine
ON 1 say \"$long\" end"
    expect READY
    type go
    keys Enter
    expect 'row 60 of'
    expect READY
    keys PPage
    gone 'row 60 of' 3
    expect '· End' 3
    mouse '<65;10;10M'
    keys C-Home
    expect 'YOU  t0001' 3
    keys End
    expect 'row 60 of' 3
    mouse '<64;10;10M'
    expect '· End' 3
}

case_rewind() {
    begin rewind "$engine
ON 1 say \"first answer\" end"
    expect READY
    type 'a question'
    keys Enter
    expect 'first answer'
    expect READY
    keys Escape Escape
    expect 'REWIND' 5
    expect '▸ now' 3
    shot rewind
    keys Escape
    gone '▸ now' 3
}

case_ascii() {
    begin ascii "$engine
ON 1 call bash {\"command\":\"touch it; sleep 4\"} end
ON 2 say \"finished\" end" 80x24 --ascii
    expect READY
    type go
    keys Enter
    expect '+ AWAITING APPROVAL - bash'
    sleep 0.8
    keys M-y
    expect 'RUNNING bash' 5
    expect finished 8
    frame | LC_ALL=C grep -q '[^ -~]' && fail 'a character that is no ASCII'
}

case_terminals() {
    for t in linux vt100 dumb no-such-terminal; do
        begin "terminal $t" "$engine
ON 1 say \"here\" end"
        expect READY
        keys C-c C-c
        restored
        type "clear; TERM=$t '$OFFICINA' . --engine http://127.0.0.1:$port"
        keys Enter
        expect READY && expect 'F1 help'
        keys C-c C-c
        expect 'shell>' 5
        finish
    done
}

# What waits for the user or for another program, each with its word.
case_answer() {
    begin answer "$engine
ON 1 call ask {\"question\":\"Which colour?\",\"options\":[\"green\",\"gold\"]} end
ON 2 expect result call_1 contains \"gold\" say \"gold it is\" end"
    expect READY
    type 'ask me'
    keys Enter
    expect 'AWAITING ANSWER' && expect 'Which colour?' && shot answer
    type 'gold'
    keys Enter
    expect 'gold it is'
}

case_readonly() {
    begin readonly "$engine
ON 1 say \"here\" end"
    expect READY
    type 'first'
    keys Enter
    expect here && expect READY
    tm new-session -d -s second -x 80 -y 24 \
        "cd '$work/project' && env OFFICINA_HOME='$work/home' TERM=tmux-256color '$OFFICINA' . --engine http://127.0.0.1:$port --resume last"
    look_at second
    expect 'READ ONLY' && expect 'here' && shot readonly
    type 'from the second'
    keys Enter
    expect 'Another Officina holds this conversation' 3
    look_at screen
    never 'from the second'
}

case_full() {
    begin full "engine n_ctx=6000 certified=6000 slots=1 model=scripted-1 checkpoints=on cut=any
ELSE say \"no\" end"
    expect READY
    i=0
    while [ "$i" -lt 900 ]; do
        echo "this is line $i of a text that does not fit"
        i=$((i + 1))
    done >"$work/long"
    paste "$work/long"
    keys Enter
    expect 'CONTEXT FULL' && expect '/rewind' && shot full
}

case_cap() {
    begin_with() { # the state folder is there before the program is
        printf '%s\n' '[coupling cloud]' 'kind = openai' "base_url = http://127.0.0.1:$port" 'window = 32768' 'price_in = 500' \
            'price_out = 500' 'cap_session = 0.01' 'default = yes' 'send = yes' >"$work/home/couplings.conf"
        chmod 600 "$work/home/couplings.conf"
    }
    first begin_with
    begin cap "$engine
ELSE say \"no\" end"
    expect READY
    type 'spend'
    keys Enter
    expect 'CAP REACHED' && expect '/couple' && shot cap
}

case_distil() {
    begin distil "$engine delta=4 gap=30
ON 1 say \"one\" end
ON 2 say \"two\" end
ON 3 say \"the summary of all this takes a while\" pause 2000 end"
    expect READY
    type 'first'
    keys Enter
    expect one && expect READY
    type 'second'
    keys Enter
    expect two && expect READY
    type '/distil'
    keys Enter
    expect DISTILLING && shot distilling
    expect 'distilled' 10
}

case_slot() {
    begin slot "$engine
ON 1 pause 6000 say \"at last\" end"
    expect READY
    type 'go'
    keys Enter
    expect 'WAITING SLOT' 5 && shot slot
    expect 'at last' 20
}

# The change of one file at 200x50: both sides, each line's words; and what an extension puts into the panel and the menu.
case_wide() {
    first ext_there
    ext_there() {
        mkdir -p "$work/home/ext/lint" "$work/home/commands"
        printf 'command = run.sh\nevents = turn_end\ncommands = /lint\n' >"$work/home/ext/lint/ext.conf"
        cat >"$work/home/ext/lint/run.sh" <<'EOS'
#!/bin/sh
read -r hello
echo '{"id":1,"type":"hello","name":"lint","events":["turn_end"],"commands":["/lint"],"panel":true}'
echo '{"type":"panel","lines":["two faults"]}'
while read -r line; do
    case $line in *command*) echo '{"id":2,"type":"result","text":"all is well"}' ;; esac
done
EOS
        chmod +x "$work/home/ext/lint/run.sh"
        printf 'description: says what the folder holds\n\nThe folder holds: !{ls}\n' >"$work/home/commands/look.md"
        printf 'int one;\nint two;\n' >"$work/project/a.c"
    }
    begin wide "$engine
ON 1 expect last \"The folder holds: a.c\" call edit {\"path\":\"a.c\",\"old\":\"two\",\"new\":\"deux\"} end
ON 2 say \"changed\" end" 200x50
    expect READY
    type '/lo'
    expect 'says what the folder holds' 5
    keys C-u
    type '/look'
    keys Enter
    expect 'AWAITING APPROVAL ─ edit' && expect '2 - int two;' && expect '2 + int deux;' && shot change
    expect 'bash   ls' 2
    sleep 0.7
    keys M-y
    expect changed && expect '─ LINT' && expect 'two faults' && shot extension
    type '/lint'
    keys Enter
    expect '/lint: all is well'
}

run() {
    "case_$1"
    finish
}

all='start first fault states approval ahead click paste sizes kill suspend away loading bouncing compose scroll rewind ascii terminals answer readonly full cap distil slot wide'
# shellcheck disable=SC2048,SC2086
for c in ${*:-$all}; do
    run "$c"
done
[ "$failed" -eq 0 ] && echo "all screens as they should be" || echo "$failed failed"
exit "$((failed > 0))"
