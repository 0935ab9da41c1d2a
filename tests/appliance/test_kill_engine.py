"""kill -9 and SIGSTOP of the engine at many moments: every client gets exactly the undisturbed greedy text."""
import signal
import threading
import time

import pytest

from harness import stream
from harness.appliance import Appliance, wait_for
from harness.stream import check_transcript
from harness.text import prose, short

N = 140  # tokens of each answer; kills come within the first 60
HANG_S = 3


@pytest.fixture(scope='module')
def app():
    with Appliance(sets={'engine.ctx_tokens': 4096, 'engine.slots': 8, 'engine.hang_budget_s': HANG_S}) as a:
        a.reference = {}
        yield a


def reference(app, prompt, n=N):
    if (prompt, n) not in app.reference:
        t0 = time.monotonic()
        text = app.text(prompt, n)
        app.reference[prompt, n] = (text, time.monotonic() - t0)
    return app.reference[prompt, n]


def kill_and_reset(app):
    """kill -9, and the operator's `reset`, so that a long row of kills does not wait for the grown backoff."""
    old = app.kill('engine0')
    wait_for('vitriold has seen it', lambda: app.children().get('engine0') != old, 10)
    app.ctl('reset', 'engine0', check=False)
    return old


class Plain(threading.Thread):
    """A non-streaming client."""

    def __init__(self, app, prompt, n):
        super().__init__(daemon=True)
        self.app, self.prompt, self.n = app, prompt, n
        self.start()

    def run(self):
        r = stream.post(self.app.port, '/v1/completions', {'prompt': self.prompt, 'max_tokens': self.n, 'temperature': 0})
        self.status, self.body = r.status, r.json()


class Reader(threading.Thread):
    """A streaming client that reads to the end."""

    def __init__(self, app, prompt, n, path='/v1/completions'):
        super().__init__(daemon=True)
        self.s = app.stream(prompt, n, path=path)
        self.start()

    def run(self):
        self.s.run()


@pytest.mark.parametrize('at', range(60))
def test_one_stream(app, at):
    app.wait_ready()
    want, _ = reference(app, short(at))
    s = app.stream(short(at), N, stream_options={'include_usage': True})
    s.run(until_events=at)
    assert s.end is None, 'the answer was over before the kill'
    kill_and_reset(app)
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal'
    assert s.text == want
    assert s.usage['completion_tokens'] == N


@pytest.mark.parametrize('at', range(0, 60, 3))
def test_one_plain(app, at):
    app.wait_ready()
    want, took = reference(app, short(at))
    c = Plain(app, short(at), N)
    time.sleep(took * (at + 1) / 100)
    assert c.is_alive(), 'the answer was over before the kill'
    kill_and_reset(app)
    c.join(120)
    assert c.status == 200, c.body
    assert c.body['choices'][0]['text'] == want
    assert c.body['usage']['completion_tokens'] == N


@pytest.mark.parametrize('at', range(0, 60, 3))
def test_four_clients(app, at):
    """Two streams of different kinds and two plain ones at once."""
    app.wait_ready()
    prompts = [short(at + 100 + i) for i in range(4)]
    want = [reference(app, p)[0] for p in prompts[:3]]
    want_chat = app.stream(prompts[3], N, path='/v1/chat/completions').run().text
    lead = app.stream(prompts[0], N)
    others = [Reader(app, prompts[1], N), Plain(app, prompts[2], N), Reader(app, prompts[3], N, '/v1/chat/completions')]
    lead.run(until_events=at)
    assert lead.end is None and others[1].is_alive()
    kill_and_reset(app)
    lead.run()
    for t in others:
        t.join(120)
    for s in (lead, others[0].s, others[2].s):
        assert check_transcript(s, ('normal',)) == 'normal'
    assert lead.text == want[0]
    assert others[0].s.text == want[1]
    assert others[1].status == 200 and others[1].body['choices'][0]['text'] == want[2]
    assert others[2].s.text == want_chat


