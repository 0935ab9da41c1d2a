"""Fault cases with the scripted engine: V01 to V05, V13, V14, and the smaller manners of a bad engine."""
import json
import os
import signal
import socket
import tempfile
import threading
import time

import pytest

from harness import stream, stub
from harness.appliance import alive, wait_for
from harness.stream import check_transcript

SETS = {'engine.ctx_tokens': 4096, 'engine.slots': 4, 'engine.hang_budget_s': 3}


@pytest.fixture
def fault(make):
    """fault(options, sets): a stub whose fault happens in one generation only."""
    files = []

    def start(options, sets=None, wait=True):
        fd, path = tempfile.mkstemp(prefix='vtonce', dir='/tmp')
        os.close(fd)
        files.append(path)
        return make(engine='stub', stub_args=options + ',once=' + path, sets=dict(SETS, **(sets or {})), wait=wait)

    yield start
    for f in files:
        if os.path.exists(f):
            os.unlink(f)


def engine(app):
    return next(c for c in app.ctl_json('status', check=False)['children'] if c['name'] == 'engine0')


def test_undisturbed_stub_says_what_the_reference_says(make):
    a = make(engine='stub', sets=SETS)
    s = a.stream('Hello', 50, seed=11)
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal'
    assert s.text == stub.text(a, 11, 50)
    assert stub.text(a, 11, 50) != stub.text(a, 12, 50)


def test_v01_exit_0_is_a_failure(fault):
    a = fault('exit0-after=5,rate=100')
    s = a.stream('Hello', 50, seed=1)
    pauses = []

    def next_one():
        e = engine(a)
        pauses.append(e['next_start_ms'])
        return e['gen'] > 1
    wait_for('the next generation', next_one, 5)
    assert max(pauses) <= 1200, 'that is not the first pause'
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal'
    assert s.text == stub.text(a, 1, 50)
    assert a.metric('vitriol_child_restarts_total', {'child': 'engine0', 'class': 'unexpected_exit'}) == 1


def test_v02_killed_at_every_token(make):
    a = make(engine='stub', stub_args='rate=150', sets=SETS)
    want = stub.text(a, 5, 40)
    for i in range(0, 40):
        a.wait_ready()
        s = a.stream('Hello %d' % i, 40, seed=5)
        s.run(until_events=i)
        old = a.kill('engine0')
        wait_for('seen', lambda: a.children().get('engine0') != old, 5)
        a.ctl('reset', 'engine0', check=False)
        s.run()
        assert check_transcript(s, ('normal',)) == 'normal', i
        assert s.text == want, i


def test_v02_without_resume(make):
    a = make(engine='stub', stub_args='rate=150', sets=dict(SETS, **{'gateway.resume': 'off'}))
    for i in range(0, 40, 4):
        a.wait_ready()
        s = a.stream('Hello', 400, seed=5)
        s.run(until_events=i)
        old = a.kill('engine0')
        t0 = time.monotonic()
        s.run()
        assert time.monotonic() - t0 < 15
        assert check_transcript(s, ('error',)) == 'error'
        assert stub.text(a, 5, 400).startswith(s.text)
        wait_for('seen', lambda: a.children().get('engine0') != old, 5)
        a.ctl('reset', 'engine0', check=False)


def test_v03_hang_with_a_healthy_heartbeat(fault):
    a = fault('heartbeat-only=10,rate=100')
    secret = 'xyzzy plugh the lighthouse keeper'
    old = a.child('engine0')
    s = a.stream(secret, 50, seed=2)
    s.run(until_events=9)
    t0, codes, slowest = time.monotonic(), [], 0.0
    while a.children().get('engine0') == old:
        t = time.monotonic()
        codes.append(stream.get(a.port, '/health').status)
        slowest = max(slowest, time.monotonic() - t)
        assert time.monotonic() - t0 < 40, 'never declared hung'
        time.sleep(0.02)
    after = time.monotonic() - t0
    assert 2.0 <= after, 'killed after %.1f s with a budget of 3' % after
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal'
    assert s.text == stub.text(a, 2, 50)
    assert slowest < 1.5, 'who waits for the engine waits twice as long: %.2f s' % slowest
    assert a.metric('vitriol_hung_total') == 1
    for path in [a.log_path] + [os.path.join(r, f) for r, _, fs in os.walk(a.state_dir) for f in fs]:
        with open(path, 'rb') as f:
            assert b'lighthouse keeper' not in f.read(), 'the prompt is in ' + path


