"""Officina without a screen: exit codes tell the truth, bytes only grow, conversations survive everything."""
import json
import os
import sqlite3
import time

import pytest

from harness.appliance import wait_for
from harness.workshop import Workshop, grows

ENGINE = 'engine n_ctx=32768 certified=32768 slots=1 model=scripted-1 checkpoints=on cut=any\n'


@pytest.fixture
def shop(tmp_path):
    made = []

    def make(script=None):
        made.append(Workshop(tmp_path, script and ENGINE + script))
        return made[-1]

    yield make
    for w in made:
        if w.gateway and w.gateway.proc.poll() is None:
            w.gateway.stop(ok=False)


def test_a_call_and_an_answer(shop):
    w = shop('ON 1 expect last "look" think "hm" call read {"path":"a.txt"} end\n'
             'ON 2 expect extends expect result call_1 contains "line one" say "seen " pause 20 say "a" end\n')
    (w.project / 'a.txt').write_text('line one\n')
    p = w.run('-p', 'look at a')
    assert (p.returncode, p.stdout, p.stderr) == (0, 'seen a\n', '')
    assert grows(w.gateway.requests())
    w.gateway.stop()


def test_an_edit_over_files_with_tests(shop):
    w = shop('ON 1 call read {"path":"a.c"} call read {"path":"b.c"} end\n'
             'ON 2 call edit {"path":"a.c","old":"one","new":"uno"} call edit {"path":"b.c","old":"one","new":"uno"} end\n'
             'ON 3 call bash {"command":"sh run-tests.sh"} end\n'
             'ON 4 expect result call_5 contains "all good" say "renamed" end\n')
    for name in 'ab':
        (w.project / (name + '.c')).write_text('int one;\r\n')
    (w.project / 'run-tests.sh').write_text('grep -q uno a.c && grep -q uno b.c && echo all good\n')
    rc, out = w.ask('rename', '--allow', 'edit:**', '--allow', 'bash:sh run-tests.sh')
    assert (rc, out['status'], out['changed']) == (0, 'ok', ['a.c', 'b.c']), out
    assert (w.project / 'a.c').read_bytes() == b'int uno;\r\n'
    assert grows(w.gateway.requests())
    w.gateway.stop()


@pytest.mark.parametrize('script, options, rc, status', [
    ('ON 1 call bash {"command":"touch x"} end\nON 2 expect result call_1 contains "denied" say "no" end\n', [], 3, 'denied'),
    ('ON 1 call bash {"command":"touch x"} end\nON 2 say "a plan" end\n', ['--mode', 'plan'], 0, 'ok'),
    ('ON 1 status 400 wrong\n', [], 1, 'engine_error'),
    ('ELSE call read {"path":"a"} end\n', ['--max-turns', '3'], 4, 'turn_limit'),
    ('ON 1 status 503 loading ; again\nON 2 say "up" end\n', [], 0, 'ok'),
    ('ON 1 status 500 oops ; again\nON 2 say "up" end\n', [], 0, 'ok'),
    ('ON 1 think "hm" drop\nON 2 say "again" end\n', [], 0, 'ok'),
    ('ON 1 say "half" drop\n', [], 1, 'engine_error'),
])
def test_exit_codes(shop, script, options, rc, status):
    w = shop(script)
    got, out = w.ask('do it', *options)
    assert (got, out['status']) == (rc, status), out
    w.gateway.stop()


def test_exit_codes_without_an_engine(shop):
    w = shop()
    began = time.monotonic()
    rc, out = w.ask('hello')
    assert (rc, out['status']) == (6, 'engine_unreachable')
    assert 4 < time.monotonic() - began < 45
    for bad in (['--nonsense'], ['--mode', 'fly', '-p', 'x'], ['-p', '  '], ['--resume', 'nobody', '-p', 'x'], ['-p', 'x', '--max-turns', '0'],
                ['--output-format', 'json'], ['a', 'b', '-p', 'x'], ['-p']):
        p = w.run(*bad)
        assert p.returncode == 2 and p.stderr.startswith('officina: ') and p.stdout == '', (bad, p)