@pytest.mark.parametrize('part', [0.05, 0.3, 0.6, 0.9])
@pytest.mark.parametrize('streaming', [True, False], ids=['stream', 'plain'])
def test_in_prefill(app, part, streaming):
    """The prompt was never seen before the kill; its undisturbed answer is computed afterwards, from nothing."""
    app.wait_ready()
    start = int(part * 100000) + (9000 if streaming else 0)
    t = stream.post(app.port, '/completion', {'prompt': prose(9000, start + 3000), 'n_predict': 1, 'cache_prompt': False}).json()
    assert t['tokens_evaluated'] > 1800
    prefill_s = t['timings']['prompt_ms'] / 1000
    prompt = 'Book %s. ' % part + prose(9000, start)
    c = Reader(app, prompt, 24) if streaming else Plain(app, prompt, 24)
    time.sleep(prefill_s * part)
    assert c.is_alive(), 'the answer was over before the kill'
    if streaming:
        assert not c.s.times, 'prefill was over before the kill'
    kill_and_reset(app)
    c.join(120)
    if streaming:
        assert check_transcript(c.s, ('normal',)) == 'normal'
        got = c.s.text
    else:
        assert c.status == 200, c.body
        got = c.body['choices'][0]['text']
    assert got == app.text(prompt, 24, cache_prompt=False)


def test_checkpointed_prompt_is_reused(app):
    """Reused tokens after the restart >= prompt - 256, mid-stream and for a new request."""
    app.wait_ready()
    prompt = prose(6000, 90000)
    want = app.text(prompt, N)
    app.ctl('checkpoint')
    s = app.stream(prompt, N, stream_options={'include_usage': True})
    s.run(until_events=5)
    kill_and_reset(app)
    s.run()
    check_transcript(s, ('normal',))
    assert s.text == want
    n_prompt = s.usage['prompt_tokens']
    assert n_prompt > 1200
    assert s.usage['prompt_tokens_details']['cached_tokens'] >= n_prompt - 256, s.usage
    kill_and_reset(app)
    app.wait_ready()
    a = stream.post(app.port, '/completion', {'prompt': prompt, 'n_predict': 8, 'temperature': 0}).json()
    assert a['timings']['cache_n'] >= a['tokens_evaluated'] - 256, a['timings']
    assert want.startswith(a['content'])


def test_usage_counts_once(app):
    """The engine counts what it computes, the client what it got: a resumed request is no longer than asked."""
    app.wait_ready()
    resumed = app.metric('vitriol_requests_resumed_total')
    s = app.stream('A story. ' + short(3), 80, stream_options={'include_usage': True})
    s.run(until_events=30)
    kill_and_reset(app)
    s.run()
    assert s.usage['completion_tokens'] == 80 and s.finish == 'length'
    wait_for('the counter moves', lambda: app.metric('vitriol_requests_resumed_total') == resumed + 1, 5)


@pytest.mark.parametrize('at', [0, 7, 25])
def test_stopped_engine(app, at):
    """SIGSTOP: declared hung after the budget, killed, resumed."""
    app.wait_ready()
    want, _ = reference(app, short(at + 40))
    s = app.stream(short(at + 40), N)
    s.run(until_events=at)
    assert s.end is None
    old = app.kill('engine0', signal.SIGSTOP)
    t0 = time.monotonic()
    have = len(s.times)
    s.run(until_events=have + 8)  # what was under way already may still come
    resumed_after = time.monotonic() - t0
    s.run()
    check_transcript(s, ('normal',))
    assert s.text == want
    assert app.child('engine0') != old
    print('\nSIGSTOP at token %d: hang budget %d s, tokens again after %.2f s' % (at, HANG_S, resumed_after))
    assert resumed_after < HANG_S + 8


def test_health_during_a_hang(app):
    """/health answers at once throughout, and says 503 from the moment of `hung`; vitriolctl answers within 200 ms."""
    app.wait_ready()
    s = app.stream(short(55), N)
    s.run(until_events=3)
    app.kill('engine0', signal.SIGSTOP)
    t0, slowest, ctl_slowest, codes = time.monotonic(), 0.0, 0.0, []
    while time.monotonic() - t0 < HANG_S + 3:
        t = time.monotonic()
        codes.append(stream.get(app.port, '/health').status)
        slowest = max(slowest, time.monotonic() - t)
        t = time.monotonic()
        app.ctl('status', check=False)
        ctl_slowest = max(ctl_slowest, time.monotonic() - t)
        time.sleep(0.05)
    s.run()
    check_transcript(s, ('normal',))
    assert 503 in codes, 'never unhealthy during a hang'
    assert slowest < 0.25, slowest
    assert ctl_slowest < 0.5, ctl_slowest
