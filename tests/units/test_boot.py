"""The installed appliance under systemd as process 1: start, answer, kill, rest of the answer, stop."""
import json
import os
import re
import signal
import threading
import time

import pytest

from harness.appliance import wait_for
from harness.machine import Machine, why_not

URL = 'http://127.0.0.1:8080'
PROMPT = 'It was a cold evening, and the old man'


@pytest.fixture(scope='module')
def machine():
    if why_not():
        pytest.skip(why_not())
    with Machine() as m:
        m.install()
        m.boot()
        m.run('systemctl', 'start', 'vitriol.target')
        ready(m)
        yield m


def ready(m):
    wait_for('health inside the machine',
             lambda: m.run('curl', '-s', '-o', '/dev/null', '-w', '%{http_code}', URL + '/health',
                           check=False).stdout == '200', 60, 0.2)


def ask(m, n, stream=False, timeout=120):
    body = json.dumps({'prompt': PROMPT, 'max_tokens': n, 'temperature': 0, 'stream': stream, 'ignore_eos': True})
    return ('curl', '-sS', '-N', '--max-time', str(timeout), '-H', 'Content-Type: application/json', '-d', body,
            URL + '/v1/completions')


def stream_text(data):
    text, done = '', False
    for event in data.split('\n\n'):
        if event == 'data: [DONE]':
            done = True
        elif event.startswith('data: '):
            text += ''.join(c['text'] for c in json.loads(event[6:])['choices'])
    return text, done


def test_units_load_clean(machine):
    assert machine.run('systemctl', 'is-active', 'vitriol.target', 'vitriol.socket', 'vitriold.service').stdout.split() == \
        ['active'] * 3
    log = machine.journal()
    bad = [ln for ln in log.splitlines() if 'vitriol' in ln and re.search('Unknown (key|lvalue|section)|Failed to parse', ln)]
    assert not bad, bad


def test_runs_as_its_own_account(machine):
    pid = machine.pids('vitriold')
    assert len(pid) == 1
    uid = os.stat('/proc/%d' % pid[0]).st_uid
    name = machine.run('id', '-nu', str(uid)).stdout.strip()
    assert name == 'vitriol'
    for child in ('vitriol-engine', 'vitriol-store', 'vitriol-gateway'):
        assert len(machine.pids(child)) == 1, child


def test_answer(machine):
    a = json.loads(machine.run(*ask(machine, 16)).stdout)
    assert a['choices'][0]['text'] and a['usage']['completion_tokens'] == 16


def test_fingerprint_in_the_journal(machine):
    log = machine.journal('-u', 'vitriold.service')
    assert len(re.findall('VITRIOL-FINGERPRINT: v=1 .*child=engine0', log)) == 1, log[-3000:]


def test_ctl_and_ready_unit(machine):
    machine.run('systemctl', 'start', 'vitriol-ready.service')
    st = machine.run('runuser', '-u', 'vitriol', '--', 'vitriolctl', 'status')
    assert 'ready' in st.stdout
    st = json.loads(machine.run('runuser', '-u', 'vitriol', '--', 'vitriolctl', '--json', 'status').stdout)
    engine = next(c['pid'] for c in st['children'] if c['name'] == 'engine0')
    print('cgroup:', st['cgroup'])
    in_leaf = 'vitriold.service/engine0\n' in machine.run('cat', '/proc/%d/cgroup' % engine).stdout
    assert in_leaf == st['cgroup'].startswith('leaves')


def test_kill_engine_mid_stream(machine, tmp_path):
    n = 1500
    ref = json.loads(machine.run(*ask(machine, n)).stdout)['choices'][0]['text']
    engine = machine.pids('vitriol-engine')
    assert len(engine) == 1
    out = open(tmp_path / 'stream', 'w+')
    curl = machine.background(*ask(machine, n, stream=True), out=out)
    wait_for('some of the stream', lambda: (tmp_path / 'stream').read_text().count('data: ') >= 20, 60)
    os.kill(engine[0], signal.SIGKILL)
    before = (tmp_path / 'stream').read_text()
    assert '[DONE]' not in before, 'the answer was over before the kill'
    assert curl.wait(120) == 0
    text, done = stream_text((tmp_path / 'stream').read_text())
    assert done and text == ref
    assert machine.pids('vitriol-engine') != engine


def test_kill_vitriold(machine):
    """The socket is systemd's: connections of the gap wait and are answered."""
    old = machine.pids('vitriold')[0]
    results = []

    def knock():
        p = machine.run('curl', '-s', '--max-time', '60', '-o', '/dev/null', '-w', '%{http_code} %{errormsg}',
                        URL + '/health', check=False)
        results.append((p.returncode, p.stdout))

    os.kill(old, signal.SIGKILL)
    threads = []
    for _ in range(25):
        t = threading.Thread(target=knock)
        t.start()
        threads.append(t)
        time.sleep(0.1)
    for t in threads:
        t.join()
    assert all(rc == 0 for rc, _ in results), results
    ready(machine)
    assert machine.pids('vitriold') != [old]
    for child in ('vitriol-engine', 'vitriol-store', 'vitriol-gateway'):
        assert len(machine.pids(child)) == 1, child
    assert machine.run('systemctl', 'show', '-P', 'NRestarts', 'vitriold.service').stdout.strip() == '1'


def test_stop(machine):
    t0 = time.monotonic()
    machine.run('systemctl', 'stop', 'vitriol.target')
    wait_for('all processes are gone', lambda: not any(
        machine.pids(p) for p in ('vitriold', 'vitriol-engine', 'vitriol-store', 'vitriol-gateway')), 30)
    assert time.monotonic() - t0 < 30
    assert machine.run('systemctl', 'show', '-P', 'Result', 'vitriold.service').stdout.strip() == 'success'
