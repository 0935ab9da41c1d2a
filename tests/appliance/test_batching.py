"""Batching changes nothing it may not: the same greedy text alone, beside seven others, and at any prefill chunk size."""
import threading

import pytest

from harness.appliance import Appliance, wait_for
from harness.stream import get
from harness.text import prose, short

LONG = prose(5000, 20000)
SETS = {'engine.ctx_tokens': 2048, 'engine.slots': 8}


@pytest.fixture(scope='module')
def app():
    with Appliance(sets=SETS) as a:
        yield a


def test_alone_and_with_seven_neighbours(app):
    prompts = [LONG] + [short(i) for i in range(6)] + [prose(1500, 60000)]
    alone = [app.text(p, 60, cache_prompt=False) for p in prompts]
    got = [None] * 8

    def ask(i):
        got[i] = app.text(prompts[i], 60, cache_prompt=False)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(8):
        assert got[i] == alone[i], 'prompt %d' % i


def test_the_slots_are_real(app):
    """Eight requests are worked on at the same time."""
    streams = [app.stream(short(i + 20), 500, ignore_eos=True) for i in range(8)]
    wait_for('all of them are at work', lambda: sum(s['is_processing'] for s in get(app.port, '/slots').json()) == 8)
    for s in streams:
        assert s.run().end == 'complete'


@pytest.mark.parametrize('chunk', [1, 32, 250, 1024])
def test_prefill_chunk_size(app, make, chunk):
    b = make(sets=dict(SETS, **{'engine.ubatch_tokens': chunk, 'engine.slots': 2}))
    assert b.text(LONG, 40) == app.text(LONG, 40, cache_prompt=False)


def test_reused_prefix_gives_the_same_text(app):
    base = prose(4000, 45000)
    cold = app.text(base + ' And then', 40, cache_prompt=False)
    app.text(base, 1)
    assert app.text(base + ' And then', 40) == cold


def test_decode_goes_on_beside_a_long_prefill(app):
    """A long prompt of another client does not stop a running stream."""
    s = app.stream(short(50), 1200, ignore_eos=True)
    s.run(until_events=20)
    reader = threading.Thread(target=s.run)
    reader.start()
    came = []
    while reader.is_alive() and max(came, default=0) < 5:  # a busy machine may run this process seldom
        n = len(s.times)
        app.text(prose(7000, 80000), 1, cache_prompt=False)
        came.append(len(s.times) - n if reader.is_alive() else 0)
    reader.join()
    assert max(came) >= 5, 'tokens beside long prompts: %s' % came
