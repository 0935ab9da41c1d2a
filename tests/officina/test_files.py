"""Files under the workshop's hands: rewinding them, Plan as a wall, extensions, what a death leaves."""
import os
import signal
import subprocess
import sys
import time

import pytest

from harness.appliance import wait_for
from harness.workshop import Workshop, grows

ENGINE = 'engine n_ctx=32768 certified=32768 slots=1 model=scripted-1 checkpoints=on cut=any\n'


@pytest.fixture
def shop(tmp_path):
    made = []

    def make(script):
        made.append(Workshop(tmp_path, ENGINE + script))
        return made[-1]

    yield make
    for w in made:
        if w.gateway.proc.poll() is None:
            w.gateway.stop(ok=False)


TWO_EDITS = ('ON 1 call read {"path":"a.c"} end\n'
             'ON 2 call edit {"path":"a.c","old":"one","new":"two"} call write {"path":"new/b.c","content":"int b;\\n"} end\n'
             'ON 3 call bash {"command":"sh run-tests.sh"} end\n'
             'ON 4 expect result call_4 contains "all good" say "done" end\n')
RULES = ('--allow', 'edit:**', '--allow', 'bash:sh run-tests.sh', '--allow', 'bash:echo *')


def prepare(w):
    (w.project / 'a.c').write_bytes(b'int one;\r\nint x;\n')
    (w.project / 'mine.txt').write_text('as it was\n')
    (w.project / 'run-tests.sh').write_text('grep -q two a.c && test -f new/b.c && echo all good\n')


def test_rewind_restores_that_turn_and_no_more(shop):
    w = shop(TWO_EDITS + 'ON 5 expect any "rename it again" expect none "all good" say "as new" end\n')
    prepare(w)
    t = w.start(*RULES)
    t.put(type='user', text='rename it')
    t.until('turn_end')
    assert t.close() == 0  # leaving waits for the snapshot that ends the turn
    (w.project / 'mine.txt').write_text('changed by the user\n')
    t = w.start('--resume', 'last', *RULES)
    t.until('session')
    t.put(type='rewind', turn='t0001', what='both')
    assert t.until('rewind')['done'], t.events
    assert (w.project / 'a.c').read_bytes() == b'int one;\r\nint x;\n'
    assert not (w.project / 'new').exists()
    assert (w.project / 'mine.txt').read_text() == 'changed by the user\n'
    t.put(type='redo')
    assert t.until('rewind')['done'], t.events
    assert (w.project / 'a.c').read_bytes() == b'int two;\r\nint x;\n'
    assert (w.project / 'new' / 'b.c').read_text() == 'int b;\n'
    t.put(type='rewind', turn='t0001', what='both')
    assert t.until('rewind')['done'], t.events
    t.put(type='user', text='rename it again')
    t.until('turn_end')
    assert t.close() == 0
    w.gateway.stop()


def killed_after_the_edits(shop):
    """A workshop that died while it waited for the model's last word."""
    w = shop(TWO_EDITS.replace('ON 4', 'ON 4 hang\nON 5').replace('expect result call_4 contains "all good"', ''))
    prepare(w)
    t = w.start(*RULES)
    t.put(type='user', text='rename it')
    for _ in range(4):
        t.until('tool_result')
    t.kill()
    return w


def test_rewind_after_a_kill(shop):
    """The workshop dies after the edit; the next one goes on with the conversation and takes the turn back."""
    w = killed_after_the_edits(shop)
    assert b'two' in (w.project / 'a.c').read_bytes()
    t = w.start('--resume', 'last', *RULES)
    t.until('session')
    t.put(type='rewind', turn='t0001', what='both')
    assert t.until('rewind')['done'], t.events
    assert (w.project / 'a.c').read_bytes() == b'int one;\r\nint x;\n'
    assert not (w.project / 'new').exists()
    t.close()
    w.gateway.stop(ok=False)


def test_hand_edits_after_a_kill_stay(shop):
    """What the user changes between the death and the next start is no part of the turn."""
    w = killed_after_the_edits(shop)
    time.sleep(4.5)  # up to three seconds later counts as the turn's
    (w.project / 'by-hand.txt').write_text('mine\n')
    t = w.start('--resume', 'last', *RULES)
    t.until('session')
    t.put(type='rewind', turn='t0001', what='both')
    assert t.until('rewind')['done'], t.events
    assert (w.project / 'a.c').read_bytes() == b'int one;\r\nint x;\n'
    assert (w.project / 'by-hand.txt').read_text() == 'mine\n'
    t.close()
    w.gateway.stop(ok=False)


def test_plan_is_a_wall(shop):
    w = shop('ON 1 call bash {"command":"echo x > a.c; rm -f a.c; python3 -c \\"open(\'a.c\',\'w\')\\"; ls"} end\n'
             'ON 2 call write {"path":"b.c","content":"x"} end\n'
             'ON 3 expect result call_2 contains "Plan" say "a plan" end\n')
    prepare(w)
    rc, out = w.ask('try to write', '--mode', 'plan', '--allow', 'bash:*', '--allow', 'edit:**')
    assert (rc, out['text']) in ((0, 'a plan'), (3, 'a plan')), out
    assert (w.project / 'a.c').read_bytes() == b'int one;\r\nint x;\n' and not (w.project / 'b.c').exists()
    w.gateway.stop()


