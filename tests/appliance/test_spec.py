"""Guessing tokens: on by measurement alone, told when it does not do what it is for, and never to be seen in a text."""
import os

from harness import stream
from harness.appliance import wait_for

SHAPE = '[engine]\nslots = 2\nctx_tokens = 1024\n'
GUESS = {'engine.spec': 'ngram'}


def profiles(root, **texts):
    d = os.path.join(str(root), 'profiles')
    os.makedirs(d, exist_ok=True)
    for name, text in texts.items():
        with open(os.path.join(d, name + '.conf'), 'w') as f:
            f.write(text)
    return {'paths.profiles_dir': d}


def test_on_by_measurement(make, tmp_path):
    """L22: no launch guesses before one blessed record holds the speed of its shape with and without."""
    a = make(engine='stub', sets=profiles(tmp_path, plain=SHAPE, guess=SHAPE + 'spec = ngram\n', four=SHAPE + 'spec = ngram\nspec_n = 4\n'))

    def refused(name, part):
        rc, _ = a.ctl('apply', name, '--wait', check=False)
        assert rc == 78 and part in a.ctl_err, (rc, a.ctl_err)

    a.ctl('apply', 'plain', '--wait')
    engine = a.child('engine0')
    refused('guess', 'no blessed record holds the speed of this shape')
    assert a.child('engine0') == engine
    a.ctl('apply', 'guess', '--force', '--wait')
    assert 'spec=ngram:8' in a.log_text()
    a.ctl('certify', '128')
    a.ctl('bless', 'half')
    a.ctl('apply', 'plain', '--wait')
    refused('guess', 'record half does not hold the speed of this shape both with and without it')
    a.ctl('certify', '128')
    a.ctl('apply', 'guess', '--force', '--wait')
    a.ctl('bless', 'whole')
    a.ctl('apply', 'plain', '--wait')
    a.ctl('apply', 'guess', '--wait')
    refused('four', 'no blessed record holds the speed of this shape')  # a near one says nothing
    assert a.stop() == 0
    a.start()
    assert a.ctl_json('status')['profile'] == 'guess'


def test_a_start_without_a_record(make):
    a = make(wait=False, engine='stub', sets=GUESS)
    wait_for('vitriold gives up or says why', lambda: 'no blessed record holds the speed of this shape' in a.log_text())
    assert a.stop() in (0, 78)
    a.options.append('--unblessed')
    a.start()
    assert 'spec=ngram:8' in a.log_text()
    assert a.proc.poll() is None


def alarms(make, stub_args, **sets):
    a = make(engine='stub', sets=dict(GUESS, **sets), options=['--unblessed'], stub_args='rate=2000' + stub_args)
    a.text('Hello', 300, seed=1)
    wait_for('the counters have come', lambda: a.metric('llamacpp:spec_decode_num_draft_tokens_total', absent=0) >= 1200)
    return a


def test_nothing_is_ever_refuted(make):
    """L22: acceptance of 1.0 in which a wrong guess passes like a right one is an alarm; a text that copies is none."""
    a = alarms(make, ',spec-blind')
    wait_for('the alarm', lambda: 'guesses are not verified: acceptance=1.0 over' in a.log_text())
    b = alarms(make, '')
    assert b.metric('llamacpp:spec_decode_num_accepted_tokens_total') == b.metric('llamacpp:spec_decode_num_draft_tokens_total')
    assert b.metric('vitriol_spec_refuted_total') > 0
    assert 'guesses are not verified' not in b.log_text()


def test_acceptance_below_the_floor(make):
    a = alarms(make, ',spec-accept=10', **{'engine.spec_floor_s': 1})
    for i in range(20):
        a.text('Hello', 200, seed=3 + i)
        if 'guesses do not pay' in a.log_text():
            break
    assert 'engine.spec_floor_pct is 30' in a.log_text()
    assert 'guesses are not verified' not in a.log_text()


def test_the_text_stays_the_same(make):
    """The real engine, with and without: one text, fewer steps, and the answer says what was guessed."""
    body = {'prompt': 'one two three four five. ' * 12, 'n_predict': 120, 'temperature': 0, 'ignore_eos': True}
    plain = make(sets={'engine.slots': 1})
    want = stream.post(plain.port, '/completion', body).json()
    assert 'draft_n' not in want['timings']
    plain.stop()
    a = make(sets=dict(GUESS, **{'engine.slots': 1}), options=['--unblessed'])
    got = stream.post(a.port, '/completion', body).json()
    assert got['content'] == want['content']
    t = got['timings']
    assert 0 < t['draft_n_accepted'] <= t['draft_n'] and t['predicted_n'] == 120
    slot = wait_for('the slot says so', lambda: [s for s in stream.get(a.port, '/slots').json() if s.get('draft_n') == t['draft_n']])[0]
    assert slot['speculative'] and slot['draft_n_accepted'] == t['draft_n_accepted']