def test_broken_calls_do_not_kill_the_conversation(shop):
    w = shop('ON 1 call read "{\\"path\\":" end\n'
             'ON 2 expect result call_1 contains "no valid JSON" call nothing {} end\n'
             'ON 3 expect result call_2 contains "no tool" call read {"path":"../../etc/passwd"} end\n'
             'ON 4 expect result call_3 lacks "root:" say "sorry" end\n')
    rc, out = w.ask('go')
    assert (rc, out['text']) == (0, 'sorry'), out
    assert grows(w.gateway.requests())
    w.gateway.stop()


def test_approval_steering_and_resume(shop):
    w = shop('ON 1 call bash {"command":"touch made"} end\n'
             'ON 2 expect result call_1 lacks "denied" say "made" end\n'
             'ON 3 expect extends expect last "and now" say "nothing" end\n')
    t = w.start()
    t.put(type='user', text='make it')
    t.put(type='approve', id=t.until('approval')['id'])
    t.until('turn_end')
    assert (w.project / 'made').exists()
    t.kill()
    rc, out = w.ask('and now', '--resume', 'last')
    assert (rc, out['turn'], out['text']) == (0, 't0002', 'nothing'), out
    assert grows(w.gateway.requests())
    w.gateway.stop()


def test_what_changed_meanwhile_is_told(shop, tmp_path):
    """A conversation resumed on another day, with other instructions and a server that came late."""
    w = shop('ON 1 expect any "Mind the gap" say "one" end\n'
             'ON 2 expect extends expect last "the date is 2026-12-02" expect last "Mind the step" expect last "There is now: server t"'
             ' say "two" end\n'
             'ON 3 expect extends expect last "third" say "three" end\n')
    clock = tmp_path / 'clock'
    clock.write_text('1796083200000000\n')
    (w.project / 'AGENTS.md').write_text('Mind the gap.\n')
    env = {'OFFICINA_CLOCK': 'file:%s' % clock}
    assert w.ask('first', **env)[0] == 0
    clock.write_text('1796169700000000\n')
    (w.project / 'AGENTS.md').write_text('Mind the step.\n')
    (w.home / 'mcp.conf').write_text('[server t]\ncommand = /bin/true\n')
    assert w.ask('second', '--resume', 'last', **env)[0] == 0
    rc, out = w.ask('third', '--resume', 'last', **env)
    assert (rc, out['text']) == (0, 'three'), out
    third = json.loads(w.gateway.requests()[2])['messages'][-1]['content']
    assert third == 'third', third  # told once
    assert grows(w.gateway.requests())
    w.gateway.stop()


def test_killed_while_the_model_writes(shop):
    w = shop('ON 1 say "the first part " pause 4000 say "and more " pause 60000 end\n'
             'ON 2 expect any "the first part" expect last "go on" say "the rest" end\n')
    t = w.start()
    t.put(type='user', text='write')
    t.until('text', text='and more')  # at most the last second of an answer is lost
    time.sleep(0.3)
    t.kill()
    rc, out = w.ask('go on', '--resume', 'last')
    assert (rc, out['text']) == (0, 'the rest'), out
    w.gateway.stop()


def test_a_stop_leaves_a_valid_history(shop):
    w = shop('ON 1 call bash {"command":"sleep 60"} end\n'
             'ON 2 expect result call_1 contains "stopped" expect last "something else" say "fine" end\n')
    t = w.start('--allow', 'bash:sleep *')
    t.put(type='user', text='wait')
    t.until('tool_call')
    time.sleep(0.5)
    began = time.monotonic()
    t.put(type='stop')
    t.until('turn_end', state='interrupted')
    assert time.monotonic() - began < 20
    t.put(type='user', text='something else')
    t.until('turn_end', state='done')
    assert t.close() == 0
    w.gateway.stop()


