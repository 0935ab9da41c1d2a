"""Profiles: every gate before the stop, proof before the first route, and the way back."""
import hashlib
import json
import os
import shutil
import threading
import time

import pytest

from harness import stream, stub
from harness.appliance import MODEL, wait_for
from harness.stream import check_transcript

SETS = {'engine.ctx_tokens': 1024, 'engine.slots': 2}


def profile(app_root, name, text):
    d = os.path.join(app_root, 'profiles')
    os.makedirs(d, exist_ok=True)
    with open(os.path.join(d, name + '.conf'), 'w') as f:
        f.write(text)
    return d


@pytest.fixture
def shop(make, tmp_path):
    """An appliance with a folder of profiles: shop({name: text}, engine, sets, **more)."""

    def start(profiles, engine='stub', sets=None, **kw):
        for name, text in profiles.items():
            profile(str(tmp_path), name, text)
        d = profile(str(tmp_path), 'home', '[engine]\nslots = 2\nctx_tokens = 1024\n')
        return make(engine=engine, sets=dict({'paths.profiles_dir': d}, **(sets or {})), **kw)

    return start


def shape(app):
    st = app.ctl_json('status', check=False)
    return st.get('slots'), st.get('window'), st.get('profile')


def test_apply_keeps_and_survives_a_restart(shop):
    a = shop({'wide': '[engine]\nslots = 1\nctx_tokens = 2048\n'}, sets=SETS)
    # what the command line says is above a profile: nothing changes but the name
    a.ctl('apply', 'wide', '--wait')
    assert shape(a) == (2, 1024, 'wide')
    a.ctl('apply', 'default', '--wait')
    assert shape(a) == (2, 1024, 'default')


def test_apply_and_rollback(shop):
    a = shop({'wide': '[engine]\nslots = 1\nctx_tokens = 2048\n'})
    a.ctl('apply', 'home', '--wait')
    assert shape(a) == (2, 1024, 'home')
    first = a.ctl_json('status')['fp']
    tag = json.loads(a.ctl('--json', 'bless', '--note', 'good')[1])['tag']
    assert tag == 'home@' + first[:4]
    out = a.ctl('apply', 'wide', '--wait')[1]
    assert 'profile wide runs' in out
    assert shape(a) == (1, 2048, 'wide')
    assert a.ctl_json('status')['fp'] != first
    # it is there again after the next start, too
    assert a.stop() == 0
    a.start()
    assert shape(a) == (1, 2048, 'wide')
    out = a.ctl('rollback', '--wait')[1]
    assert 'record %s runs' % tag in out
    assert shape(a) == (2, 1024, 'home') and a.ctl_json('status')['fp'] == first
    line = a.ctl('fingerprint')[1]
    assert 'rolled-back-from=wide' in line and 'blessed=' + tag in line and 'bdiff=none' in line
    assert a.completion('Hello', 4, seed=1)
    blessed = a.ctl_json('blessed')
    assert [e['key'] for e in blessed] == [tag] and blessed[0]['value']['note'] == 'good'
    assert blessed[0]['value']['model']['bytes'] == os.path.getsize(MODEL)


def bad_profiles(tmp):
    """name -> (text of the profile, exit code, part of the message): one for each gate."""
    whole = open(MODEL, 'rb').read()
    cut, flipped, foreign = (os.path.join(tmp, n + '.gguf') for n in ('cut', 'flipped', 'foreign'))
    with open(cut, 'wb') as f:
        f.write(whole[:-1])
    damaged = bytearray(whole)
    damaged[-1000] ^= 1
    with open(flipped, 'wb') as f:
        f.write(damaged)
    with open(foreign, 'wb') as f:
        f.write(whole.replace(b'qwen35', b'qwen99'))
    sha, size = hashlib.sha256(whole).hexdigest(), len(whole)
    model = '[model]\npath = %s\nbytes = %d\n'
    return {
        'cut': (model % (cut, size), 65, 'cut short'),
        'flipped': (model % (flipped, size) + 'sha256 = %s\n' % sha, 65, 'damaged'),
        'other': (model % (MODEL, size + 1), 65, 'expected (model.bytes)'),
        'foreign': ('[model]\npath = %s\n' % foreign, 65, 'architecture "qwen99" is not supported'),
        'missing': ('[model]\npath = %s/none.gguf\n' % tmp, 66, 'none.gguf'),
        'noise': ('[model]\npath = %s\n' % os.path.abspath(__file__), 65, 'test_profiles.py'),
        'huge': ('[engine]\nslots = 256\nctx_tokens = 16777216\n', 86, 'host memory refused: weights'),
        'odd': ('[engine]\nctx_tokens = 1000\n', 78, 'nearest legal windows are 768 and 1024'),
        'typo': ('[engine]\nslotz = 1\n', 78, 'did you mean'),
        'moved': ('[store]\nquota_mib = 999\n', 78, 'restart of vitriold'),
        'banned': ('[profile]\nforbidden = engine.slots=3 | %s | 2026-01-02 | no kernel image\n[engine]\nslots = 3\n', 78, 'no kernel image'),
        'old': ('[profile]\nforbidden = engine.slots=3\n[engine]\nslots = 3\n', 78, 'lacks its evidence'),
    }


