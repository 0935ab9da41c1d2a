"""kill -9 of the other processes: gateway, store, vitriold. The port never refuses."""
import signal
import threading
import time

import pytest

from harness import stream
from harness.appliance import alive, wait_for, within
from harness.knock import Knocker
from harness.stream import check_transcript
from harness.text import prose, short

SETS = {'engine.ctx_tokens': 2048, 'engine.slots': 4}


def test_gateway_killed(make):
    """Open streams break off without a terminator; waiting connections are served by the next gateway, without a refusal."""
    a = make(sets=SETS)
    want = a.text(short(1), 300)
    s = a.stream(short(1), 300)
    s.run(until_events=20)
    engine = a.child('engine0')
    with Knocker(a.port) as k:
        time.sleep(0.2)
        old = a.kill('gateway')
        t0 = time.monotonic()
        s.run()
        wait_for('a new gateway', lambda: a.children().get('gateway') not in (None, old), 10)
        assert a.text(short(1), 300) == want
        back = time.monotonic() - t0
        time.sleep(0.5)
    assert s.end == 'cut' and b'[DONE]' not in s.r.raw
    assert k.count('refused') == 0 and k.count('answered') > 10
    assert k.count('answered') + k.count('cut') == len(k.results), k.results
    assert a.child('engine0') == engine, 'the engine was restarted with the gateway'
    print('\ngateway killed: next whole answer after %.2f s' % back)


def test_repeated_request_after_gateway_death_starts_warm(make):
    a = make(sets=SETS)
    prompt = prose(5000)
    s = a.stream(prompt, 300)
    s.run(until_events=10)
    a.kill('gateway')
    s.run()
    r = wait_for('the next gateway answers', lambda: _try_completion(a, prompt), 15)
    assert r['timings']['cache_n'] >= r['tokens_evaluated'] - 256, r['timings']


def _try_completion(a, prompt):
    try:
        r = stream.post(a.port, '/completion', {'prompt': prompt, 'n_predict': 4, 'temperature': 0})
        return r.json() if r.status == 200 else None
    except (OSError, stream.Cut):
        return None


def test_store_killed(make):
    """Streams do not notice; the store comes back and saves again."""
    a = make(sets=SETS)
    want = a.text(short(2), 400)
    s = a.stream(short(2), 400)
    s.run(until_events=20)
    old = a.kill('store')
    s.run()
    check_transcript(s, ('normal',))
    assert s.text == want
    wait_for('a new store', lambda: a.children().get('store') not in (None, old), 10)
    prompt = prose(4000, 3000)
    a.text(prompt, 4)
    wait_for('checkpoints again', lambda: a.ctl('checkpoint', check=False)[0] == 0, 15, 0.3)
    a.next_generation('engine0', a.kill('engine0'))
    r = stream.post(a.port, '/completion', {'prompt': prompt, 'n_predict': 4, 'temperature': 0}).json()
    assert r['timings']['cache_n'] >= r['tokens_evaluated'] - 256, r['timings']


def test_vitriold_killed(make):
    """Every stream ends by an error event and its terminator at once; nobody is refused, all are answered."""
    a = make(sets=SETS, holder=True)
    want = a.text(short(3), 40)
    streams = [a.stream(short(3), 1500), a.stream(short(4), 1500, path='/v1/chat/completions'),
               a.stream(short(5), 1500, path='/completion', n_predict=1500)]
    plain = {}

    def ask():
        r = stream.post(a.port, '/v1/completions', {'prompt': short(6), 'max_tokens': 1500, 'temperature': 0})
        r.read()
        plain['r'] = r

    t = threading.Thread(target=ask)
    t.start()
    for s in streams:
        s.run(until_events=10)
    children = a.children()
    with Knocker(a.port) as k:
        time.sleep(0.2)
        old = a.kill('vitriold')
        t0 = time.monotonic()
        for s in streams:
            s.run()
        ended = time.monotonic() - t0
        # by the kernel's signal; without it they would miss their lifeline after 5 s
        within('engine and store are gone at once', lambda: not (alive(children['engine0']) or alive(children['store'])), 4.5)
        wait_for('the old gateway is gone', lambda: not alive(children['gateway']), 4)
        t.join(60)
        a.wait_ready()
        time.sleep(0.3)
    for s in streams:
        assert check_transcript(s, ('error',)) == 'error'
    assert ended < 4.5, 'the streams ended after %.2f s' % ended
    stream.check_error(503, plain['r'].headers, plain['r'].raw)
    assert a.pid != old
    assert k.count('answered') == len(k.results) and len(k.results) > 20, [r for r in k.results if r[0] != 'answered']
    assert a.text(short(3), 40) == want
    print('\nvitriold killed: streams ended after %.2f s, slowest connection of the gap %.2f s' % (ended, k.slowest()))