def test_v04_slow_prefill_is_not_a_hang(make):
    """Every step takes half of the budget; the prompt takes several times the budget."""
    a = make(engine='stub', stub_args='slow-prefill=1500', sets=dict(SETS, **{'engine.ubatch_tokens': 256}))
    old = a.child('engine0')
    s = a.stream('word ' * 1500, 5, seed=3)
    small = a.stream('Hi', 5, seed=4)
    t0 = time.monotonic()
    small.run()
    s.run()
    assert time.monotonic() - t0 > 6, 'the prompt was not slow at all'
    assert check_transcript(s, ('normal',)) == 'normal' and check_transcript(small, ('normal',)) == 'normal'
    assert small.times[0] < s.times[0], 'the small request waited for the long one'
    assert a.child('engine0') == old
    assert s.text == stub.text(a, 3, 5)


def test_v05_slow_load_is_no_fault(make):
    a = make(engine='stub', stub_args='load=8000,ticks=16', sets=dict(SETS, **{'engine.load_stall_s': 4}), wait=False)
    wait_for('HTTP answers', lambda: _status(a) is not None, 10)
    seen = []
    t0 = time.monotonic()
    while time.monotonic() - t0 < 80:
        r = stream.post(a.port, '/v1/completions', {'prompt': 'x', 'max_tokens': 1})
        r.read()
        if r.status == 200:
            break
        stream.check_error(503, r.headers, r.raw)
        assert r.json()['error']['message'] == 'Loading model'
        seen.append((time.monotonic(), int(r.headers['retry-after'])))
        time.sleep(0.3)
    ready = time.monotonic()
    assert r.status == 200 and len(seen) > 10
    assert engine(a)['restarts'] == 0
    for at, promised in seen[len(seen) // 3:]:
        assert promised >= 1 and promised <= (ready - at) * 1.5 + 2, (promised, ready - at)


def _status(a):
    try:
        return stream.get(a.port, '/health').status
    except OSError:
        return None


def test_v05_stalled_load_is_killed(fault):
    a = fault('stall-load=40,load=200,ticks=10', {'engine.load_stall_s': 2}, wait=False)
    first = a.child('engine0')
    t0 = time.monotonic()
    wait_for('the stalled load is given up', lambda: not alive(first), 10)
    assert 1.5 < time.monotonic() - t0
    a.wait_ready(20)
    assert a.child('engine0') != first


def test_v13_stopped_supervisor(make):
    """SIGSTOP of vitriold for longer than every budget: nobody is restarted, nothing fires early."""
    a = make(engine='stub', stub_args='rate=20', sets=SETS)
    before = a.children()
    s = a.stream('Hello', 300, seed=6)
    s.run(until_events=5)
    os.kill(a.pid, signal.SIGSTOP)
    time.sleep(8)
    os.kill(a.pid, signal.SIGCONT)
    time.sleep(4)
    assert a.children() == before
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal'
    assert s.text == stub.text(a, 6, 300)
    assert a.children() == before


def test_v13_engine_stopped_for_less_than_the_budget(make):
    a = make(engine='stub', stub_args='rate=50', sets=dict(SETS, **{'engine.hang_budget_s': 6}))
    before = a.children()
    s = a.stream('Hello', 100, seed=7)
    s.run(until_events=10)
    os.kill(before['engine0'], signal.SIGSTOP)
    time.sleep(3)
    os.kill(before['engine0'], signal.SIGCONT)
    s.run()
    assert s.text == stub.text(a, 7, 100) and a.children() == before


@pytest.mark.parametrize('phase', ['queued', 'prefill', 'decode'])
def test_v14_cancel_touches_one_request(make, phase):
    slots = 1 if phase == 'queued' else 2
    args = 'rate=60' + (',slow-prefill=200' if phase == 'prefill' else '')
    a = make(engine='stub', stub_args=args, sets=dict(SETS, **{'engine.slots': slots, 'engine.ubatch_tokens': 32}))
    sa = a.stream('Hello', 300, seed=8)
    sa.run(until_events=10)
    cancelled = a.metric('vitriol_requests_cancelled_total')
    if phase == 'queued':
        sock = _raw_stream(a, 'Waiting', 50)
        wait_for('it waits', lambda: a.metric('llamacpp:requests_deferred') == 1, 4)
    else:
        sock = _raw_stream(a, 'word ' * 800 if phase == 'prefill' else 'Bye', 3000)
        if phase == 'decode':
            while b'data: {' not in sock.recv(4096):
                pass
        wait_for('it is at work', lambda: processing(a) == 2, 4)
    sock.close()
    t0 = time.monotonic()
    wait_for('the cancel is counted', lambda: a.metric('vitriol_requests_cancelled_total', absent=0) == cancelled + 1, 4)
    if phase != 'queued':
        wait_for('one slot is free', lambda: processing(a) <= 1, 2)
        assert time.monotonic() - t0 < 25  # to its end it would have taken 50 s
    sa.run()
    assert check_transcript(sa, ('normal',)) == 'normal'
    assert sa.text == stub.text(a, 8, 300)
    gaps = [y - x for x, y in zip(sa.times, sa.times[1:])]
    assert max(gaps) < 3.0, 'the other stream stood still for %.2f s' % max(gaps)


def processing(a):
    return sum(s['is_processing'] for s in stream.get(a.port, '/slots').json())


def _raw_stream(a, prompt, n):
    body = json.dumps({'prompt': prompt, 'max_tokens': n, 'stream': True, 'seed': 1}).encode()
    s = stream.connect(a.port)
    s.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n' %
              len(body) + body)
    return s