def test_gates_come_before_the_stop(shop, tmp_path):
    """L18, V08: while a stream runs, no bad profile touches it; each is refused for a reason of its own."""
    bad = bad_profiles(str(tmp_path))
    a = shop({}, sets=SETS, stub_args='rate=60')
    build = a.ctl_json('version')['vitriold']['build']
    for name, (text, _, _) in bad.items():
        profile(str(tmp_path), name, text.replace('%s', build))
    for k in ('engine.ctx_tokens', 'engine.slots', 'model.path'):
        a.sets.pop(k)
    assert a.stop() == 0
    a.start()
    old = a.child('engine0')
    s = a.stream('Hello', 400, seed=3)
    s.run(until_events=3)
    for name, (_, code, part) in bad.items():
        t = time.monotonic()
        rc, out = a.ctl('apply', name, '--wait', check=False)
        said = out + a.ctl_err
        assert part in said, (name, rc, said)
        assert rc == code, (name, rc, said)
        if name == 'cut':
            assert time.monotonic() - t < 10, 'a size was read, not stat'
        assert a.child('engine0') == old, name
    a.ctl('rollback', 'nothing', check=False)
    assert 'nothing is blessed as nothing' in a.ctl_err
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal'
    assert s.text == stub.text(a, 3, 400), 'the stream has a gap'
    assert a.child('engine0') == old


def test_forbidden_with_force_and_verdicts(shop):
    a = shop({'three': '[engine]\nslots = 3\nctx_tokens = 1024\n'})
    rc, _ = a.ctl('forbid', 'engine.slots=3', check=False)
    assert rc != 0 and 'evidence' in a.ctl_err
    rc, _ = a.ctl('forbid', 'engine.slotz=3', '--note', 'x', check=False)
    assert rc == 78 and 'engine.slots' in a.ctl_err
    rc, _ = a.ctl('forbid', 'engine.slots=3', '--note', 'n' * 400, check=False)
    assert rc != 0 and 'note: 400 bytes are too long' in a.ctl_err  # half of the evidence would be no evidence
    a.ctl('forbid', 'engine.slots=3', '--note', 'graph capture failed: out of resources')
    rc, _ = a.ctl('apply', 'three', '--wait', check=False)
    assert rc == 78 and 'graph capture failed' in a.ctl_err
    a.ctl('apply', 'three', '--force', '--wait')
    assert shape(a)[:2] == (3, 1024)
    a.ctl('verdicts', 'three slots', '--note', '11 tokens/s against 14 with two')
    assert '11 tokens/s' in a.ctl('verdicts')[1]
    assert 'graph capture failed' in a.ctl('forbid')[1]
    # a forced shape may also come back after a restart
    assert a.stop() == 0
    a.start()
    assert shape(a)[:2] == (3, 1024)


def test_a_profile_that_fails_brings_the_one_before_back(shop):
    a = shop({'sick': '[engine]\nargs = fail-selftest\n'})
    a.ctl('apply', 'home', '--wait')
    rc, out = a.ctl('apply', 'sick', '--wait', check=False)
    assert rc == 70 and 'did not become ready' in out and 'home runs again' in out
    a.wait_ready()
    assert shape(a) == (2, 1024, 'home')
    assert a.completion('Hello', 4, seed=1)