def test_one_more_folder(shop, tmp_path):
    w = shop('ON 1 expect any "lib: added by the user" call read {"path":"LIB/a.txt"} call read {"path":"LIB/../secret"} call read {"path":"LIB/out"} end\n'
             'ON 2 expect result call_1 contains "of the library" expect result call_2 contains "outside the project" expect result call_3 lacks "hush"'
             ' call edit {"path":"LIB/a.txt","old":"library","new":"shelf"} call grep {"pattern":"shelf","path":"LIB"}'
             ' call bash {"command":"sh w.sh"} end\n'
             'ON 3 expect result call_5 contains "LIB/a.txt" say "done" end\n'.replace('LIB', str(tmp_path / 'lib')))
    (tmp_path / 'lib' / '.git').mkdir(parents=True)
    (tmp_path / 'lib' / '.git' / 'config').write_text('mine\n')
    (tmp_path / 'lib' / 'a.txt').write_text('of the library\n')
    (tmp_path / 'secret').write_text('hush\n')
    (w.project / 'w.sh').write_text('echo more > LIB/b.txt; echo no > LIB/.git/config; echo no > LIB/../secret\n'.replace('LIB', str(tmp_path / 'lib')))
    (tmp_path / 'lib' / 'out').symlink_to(tmp_path / 'secret')
    rc, out = w.ask('go', '--add-dir', str(tmp_path / 'lib'), '--allow', 'edit:**', '--allow', 'bash:sh w.sh')
    assert (tmp_path / 'lib' / 'a.txt').read_text() == 'of the shelf\n', (rc, out)
    assert (tmp_path / 'lib' / 'b.txt').read_text() == 'more\n'
    assert (tmp_path / 'lib' / '.git' / 'config').read_text() == 'mine\n'
    assert (tmp_path / 'secret').read_text() == 'hush\n'
    w.gateway.stop()
    for bad in (str(tmp_path), str(w.project), str(w.home), os.path.expanduser('~'), '/', str(tmp_path / 'nothing')):
        p = w.run('-p', 'x', '--add-dir', bad)
        assert p.returncode != 0 and p.stderr.startswith('officina: '), (bad, p)


def test_nothing_is_left_over(shop):
    w = shop('ON 1 call bash {"command":"setsid sleep 7777 & sleep 7778 & echo begun"} end\n'
             'ON 2 expect result call_1 contains "begun" call bash {"command":"sleep 7779"} end\n')
    t = w.start('--allow', 'bash:*')
    t.put(type='user', text='go')
    t.until('tool_result')
    t.until('tool_call', name='bash')
    t.proc.send_signal(signal.SIGTERM)
    t.proc.wait(75)

    def left():
        args = subprocess.run(['ps', '-eo', 'args'], capture_output=True, text=True).stdout
        return [x for x in args.splitlines() if x in ('sleep 7777', 'sleep 7778', 'sleep 7779')]
    wait_for('they are gone', lambda: not left(), 5)
    w.gateway.stop(ok=False)


SERVER = r'''
import json, sys
print('this is no message', flush=True)
for line in sys.stdin:
    m = json.loads(line)
    if m.get('method') == 'initialize':
        r = {'protocolVersion': '2024-11-05', 'capabilities': {'tools': {}}, 'serverInfo': {'name': 't', 'version': '1'}}
    elif m.get('method') == 'tools/list':
        r = {'tools': [{'name': 'add', 'description': 'adds', 'inputSchema': {'type': 'object'}},
                       {'name': 'bad name', 'description': 'x', 'inputSchema': {}}]}
    elif m.get('method') == 'tools/call':
        if m['params']['arguments'].get('die'):
            sys.exit(1)
        r = {'content': [{'type': 'text', 'text': 'sum %d' % sum(m['params']['arguments']['of'])}]}
    else:
        continue
    print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': r}), flush=True)
'''


def test_an_mcp_server(shop):
    w = shop('ON 1 call mcp {"server":"t"} end\n'
             'ON 2 expect result call_1 contains "t/add" expect result call_1 lacks "bad name" call mcp {"server":"t","tool":"add","arguments":{"of":[2,3]}} end\n'
             'ON 3 expect result call_2 contains "sum 5" call mcp {"server":"t","tool":"add","arguments":{"die":true}} end\n'
             'ON 4 expect result call_3 contains "it has ended" call mcp {"server":"t","tool":"add","arguments":{"of":[1]}} end\n'
             'ON 5 expect result call_4 contains "sum 1" call mcp {"server":"none"} end\n'
             'ON 6 expect result call_5 contains "no server" say "yes" end\n')
    w.home.mkdir(mode=0o700)
    (w.home / 'server.py').write_text(SERVER)
    (w.home / 'mcp.conf').write_text('[server t]\ncommand = %s\nargs = %s\n' % (sys.executable, w.home / 'server.py'))
    rc, out = w.ask('add', '--allow', 'mcp:t/*')
    assert (rc, out['text']) == (0, 'yes'), out
    assert grows(w.gateway.requests())
    w.gateway.stop()


def test_secrets_do_not_reach_the_wire(shop):
    w = shop('ON 1 call read {"path":"conf.ini"} call bash {"command":"cat conf.ini; env"} end\n'
             'ON 2 expect result call_1 contains "redacted" expect none "hunter2222" say "ok" end\n')
    (w.project / 'conf.ini').write_text('API_KEY=hunter2222\n')
    rc, out = w.ask('read it', '--allow', 'bash:*', MY_TOKEN='hunter2222')
    assert (rc, out['text']) == (0, 'ok'), out
    for folder, _, names in os.walk(str(w.home)):
        for n in names:
            if n != 'conf.ini' and 'shadow' not in folder:
                with open(os.path.join(folder, n), 'rb') as f:
                    assert b'hunter2222' not in f.read(), n
    w.gateway.stop()