def test_two_runs_of_one_script_are_equal(shop, tmp_path):
    seen = []
    for k in 'xy':
        (tmp_path / k).mkdir()
        w = Workshop(tmp_path / k, ENGINE + 'ON 1 think "hm" call glob {"pattern":"*"} end\nON 2 say "done" end\n')
        w.project = tmp_path / 'same'
        w.project.mkdir(exist_ok=True)
        (w.project / 'a').write_text('x')
        rc, lines = w.lines({'type': 'user', 'text': 'go'}, OFFICINA_CLOCK='fixed')
        assert rc == 0
        seen.append((json.dumps(lines), w.gateway.requests()))
        w.gateway.stop()
    assert seen[0] == seen[1]


def snapshots(w):
    """Has every turn the one at its end?"""
    db = sqlite3.connect('file:%s?mode=ro' % (w.home / 'officina.db'), uri=True)
    turns = [json.loads(meta) for meta, in db.execute('SELECT meta FROM turn')]
    db.close()
    return turns and all(t.get('tree_after') for t in turns)


def test_rewind_and_redo(shop):
    w = shop('ON 1 call edit {"path":"a","old":"one","new":"two"} end\nON 2 say "done" end\n'
             'ON 3 expect none "change it" say "fresh" end\n')
    (w.project / 'a').write_text('one\n')
    (w.project / 'mine').write_text('before\n')
    t = w.start('--allow', 'edit:**')
    t.put(type='user', text='change it')
    t.until('turn_end', state='done')
    assert (w.project / 'a').read_text() == 'two\n'
    wait_for('the snapshot at the end of the turn, which is taken in the background', lambda: snapshots(w))
    (w.project / 'mine').write_text('changed by the user\n')
    t.put(type='rewind', turn='t0001', dry_run=True)
    plan = t.until('rewind', dry_run=True)
    assert 'a' in json.dumps(plan['restore']) and 'mine' not in json.dumps(plan['restore']), plan
    t.put(type='rewind', turn='t0001')
    t.until('rewind', done=True, what='both')
    assert (w.project / 'a').read_text() == 'one\n'
    assert (w.project / 'mine').read_text() == 'changed by the user\n'
    t.put(type='redo')
    t.until('rewind', done=True, what='redo')
    assert (w.project / 'a').read_text() == 'two\n'
    t.put(type='rewind', turn='t0001')
    t.until('rewind', done=True, what='both')
    t.put(type='user', text='something else')
    t.until('turn_end', state='done')
    assert t.close() == 0
    w.gateway.stop()


@pytest.mark.parametrize('what', ['both', 'files'])
def test_redo_after_a_restart(shop, what):
    w = shop('ON 1 call edit {"path":"a","old":"one","new":"two"} end\nON 2 say "done" end\nON 3 %s say "and on" end\n'
             % 'expect any "change it"')
    (w.project / 'a').write_text('one\n')
    t = w.start('--allow', 'edit:**')
    t.put(type='user', text='change it')
    t.until('turn_end', state='done')
    wait_for('the snapshot at the end of the turn, which is taken in the background', lambda: snapshots(w))
    t.put(type='rewind', turn='t0001', what=what)
    t.until('rewind', done=True, what=what)
    assert (w.project / 'a').read_text() == 'one\n'
    t.kill()
    t = w.start('--resume', 'last')
    t.put(type='redo')
    t.until('rewind', done=True, what='redo')
    assert (w.project / 'a').read_text() == 'two\n'
    t.put(type='redo')  # there is nothing more to undo
    while 'no rewind to undo' not in t.until('notice')['text']:
        pass
    t.put(type='user', text='go on')
    t.until('turn_end', state='done')
    assert t.close() == 0
    w.gateway.stop()