def test_probe_measures_and_returns(shop):
    a = shop({'wide': '[engine]\nslots = 1\nctx_tokens = 2048\n'})
    a.ctl('apply', 'home', '--wait')
    out = a.ctl('probe', 'wide', '--wait')[1]
    assert '1 slots of 2048 tokens' in out and 'home runs again' in out
    a.wait_ready()
    assert shape(a) == (2, 1024, 'home')
    shapes = [e['value'] for e in a.ctl_json('measures')]
    wide = [m for m in shapes if m['shape']['engine.ctx_tokens'] == '2048']
    assert len(wide) == 1 and wide[0]['values']['start_s']['measured'] > 0
    home = [m for m in shapes if m['shape']['engine.ctx_tokens'] == '1024']
    assert home and home[0]['values']['start_s']['n'] >= 2


def test_a_blessed_payload_that_changed_refuses_before_the_stop(shop, tmp_path):
    other = str(tmp_path / 'm.gguf')
    shutil.copy(MODEL, other)
    a = shop({'mine': '[model]\npath = %s\n[engine]\nslots = 2\nctx_tokens = 1024\n' % other})
    a.sets.pop('model.path')
    assert a.stop() == 0
    a.start()
    gateway = a.child('gateway')
    a.ctl('probe', 'mine', '--wait')  # of another file: its clients stay where they are
    assert a.child('gateway') == gateway
    a.ctl('apply', 'mine', '--wait')
    assert a.child('gateway') != gateway
    gateway = a.child('gateway')
    shutil.copy(MODEL, other + '.new')
    os.rename(other + '.new', other)  # the same path, another file
    a.ctl('apply', 'mine', '--wait')
    assert a.child('gateway') != gateway and 'it starts anew' not in a.log_text()
    a.ctl('bless', 'mine')
    a.ctl('apply', 'home', '--wait')
    os.unlink(other)
    rc, _ = a.ctl('rollback', 'mine', '--wait', check=False)
    assert rc == 66 and 'm.gguf' in a.ctl_err
    with open(MODEL, 'rb') as f, open(other, 'wb') as g:
        g.write(f.read()[:-4096])
    old = a.child('engine0')
    rc, _ = a.ctl('rollback', 'mine', '--wait', check=False)
    assert rc == 65, a.ctl_err
    assert a.child('engine0') == old and shape(a)[2] == 'home'


def test_contract_of_the_record_is_proved_before_routing(shop):
    """A record whose promises what runs does not keep is not routed: the one before comes back."""
    a = shop({'wide': '[engine]\nslots = 1\nctx_tokens = 2048\n'})
    a.ctl('apply', 'home', '--wait')
    a.ctl('bless', 'good')
    assert a.stop() == 0
    path = os.path.join(a.state_dir, 'records', 'blessed.json')
    r = json.load(open(path))
    assert len(r['good']['contract']['template']) == 12
    r['good']['contract']['template'] = '0' * 12
    json.dump(r, open(path, 'w'))
    a.start()
    a.ctl('apply', 'wide', '--wait')
    rc, out = a.ctl('rollback', 'good', '--wait', check=False)
    assert rc == 70 and 'contract: template' in out and 'wide runs again' in out
    a.wait_ready()
    assert shape(a) == (1, 2048, 'wide')


def test_breaker_goes_back_to_the_blessed_record(shop):
    a = shop({'sick': '[profile]\nrollback = auto\n[engine]\nslots = 1\nctx_tokens = 2048\nargs = fail-selftest,once=/nonexistent\n'},
             sets={'supervisor.breaker': 'on', 'supervisor.backoff_max_ms': 50})
    a.ctl('apply', 'home', '--wait')
    a.ctl('bless', 'good')
    assert a.stop() == 0
    with open(os.path.join(a.state_dir, 'records', 'active.json'), 'w') as f:
        json.dump({'profile': 'sick'}, f)
    d = a.sets['paths.profiles_dir']
    with open(os.path.join(d, 'sick.conf'), 'w') as f:
        f.write('[profile]\nrollback = auto\n[engine]\nslots = 1\nctx_tokens = 2048\nargs = fail-selftest\n')
    a.start(wait=False)
    wait_for('back on the blessed record', lambda: shape(a)[2] == 'home' and a.ctl('health', check=False)[0] == 0, 60, 0.3)
    assert 'rolled-back-from=sick' in a.ctl('fingerprint')[1]
    assert 'the breaker is open: back to the blessed record' in a.log_text()
    assert a.completion('Hello', 4, seed=1)