def test_v15_a_client_that_never_reads(make):
    """Its sequence pauses; the others' pace and the gateway's memory do not change."""
    a = make(engine='stub', stub_args='rate=200', sets=SETS)
    alone = _pace_of_three(a)
    stuck = _raw_stream(a, 'I do not read', 4000)
    stuck.setsockopt(6, 10, 1)  # a small window: TCP_WINDOW_CLAMP
    beside = _pace_of_three(a)
    assert beside < 0.2 + 4 * alone, (beside, alone)
    stuck.close()


def _pace_of_three(a):
    """Three streams at once: the pause that all but one in a hundred of theirs are shorter than."""
    others = [a.stream('Hello %d' % i, 600, seed=20 + i) for i in range(3)]
    threads = [threading.Thread(target=s.run) for s in others]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    worst = 0
    for i, s in enumerate(others):
        assert s.text == stub.text(a, 20 + i, 600)
        gaps = sorted(y - x for x, y in zip(s.times, s.times[1:]))
        worst = max(worst, gaps[int(len(gaps) * 0.99)])
    return worst


def test_clients_that_never_read_give_their_slots_up(make):
    """All slots held by clients that do not read: who comes next is served seconds later, not a minute."""
    a = make(sets=dict(SETS, **{'engine.slots': 2, 'engine.ctx_tokens': 4096}))
    stuck = []
    for i in range(2):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(('127.0.0.1', a.port))
        body = json.dumps({'messages': [{'role': 'user', 'content': 'Count %d' % i}], 'max_tokens': 3500, 'stream': True,
                           'ignore_eos': True, 'logprobs': True, 'top_logprobs': 20}).encode()
        s.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n'
                  b'Content-Length: %d\r\n\r\n' % len(body) + body)
        stuck.append(s)
    wait_for('both slots are taken', lambda: processing(a) == 2, 10)
    _stands_still(a)
    t0 = time.monotonic()
    assert a.text('A short question', 8)
    waited = time.monotonic() - t0
    assert waited < 40, 'served after %.1f s' % waited
    for s in stuck:
        s.close()


def _stands_still(a):
    """Until the engine has made no token for some seconds."""
    seen = [-1.0, 0.0]

    def still():
        n = a.metric('llamacpp:tokens_predicted_total', absent=0)
        if n != seen[0]:
            seen[:] = n, time.monotonic()
        return n > 0 and time.monotonic() - seen[1] > 3
    wait_for('nobody reads', still, 60, 0.2)


def test_segv_is_named_with_its_signal(fault):
    a = fault('segv-at=8,rate=100')
    s = a.stream('Hello', 30, seed=9)
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal' and s.text == stub.text(a, 9, 30)
    assert a.metric('vitriol_child_restarts_total', {'child': 'engine0', 'class': 'signal'}) == 1


def test_kill_without_evidence_is_not_called_oom(make):
    a = make(engine='stub', sets=SETS)
    a.next_generation('engine0', a.kill('engine0'))
    assert a.metric('vitriol_child_restarts_total', {'child': 'engine0', 'class': 'sigkill_unknown'}) == 1


