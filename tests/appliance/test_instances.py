"""Several appliances on one machine, and what must not be started twice."""
import http.server
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from harness.appliance import MODEL, Appliance, clean_env, wait_for
from harness.stream import get, post
from harness.text import short

SETS = {'engine.ctx_tokens': 1024, 'engine.slots': 2}


def run_to_end(a, timeout=100):
    """Starts an appliance that is expected to give up; returns (exit code, what it said, seconds)."""
    t0 = time.monotonic()
    os.makedirs(a.run_dir, exist_ok=True)
    p = subprocess.run(a.argv(), env=clean_env(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    return p.returncode, p.stdout + p.stderr, time.monotonic() - t0


def test_two_side_by_side(make):
    a, b = make(sets=SETS), make(sets=SETS)
    assert a.text(short(1), 20) == b.text(short(1), 20)
    a.kill('engine0')
    assert b.text(short(2), 20)
    assert a.stop() == 0
    assert b.text(short(2), 20) and b.ctl('status')[0] == 0


def test_same_run_dir(make):
    a = make(sets=SETS)
    b = Appliance(sets=SETS, root=a.root, state_dir=a.root + '/s2')
    b.sets['http.listen'] = '127.0.0.1:1'
    s = a.stream(short(1), 300)
    s.run(until_events=5)
    code, said, took = run_to_end(b)
    assert code == 69 and took < 10, (code, said)
    assert str(a.pid) in said or a.run_dir in said, said
    s.run()
    assert s.end == 'complete' and a.ctl('status')[0] == 0


def test_same_port(make):
    """The second ends with 69 and names the owner; the first is untouched."""
    a = make(sets=SETS)
    b = Appliance(sets=dict(SETS, **{'http.listen': '127.0.0.1:%d' % a.port}))
    try:
        code, said, took = run_to_end(b)
        assert code == 69 and took < 10, (code, said)
        assert str(a.port) in said and str(a.pid) in said, said
    finally:
        b.destroy()
    assert get(a.port, '/health').status == 200


class Decoy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status":"ok"}')

    def log_message(self, *args):
        pass


def test_foreign_process_on_the_port():
    """A decoy that answers 200 on our port: 69 with the decoy's pid, `status` is not fooled, later the start works."""
    a = Appliance(sets=SETS)
    server = http.server.ThreadingHTTPServer(('127.0.0.1', a.port), Decoy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert get(a.port, '/health').status == 200
        code, said, _ = run_to_end(a)
        assert code == 69 and str(os.getpid()) in said, (code, said)
        assert a.ctl('status', check=False)[0] == 69
        server.shutdown()
        server.server_close()
        a.start()
        assert a.ctl('status')[0] == 0 and a.text(short(1), 4)
    finally:
        a.destroy()


BAD = [
    ('engine.slotz', '4', 'engine.slots'), ('engine.slots', '0', 'engine.slots'), ('engine.ctx_tokens', '1000', '256'),
    ('engine.slots', 'four', 'engine.slots'), ('http.listen', 'nowhere', 'http.listen'), ('engine.slots', '', 'engine.slots'),
    ('log.level', 'loud', 'log.level'),
]


@pytest.mark.parametrize('key,value,named', BAD, ids=['%s=%s' % (k, v) for k, v, _ in BAD])
def test_bad_configuration(key, value, named):
    a = Appliance(sets=dict(SETS, **{key: value}))
    try:
        code, said, took = run_to_end(a)
        assert code == 78 and named in said, (code, said)
        assert took < 10
    finally:
        a.destroy()


def stays_up_without_engine(path, kind):
    """The appliance stands and says what is wrong with the model; no engine was spawned for it."""
    a = Appliance(sets=SETS, model=path)
    try:
        a.start(wait=False)
        wait_for('the payload is refused', lambda: 'engine0' in a.log_text() and path in a.log_text(), 20, 0.1)
        wait_for('status says failed', lambda: a.ctl('status', check=False)[0] == 70, 20, 0.2)
        st = a.ctl_json('status', check=False)
        engine = [c for c in st['children'] if c['name'] == 'engine0'][0]
        assert engine['state'] == 'failed' and engine['class'] == kind, engine
        r = get(a.port, '/health')
        assert r.status == 503, r.text
        assert a.stop() == 0
    finally:
        a.destroy()


def test_missing_model():
    stays_up_without_engine('/nowhere/m.gguf', 'payload')


def test_model_that_comes_later(tmp_path):
    model = tmp_path / 'm.gguf'
    a = Appliance(sets=SETS, model=str(model))
    try:
        a.start(wait=False)
        wait_for('status says failed', lambda: a.ctl('status', check=False)[0] == 70, 20, 0.2)
        r = post(a.port, '/v1/completions', {'prompt': 'Hi', 'max_tokens': 4})
        assert r.status == 503 and 'model' in r.json()['error']['message'], r.text
        shutil.copyfile(MODEL, tmp_path / 'part')
        os.rename(tmp_path / 'part', model)
        a.wait_ready(60)
        assert a.text(short(1), 8)
    finally:
        a.destroy()


def test_damaged_model(tmp_path):
    bad = tmp_path / 'm.gguf'
    with open(MODEL, 'rb') as f:
        bad.write_bytes(f.read(1 << 20))
    stays_up_without_engine(str(bad), 'payload')


def test_long_run_dir_is_refused():
    """The path limit of sockets is checked at the start, with the limit in the message."""
    a = Appliance(sets=SETS)
    try:
        a.run_dir = os.path.join(a.root, 'x' * 100)
        a.sets['paths.run_dir'] = a.run_dir
        code, said, _ = run_to_end(a)
        assert code == 78 and 'paths.run_dir' in said and '107' in said, (code, said)
    finally:
        a.destroy()


def test_inherited_socket_and_other_address(make):
    """A socket handed over and http.listen that says something else: 78 names both."""
    a = Appliance(sets=dict(SETS, **{'http.listen': '127.0.0.1:4'}), holder=True)
    try:
        a.start(wait=False)
        assert a.proc.wait(60) == 78
        assert '127.0.0.1:4' in a.log_text() and str(a.port) in a.log_text()
    finally:
        a.destroy()


def test_status_without_an_appliance():
    a = Appliance(sets=SETS)
    try:
        os.makedirs(a.run_dir)
        code, _ = a.ctl('status', check=False)
        assert code == 69 and a.ctl_err
    finally:
        a.destroy()


def test_wait_ready(make):
    a = make(sets=SETS, wait=False)
    wait_for('the control socket', lambda: a.ctl('wait', '--ready', '--timeout=60', check=False)[0] == 0, 60)
    assert get(a.port, '/health').status == 200
    assert sys.executable


def test_history_without_vitriold(make):
    """What ran is told from the state directory when nothing runs; one that is not there is named."""
    a = make(engine='stub', sets=SETS)
    a.ctl('bounce', '--wait')
    live = a.ctl_json('fingerprint', '--history')['history']
    a.stop()
    past = a.ctl_json('fingerprint', '--history', '--state-dir', a.state_dir)['history']
    assert [(p['gen'], p['fp'], p['child'], p['line']) for p in past] == [(p['gen'], p['fp'], p['child'], p['line']) for p in live]
    assert [p['gen'] for p in past] == [2, 1] and past[0]['at_us'] > past[1]['at_us'] > 1.6e15
    code, out = a.ctl('fingerprint', '--history', '--state-dir', a.root + '/none', check=False)
    assert code == 66 and a.root + '/none' in a.ctl_err and out == ''
    text = a.ctl('fingerprint', '--history', '--state-dir', a.state_dir)[1]
    assert past[0]['fp'] in text