def test_drift_is_told(shop):
    a = shop({}, engine='stub')
    d = a.sets['paths.profiles_dir']
    profile(os.path.dirname(d), 'prod', '[profile]\nproduction = on\n[engine]\nslots = 2\nctx_tokens = 1024\n')
    a.ctl('apply', 'prod', '--wait')
    a.ctl('bless')
    profile(os.path.dirname(d), 'prod', '[profile]\nproduction = on\n[engine]\nslots = 1\nctx_tokens = 1024\n')
    a.ctl('apply', 'prod', '--wait')
    line = a.ctl('fingerprint')[1]
    assert 'bdiff=' in line and 'slots:2>1' in line.split('bdiff=')[1]
    assert 'drift from the blessed record' in a.log_text()
    events = a.ctl('events')[1]
    assert 'drift' in events


def test_damaged_records_are_moved_aside(shop):
    a = shop({})
    a.ctl('bless', 'x')
    assert a.stop() == 0
    path = os.path.join(a.state_dir, 'records', 'blessed.json')
    with open(path, 'r+') as f:
        f.write('[{,')
    a.start()
    assert os.path.exists(path + '.bad') and 'moved aside' in a.log_text()
    assert a.ctl_json('blessed') == []
    a.ctl('bless', 'y')
    assert stream.get(a.port, '/health').status == 200


def test_plan_drift_is_told(shop):
    """L20: a term that is measured 9 % above its plan is an alert, and is kept under its shape."""
    a = shop({}, stub_args='plan-delta=9')
    assert 'plan drift: kv measured' in a.log_text() and '+9.0 %' in a.log_text()
    kv = [e['value']['values']['kv'] for e in a.ctl_json('measures')]
    assert len(kv) == 1 and kv[0]['measured'] > kv[0]['planned'] > 0


def test_certified_depth(shop):
    """A capability is stated at the depth that was filled when it was measured: for this shape, and for no other."""
    a = shop({'wide': '[engine]\nslots = 1\nctx_tokens = 2048\n'}, engine='real')
    a.ctl('apply', 'home', '--wait')

    def told():
        return stream.get(a.port, '/props').json().get('certified')

    assert told() is None
    for bad in ('63', '1025', 'deep', '-1'):
        assert a.ctl('certify', bad, check=False)[0] == 64
    assert told() is None
    out = a.ctl_json('certify', '700')
    wait_for('clients are told', told)
    c = told()
    assert c['tokens'] == out['tokens'] == 700 and c['profile'] == 'home' and c['date'].startswith('20')
    assert c['decode_per_second'] > 0 and abs(c['decode_per_second'] - out['decode_per_second']) < 0.01
    assert 'certified 700 deep' in a.ctl('status')[1]
    # all of it, prompt and output together
    assert a.ctl_json('certify')['tokens'] == 1024 and a.ctl_json('status')['certified'] == 1024
    a.ctl('apply', 'wide', '--wait')
    assert told() is None and 'certified' not in a.ctl('status')[1]
    a.ctl('apply', 'home', '--wait')
    wait_for('the shape is known again', told)
    assert told()['tokens'] == 1024


def test_nothing_is_certified_by_an_engine_that_dies(make):
    a = make(sets={'engine.ctx_tokens': 4096, 'engine.slots': 1})
    done = []
    t = threading.Thread(target=lambda: done.append(a.ctl('certify', check=False)))
    t.start()
    wait_for('it fills a slot', lambda: stream.get(a.port, '/slots').json()[0]['is_processing'])
    a.kill('engine0')
    t.join()
    assert done[0][0] == 70 and 'did not survive' in a.ctl_err, (done, a.ctl_err)
    assert a.ctl_json('status')['certified'] == 0