def test_vitriold_killed_without_holder(make):
    """Without a socket holder the port is free for the next start, and no process is left over."""
    a = make(sets=SETS)
    children = a.children()
    assert set(children) >= {'engine0', 'store', 'gateway'}
    a.kill('vitriold')
    a.proc.wait()
    within('no process is left', lambda: not any(alive(p) for p in children.values()), 4.5)  # else after 5 s
    a.start()
    assert set(a.children()) >= {'engine0', 'store', 'gateway'}
    assert a.text(short(1), 8)


def test_drain_on_sigterm(make):
    """Ctrl-C or SIGTERM: a running answer is finished, new ones are refused politely, exit 0."""
    a = make(sets=SETS)
    want = a.text(short(7), 200)
    s = a.stream(short(7), 200)
    s.run(until_events=5)
    a.proc.send_signal(signal.SIGTERM)
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal'
    assert s.text == want
    assert a.proc.wait(150) == 0
    assert not a.children()


def test_bounce_keeps_streams(make):
    """vitriolctl bounce: two streams go on, six queued requests are answered; nothing lost, nothing twice."""
    a = make(sets=dict(SETS, **{'engine.slots': 2, 'engine.drain_s': 1}))
    want = {i: a.text(short(i), 250) for i in range(8)}
    got = {}

    def ask(i):
        s = a.stream(short(i), 250)
        s.run()
        got[i] = s

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    time.sleep(0.3)
    old = a.child('engine0')
    a.ctl('bounce', 'engine0')
    for t in threads:
        t.join(120)
    assert a.child('engine0') != old
    for i in range(8):
        assert check_transcript(got[i], ('normal',)) == 'normal'
        assert got[i].text == want[i], i


def test_outside_sigterm_to_a_child_changes_nothing(make):
    a = make(sets=SETS)
    before = a.children()
    for name in ('engine0', 'gateway', 'store'):
        a.kill(name, signal.SIGTERM)
    time.sleep(1)
    assert a.children() == before
    assert a.text(short(1), 8)


def test_resume_off(make):
    """Headers out: error event and terminator; headers not out: a plain 503 with Retry-After."""
    a = make(sets=dict(SETS, **{'gateway.resume': 'off'}))
    s = a.stream(short(1), 1500)
    s.run(until_events=10)
    plain = {}

    def ask():
        r = stream.post(a.port, '/v1/completions', {'prompt': short(2), 'max_tokens': 1500, 'temperature': 0})
        r.read()
        plain['r'] = r

    t = threading.Thread(target=ask)
    t.start()
    time.sleep(0.3)
    a.kill('engine0')
    t0 = time.monotonic()
    s.run()
    t.join(60)
    assert time.monotonic() - t0 < 12
    assert check_transcript(s, ('error',)) == 'error'
    stream.check_error(503, plain['r'].headers, plain['r'].raw)
    a.wait_ready()
    assert a.text(short(1), 8)


@pytest.mark.parametrize('name', ['engine0', 'store', 'gateway'])
def test_descriptors_of_children(make, name):
    """A child inherits its four descriptors and nothing of vitriold's."""
    import os
    a = make(sets=SETS)
    fds = {}
    for fd in os.listdir('/proc/%d/fd' % a.child(name)):
        try:
            fds[int(fd)] = os.readlink('/proc/%d/fd/%s' % (a.child(name), fd))
        except OSError:
            pass
    assert fds[0] == '/dev/null'
    assert fds[1].startswith('pipe:') and fds[2] == fds[1]
    mine = {os.readlink('/proc/%d/fd/%s' % (a.pid, fd)) for fd in os.listdir('/proc/%d/fd' % a.pid)}
    pipes = {v for n, v in fds.items() if n > 2 and v.startswith(('pipe:', 'socket:'))}
    shared = pipes & mine
    http = 1 if name == 'gateway' else 0
    assert len(shared) <= http, (name, {n: v for n, v in fds.items() if v in shared})