def test_option_not_applied_fails_the_launch(make):
    a = make(engine='stub', stub_args='drop-option=engine.slots', sets=SETS, wait=False)
    c = wait_for('failed', lambda: _failed(a), 20)
    assert 'engine.slots' in c['detail'] and c['class'] == 'config', c
    assert a.ctl('status', check=False)[0] == 70


def test_lie_about_an_option_fails_the_launch(make):
    a = make(engine='stub', stub_args='lie-effective=engine.ubatch_tokens', sets=SETS, wait=False)
    c = wait_for('failed', lambda: _failed(a), 20)
    assert 'engine.ubatch_tokens' in c['detail'], c


def _failed(a):
    try:
        c = engine(a)
    except (AssertionError, ValueError, StopIteration, KeyError):
        return None
    return c if c['state'] == 'failed' else None


def test_failed_selftest_is_never_ready(make):
    a = make(engine='stub', stub_args='fail-selftest', sets=SETS, wait=False)
    wait_for('HTTP answers', lambda: _status(a) is not None, 10)
    t0 = time.monotonic()
    while time.monotonic() - t0 < 4:
        assert _status(a) == 503
        time.sleep(0.05)


def test_engine_deaf_to_stop_is_stopped_anyway(make):
    a = make(engine='stub', stub_args='ignore-term', sets=dict(SETS, **{'engine.drain_s': 2}))
    pid = a.child('engine0')
    a.ctl('stop', 'engine0')
    assert a.ctl('status', check=False)[0] in (69, 75)
    wait_for('gone', lambda: not alive(pid), 30)


def test_grandchild_goes_with_the_engine(make):
    a = make(engine='stub', stub_args='grandchild', sets=SETS)
    pid = a.child('engine0')
    kids = _descendants(pid)
    assert kids, 'the stub made no grandchild'
    a.kill('engine0')
    wait_for('the grandchild is gone', lambda: not any(alive(k) for k in kids), 10)
    a.wait_ready()
    kids = _descendants(a.child('engine0'))
    assert kids and a.stop() == 0
    wait_for('the next one went with the appliance', lambda: not any(alive(k) for k in kids), 10)


def _descendants(pid):
    out = []
    for p in os.listdir('/proc'):
        if p.isdigit():
            try:
                with open('/proc/%s/stat' % p) as f:
                    st = f.read().rpartition(')')[2].split()
            except OSError:
                continue
            if int(st[1]) == pid:
                out.append(int(p))
    return out


def test_flood_of_log_lines_blocks_nobody(make):
    a = make(engine='stub', stub_args='flood-log,load=200,ticks=10', sets=SETS)
    t0 = time.monotonic()
    a.ctl('status')
    assert time.monotonic() - t0 < 10
    assert os.path.getsize(a.log_path) < 4 << 20, 'the flood went through whole'


def test_frames_sent_twice_change_nothing(make):
    a = make(engine='stub', stub_args='double-send,rate=200', sets=SETS)
    s = a.stream('Hello', 60, seed=10)
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal' and s.text == stub.text(a, 10, 60)


def test_corrupt_piece_is_refused_by_the_store(make):
    """The k-th piece of a save carries a wrong byte: the store refuses it, the next save is whole, serving goes on."""
    a = make(engine='stub', stub_args='corrupt-chunk=1,price=4096', sets=SETS)
    prompt = 'word ' * 700
    assert a.completion(prompt, 4, seed=1)
    wait_for('the damaged piece is counted', lambda: a.metric('vitriol_ckpt_refused_total', absent=0) >= 1, 10, 0.2)
    store = a.child('store')
    a.completion(prompt + 'more ' * 300, 4, seed=2)
    wait_for('a later save', lambda: a.metric('vitriol_ckpt_saves_total', absent=0) >= 1, 15, 0.2)
    assert a.child('store') == store


def test_crash_loop_opens_the_breaker(make):
    """Five failures without reaching ready: failed, with a time to try again; the port still answers."""
    a = make(engine='stub', stub_args='fail-selftest', sets=dict(SETS, **{'supervisor.breaker': 'on'}), wait=False)
    c = wait_for('the breaker opens', lambda: _failed(a), 60, 0.3)
    assert c['class'] or c['detail']
    r = stream.post(a.port, '/v1/completions', {'prompt': 'x'})
    r.read()
    stream.check_error(503, r.headers, r.raw)
