"""A request that crashes the engine each time is found and kept away; the others go on."""
import hashlib
import os
import struct
import time

from harness import stream, stub
from harness.appliance import wait_for
from harness.stream import check_transcript

SETS = {'engine.ctx_tokens': 4096, 'engine.slots': 4, 'engine.hang_budget_s': 3, 'supervisor.backoff_max_ms': 100}
POISON = 'the words that no engine survives'


def hash_of(app, prompt):
    ids = stream.post(app.port, '/tokenize', {'content': prompt, 'add_special': True}).json()['tokens']
    return hashlib.sha256(struct.pack('<%dI' % len(ids), *ids)).hexdigest()


def poisoned(make, more='', sets=None):
    """An appliance whose engine crashes on POISON."""
    a = make(engine='stub', sets=SETS)
    digest = hash_of(a, POISON)
    assert a.stop() == 0
    return make(engine='stub', stub_args='crash-on=%s,rate=100%s' % (digest[:16], more), sets=dict(SETS, **(sets or {}))), digest


def restarts(app):
    return app.metric('vitriol_child_restarts_total', {'child': 'engine0'}, absent=0)


def two_crashes(app):
    """No more and no less; the figure comes with the next telemetry."""
    wait_for('both crashes are counted', lambda: restarts(app) >= 2, 10)
    assert restarts(app) == 2


def test_alone_two_crashes_then_refusals(make):
    a, digest = poisoned(make)
    r = stream.post(a.port, '/v1/completions', {'prompt': POISON, 'max_tokens': 8, 'seed': 1}, timeout=60)
    body = r.json()
    assert r.status == 400 and body['error']['type'] == 'invalid_request_error', body
    assert 'quarantined' in body['error']['message'] and digest[:16] in body['error']['message']
    two_crashes(a)
    a.wait_ready()
    for _ in range(3):
        r = stream.post(a.port, '/v1/completions', {'prompt': POISON, 'max_tokens': 8})
        assert r.status == 400 and 'quarantined' in r.json()['error']['message']
    assert a.text('Hello', 20, seed=2) == stub.text(a, 2, 20)
    two_crashes(a)
    listed = a.ctl('suspects')[1]
    assert digest[:16] in listed and 'quarantined' in listed and '2 crashes' in listed
    assert POISON not in a.log_text() and POISON not in open(os.path.join(a.state_dir, 'records', 'suspects.json')).read()
    kept = sorted(os.listdir(os.path.join(a.state_dir, 'evidence')))
    assert len(kept) == 2 and all('-engine0-' in k and k.endswith('-signal.txt') for k in kept), kept
    text = open(os.path.join(a.state_dir, 'evidence', kept[-1])).read()
    assert 'killed by SIGSEGV' in text and 'last frames:' in text and digest in text and 'quarantined' in text
    assert POISON not in text
    # neither a new gateway nor a new vitriold forgets it
    old = a.kill('gateway')
    a.next_generation('gateway', old)
    assert stream.post(a.port, '/v1/completions', {'prompt': POISON}).status == 400
    assert a.stop() == 0
    a.start()
    assert stream.post(a.port, '/v1/completions', {'prompt': POISON}).status == 400
    assert restarts(a) == 0
    # an operator may; then it has its two crashes again
    rc, _ = a.ctl('suspects', 'clear', '0123456789', check=False)
    assert rc == 66
    assert a.ctl('suspects', 'clear', digest[:12])[1] == '1 cleared\n'
    assert stream.post(a.port, '/v1/completions', {'prompt': POISON, 'max_tokens': 4}, timeout=60).status == 400
    two_crashes(a)


def test_neighbours_complete(make):
    """Three streams are in flight with it: they pause, and all of them say what they would have said."""
    a, digest = poisoned(make)
    others = [a.stream('Hello %d' % i, 150, seed=20 + i) for i in range(3)]
    for s in others:
        s.run(until_events=5)
    bad = a.stream(POISON, 40, seed=9)
    bad.run()
    kind = check_transcript(bad, ('error', 'plain'))
    assert kind in ('error', 'plain')
    for i, s in enumerate(others):
        s.run()
        assert check_transcript(s, ('normal',)) == 'normal', i
        assert s.text == stub.text(a, 20 + i, 150), i
    two_crashes(a)
    mine = [x for x in a.ctl_json('suspects') if x['value']['quarantined']]
    assert [x['key'] for x in mine] == [digest]


def test_a_kill_from_outside_blames_nobody(make):
    a = make(engine='stub', stub_args='rate=100', sets=SETS)
    for i in range(3):
        s = a.stream('Hello', 60, seed=4)
        s.run(until_events=5)
        old = a.kill('engine0')
        s.run()
        assert check_transcript(s, ('normal',)) == 'normal' and s.text == stub.text(a, 4, 60)
        a.next_generation('engine0', old)
    assert a.ctl_json('suspects') == []


def test_an_innocent_is_cleared(make, tmp_path):
    """One crash, whoever it was: a suspect that gets past its place runs with the others again."""
    once = tmp_path / 'once'
    once.write_text('')
    a = make(engine='stub', stub_args='segv-at=30,rate=100,once=%s' % once, sets=SETS)
    s = a.stream('Hello', 120, seed=5)
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal' and s.text == stub.text(a, 5, 120)
    assert 'it is not to blame' in a.log_text()
    t0 = time.monotonic()
    a.wait_ready()
    assert a.completion('another', 4, seed=1) and time.monotonic() - t0 < 60
    wait_for('it is told', lambda: 'suspect' in a.ctl('events')[1], 5)