def test_what_was_shown_survives_a_restart(shop):
    w = shop('ON 1 call read {"path":"a.txt"} end\nON 2 say "read" end\n'
             'ON 3 call edit {"path":"a.txt","start":2,"end":2,"new":"TWO"} end\n'
             'ON 4 expect result call_2 lacks "not read" say "done" end\n'
             'ON 5 call edit {"path":"b.txt","start":1,"end":1,"new":"X"} end\n'
             'ON 6 expect result call_3 contains "not read" say "sorry" end\n')
    (w.project / 'a.txt').write_text('one\ntwo\n')
    (w.project / 'b.txt').write_text('one\n')
    assert w.ask('look')[0] == 0
    assert w.ask('edit', '--resume', 'last', '--allow', 'edit:**')[1]['text'] == 'done'
    assert (w.project / 'a.txt').read_text() == 'one\nTWO\n'
    assert w.ask('that, too', '--resume', 'last', '--allow', 'edit:**')[1]['text'] == 'sorry'
    assert (w.project / 'b.txt').read_text() == 'one\n'
    w.gateway.stop()


def test_unreadable_input_is_told(shop):
    w = shop('ON 1 say "yes" end\n')
    p = w.run('--input-format', 'stream-json', '--output-format', 'stream-json',
              stdin='nonsense\n{"type":"fly"}\n{"type":"user"}\n[1]\n\n{"type":"user","text":"so?"}\n')
    lines = [json.loads(x) for x in p.stdout.splitlines()]
    assert p.returncode == 0 and [x['seq'] for x in lines] == list(range(1, len(lines) + 1))
    assert sum(x['type'] == 'notice' for x in lines) == 4
    assert lines[-1]['type'] == 'result' and lines[-1]['text'] == 'yes'
    w.gateway.stop()


def test_memory_is_recalled(shop):
    w = shop('ON 1 call read {"path":"big"} end\nON 2 say "read" end\n'
             'ON 3 call recall {"query":"frobnicator"} end\nON 4 expect result call_2 contains "4711" say "4711" end\n')
    (w.project / 'big').write_text('filler\n' * 50 + 'the frobnicator is 4711\n')
    assert w.ask('read it')[0] == 0
    rc, out = w.ask('what was it?')
    assert (rc, out['text']) == (0, '4711')
    w.gateway.stop()


def test_the_state_folder_is_private(shop):
    w = shop('ON 1 say "hi" end\n')
    assert w.ask('hello')[0] == 0
    for root, dirs, files in os.walk(w.home):
        for name in [root] + [os.path.join(root, f) for f in files]:
            assert os.stat(name).st_mode & 0o077 == 0, name
    db = sqlite3.connect(w.home / 'officina.db')
    assert db.execute('PRAGMA integrity_check').fetchone() == ('ok',)
    w.gateway.stop()
    os.rename(w.home, str(w.home) + '.real')
    os.symlink(str(w.home) + '.real', w.home)
    p = w.run('-p', 'x')
    assert p.returncode == 2 and 'link' in p.stderr


def test_money_and_couplings(shop):
    w = shop('ON 1 usage 3000 1000 0 say "dear" end\n')
    w.home.mkdir(mode=0o700)
    (w.home / 'couplings.conf').write_text(
        '[coupling cloud]\nkind = openai\nbase_url = %s/v1\nprice_in = 10\nprice_out = 10\ncap_session = 0.06\n'
        'window = 32768\ndefault = yes\nkey = env:THE_KEY\n' % w.gateway.url)
    p = w.run('-p', 'one', '--output-format', 'json')
    assert p.returncode == 2 and 'THE_KEY' in p.stderr
    rc, out = w.ask('one', THE_KEY='secret-of-the-test')
    assert (rc, round(out['money'], 3)) == (0, 0.04), out
    rc, out = w.ask('two', '--resume', 'last', THE_KEY='secret-of-the-test')
    assert (rc, out['status']) == (7, 'cap_reached'), out
    for root, _, files in os.walk(w.home):
        for f in files:
            assert b'secret-of-the-test' not in open(os.path.join(root, f), 'rb').read()
    (w.home / 'couplings.conf').write_text('[coupling a]\nbase_url = http://x\nkindd = openai\n')
    p = w.run('-p', 'one')
    assert p.returncode == 2 and 'couplings.conf:3' in p.stderr and 'kind' in p.stderr
    w.gateway.stop()
