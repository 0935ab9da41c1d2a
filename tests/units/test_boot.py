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
    assert curl.wait(300) == 0
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


def test_journal_fields(machine):
    """Each change of a child's state is a record with fields, not only a sentence."""
    out = machine.run('journalctl', '--no-pager', '-o', 'json', '-u', 'vitriold.service').stdout
    rows = [json.loads(ln) for ln in out.splitlines()]
    states = [r for r in rows if r.get('VITRIOL_EVENT') == 'child-state']
    assert {r['VITRIOL_CHILD'] for r in states} >= {'engine0', 'store', 'gateway'}
    for r in states:
        assert r['VITRIOL_GEN'].isdigit() and r['VITRIOL_FROM'] and r['VITRIOL_TO'] and r['PRIORITY'] in '34567', r
    killed = [r for r in states if r.get('VITRIOL_CLASS') == 'sigkill_unknown']
    assert killed and all(r['VITRIOL_CHILD'] == 'engine0' for r in killed), 'the killed engine of the test before'


def knocking(m, seconds):
    """A curl every 0.1 s inside the machine for that long, each with time to wait; returns the process."""
    return m.run('sh', '-c', 'end=$(($(date +%%s) + %d)); while [ $(date +%%s) -lt $end ]; do '
                 '{ curl -s --max-time 60 -o /dev/null -w "%%{exitcode}\\n" %s/health || true; } & sleep 0.1; done; wait' %
                 (seconds, URL), timeout=180).stdout.split()


def test_socket_over_restarts(machine):
    """Two restarts by the manager: no connection is refused, all that waited are answered."""
    results = []
    t = threading.Thread(target=lambda: results.extend(knocking(machine, 8)))
    t.start()
    for _ in range(2):
        time.sleep(1)
        machine.run('systemctl', 'restart', 'vitriold.service')
    t.join()
    ready(machine)
    assert len(results) > 20 and set(results) <= {'0', '52', '56'} and '7' not in results, sorted(set(results))
    assert results.count('0') > 0.7 * len(results), results  # one that its gateway had taken may be cut by its end


def restarts(machine):
    return int(machine.run('systemctl', 'show', '-P', 'NRestarts', 'vitriold.service').stdout)


def main_pid(machine):
    """As the manager has it, 0 for none: of several processes with the name one may be a child between fork and exec."""
    return int(machine.run('systemctl', 'show', '-P', 'MainPID', 'vitriold.service').stdout)


def test_restart_storm(machine):
    """Killed as soon as it is back, four times: the manager never gives up, and the port is held all the time."""
    before = restarts(machine)
    for _ in range(4):
        old = wait_for('a vitriold', lambda: main_pid(machine), 20)
        machine.run('systemctl', 'kill', '--kill-whom=main', '-s', 'KILL', 'vitriold.service')
        wait_for('the next vitriold', lambda: main_pid(machine) not in (0, old), 20)
        assert machine.run('systemctl', 'is-active', 'vitriol.socket').stdout.strip() == 'active'
    ready(machine)
    assert restarts(machine) == before + 4
    for child in ('vitriol-engine', 'vitriol-store', 'vitriol-gateway'):
        assert len(machine.pids(child)) == 1, child


def drop_in(machine, text):
    d = '/run/systemd/system/vitriold.service.d'
    machine.run('sh', '-c', 'mkdir -p %s && printf "%s" > %s/test.conf && systemctl daemon-reload' % (d, text, d))
    machine.run('systemctl', 'restart', 'vitriold.service')
    ready(machine)


def test_watchdog(machine):
    """A vitriold that stands still is ended by the manager, with all it started, and comes back."""
    drop_in(machine, '[Service]\\nWatchdogSec=4\\n')
    old, engine = machine.pids('vitriold')[0], machine.pids('vitriol-engine')
    time.sleep(6)  # more than the limit: the ping is earned as long as it runs
    assert machine.pids('vitriold') == [old]
    os.kill(old, signal.SIGSTOP)
    wait_for('another vitriold', lambda: machine.pids('vitriold') not in ([old], []), 45, 0.2)
    ready(machine)
    assert 'Watchdog timeout' in machine.journal('-u', 'vitriold.service')
    assert not set(machine.pids('vitriol-engine')) & set(engine)


def test_stop_under_load(machine, tmp_path):
    """Four answers that would take minutes: the stop keeps its limit, and each stream ends with a terminator."""
    machine.run('sh', '-c', 'mkdir -p /etc/vitriol/conf.d && printf "[engine]\\ndrain_s = 5\\n" > /etc/vitriol/conf.d/test.conf')
    drop_in(machine, '[Service]\\n')
    outs = [tmp_path / str(i) for i in range(4)]
    curls = [machine.background(*ask(machine, 3900, stream=True), out=open(o, 'w')) for o in outs]
    wait_for('all streams run', lambda: all(o.read_text().count('data: ') >= 5 for o in outs), 60)
    t0 = time.monotonic()
    machine.run('systemctl', 'stop', 'vitriol.target')
    assert time.monotonic() - t0 < 60
    for c, o in zip(curls, outs):
        assert c.wait(60) == 0
        assert o.read_text().endswith('data: [DONE]\n\n'), o.read_text()[-300:]
    assert machine.run('systemctl', 'show', '-P', 'Result', 'vitriold.service').stdout.strip() == 'success'
    machine.run('systemctl', 'start', 'vitriol.target')
    ready(machine)


def test_stop(machine):
    machine.run('systemctl', 'stop', 'vitriol.target')
    wait_for('all processes are gone', lambda: not any(
        machine.pids(p) for p in ('vitriold', 'vitriol-engine', 'vitriol-store', 'vitriol-gateway')), 30)
    assert machine.run('systemctl', 'show', '-P', 'Result', 'vitriold.service').stdout.strip() == 'success'
