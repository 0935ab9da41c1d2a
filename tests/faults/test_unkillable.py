"""V12: a child that SIGKILL does not end is given up, nothing is started beside it, and its end is noticed when it comes.

Two ways of being so: a task that the kernel does not let run (the freezer of cgroup version 1, which needs root), and one
that has ended while a debugger, which does not look, traces it."""
import os
import signal
import subprocess
import sys
import threading
import time
import uuid

import pytest

from harness import stream, stub
from harness.appliance import alive, wait_for, within
from harness.stream import check_transcript

SETS = {'engine.ctx_tokens': 4096, 'engine.slots': 4, 'engine.hang_budget_s': 2, 'supervisor.unkillable_s': 2,
        'gateway.hold_s': 120}
FREEZER = '/sys/fs/cgroup/freezer'

TRACE = '''
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(0x4206, int(sys.argv[1]), None, None), ctypes.get_errno(), flush=True)  # PTRACE_SEIZE
time.sleep(600)
'''


class Freezer:
    def __init__(self, pid):
        self.path = os.path.join(FREEZER, 'vttest-' + uuid.uuid4().hex[:8])
        os.mkdir(self.path)
        self.put('cgroup.procs', str(pid))
        self.put('freezer.state', 'FROZEN')

    def put(self, name, text):
        with open(os.path.join(self.path, name), 'w') as f:
            f.write(text)

    def thaw(self):
        self.put('freezer.state', 'THAWED')

    def remove(self):
        wait_for('its cgroup is empty', lambda: not open(os.path.join(self.path, 'cgroup.procs')).read())
        os.rmdir(self.path)


class Tracer:
    def __init__(self, pid):
        self.proc = subprocess.Popen([sys.executable, '-c', TRACE, str(pid)], stdout=subprocess.PIPE, text=True)
        said = self.proc.stdout.readline().split()
        if said[0] != '0':
            self.thaw()
            pytest.skip('nobody may be traced here: ' + os.strerror(int(said[1])))

    def thaw(self):
        self.proc.kill()
        self.proc.wait()

    def remove(self):
        self.proc.stdout.close()


@pytest.fixture
def hold():
    """hold(kind, pid): keeps that process from ending."""
    held = []

    def of(kind, pid):
        held.append(kind(pid))
        return held[-1]
    yield of
    for h in held:
        h.thaw()
        h.remove()


needs_freezer = pytest.mark.skipif(not os.access(FREEZER, os.W_OK),
                                   reason='no freezer of cgroup version 1 that this user may use')


def engine(app):
    return next(c for c in app.ctl_json('status', check=False)['children'] if c['name'] == 'engine0')


def cpu_s(pid):
    with open('/proc/%d/stat' % pid) as f:
        st = f.read().rpartition(')')[2].split()
    return (int(st[11]) + int(st[12])) / os.sysconf('SC_CLK_TCK')


@pytest.mark.parametrize('kind,said', [pytest.param(Freezer, 'state D', marks=needs_freezer), (Tracer, 'debugger')])
def test_v12_unkillable(make, hold, kind, said):
    a = make(engine='stub', stub_args='rate=50', sets=SETS)
    old, others = a.child('engine0'), {n: p for n, p in a.children().items() if n != 'engine0'}
    s = a.stream('Hello', 400, seed=1)
    s.run(until_events=5)
    held = hold(kind, old)
    if kind is Tracer:
        os.kill(old, signal.SIGKILL)
    spent = cpu_s(a.pid)
    c = within('given up', lambda: (lambda c: c if c['state'] == 'failed' else None)(engine(a)), 60, 0.1)
    assert c['class'] == 'unkillable' and said in c['detail'] and str(old) in c['detail'], c
    assert cpu_s(a.pid) - spent < 1.5, 'vitriold was busy with it'
    reader = threading.Thread(target=s.run, daemon=True)
    reader.start()
    within('who waited is told, although the sockets of the engine still stand', lambda: not reader.is_alive(), 20)
    assert check_transcript(s, ('error',)) == 'error' and stub.text(a, 1, 400).startswith(s.text)
    r = stream.post(a.port, '/v1/completions', {'prompt': 'x', 'max_tokens': 1})
    r.read()
    stream.check_error(503, r.headers, r.raw)
    for verb in ('bounce', 'start'):
        code, out = a.ctl(verb, 'engine0', check=False)
        assert code != 0 and str(old) in out + a.ctl_err, (verb, code, out, a.ctl_err)
    assert a.ctl('reset', 'engine0', check=False)[0] == 0
    time.sleep(1.5)
    assert engine(a)['gen'] == 1, 'another one was started beside it'
    assert {n: p for n, p in a.children().items() if n != 'engine0'} == others
    held.thaw()
    within('the next one', lambda: engine(a)['state'] == 'ready' and engine(a)['gen'] == 2, 60, 0.1)
    assert not alive(old)
    assert a.completion('Hello', 5, seed=1)['choices'][0]['text'] == stub.text(a, 1, 5)


@needs_freezer
def test_vitriold_dies_beside_one(make, hold):
    """The next vitriold starts no engine beside the one that its predecessor could not end."""
    a = make(engine='stub', sets=dict(SETS, **{'engine.hang_budget_s': 60}), holder=True)
    old, first = a.child('engine0'), a.pid
    held = hold(Freezer, old)
    os.kill(first, signal.SIGKILL)
    wait_for('the next vitriold', lambda: a.pid != first and a.ctl('status', check=False)[0] == 70, 60, 0.2)
    c = engine(a)
    assert c['class'] == 'unkillable' and str(old) in c['detail'] and c['gen'] == 0, c
    wait_for('the gateway answers', lambda: 'gateway' in a.children() and stream.get(a.port, '/health').status == 503, 60, 0.2)
    held.thaw()
    a.wait_ready()
    assert engine(a)['gen'] == 1 and not alive(old)


@needs_freezer
def test_stop_of_one_that_cannot_be_ended(make, hold):
    """The operator's stop says that it did not work; one that comes free then stays down, and vitriold ends beside one."""
    a = make(engine='stub', sets=SETS)
    old = a.child('engine0')
    held = hold(Freezer, old)
    within('given up', lambda: engine(a)['state'] == 'failed', 60, 0.1)
    assert a.ctl('stop', 'engine0', '--wait', check=False)[0] != 0
    held.thaw()
    within('it is down', lambda: engine(a)['state'] == 'down', 60, 0.1)
    assert not alive(old)
    a.ctl('start', 'engine0')
    a.wait_ready()
    hold(Freezer, a.child('engine0'))
    within('given up again', lambda: engine(a)['state'] == 'failed', 60, 0.1)
    t0 = time.monotonic()
    assert a.stop() == 0
    assert time.monotonic() - t0 < 40
