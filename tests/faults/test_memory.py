"""Memory pressure: in a made-up /proc, and for real in a cgroup with a limit."""
import os
import shutil
import tempfile
import threading
import time

import pytest

from harness import box, stub
from harness.appliance import Appliance, alive, wait_for
from harness.stream import check_transcript, post

QUICK = {'memory.enter_ms': 300, 'memory.leave_ms': 400, 'engine.ctx_tokens': 4096, 'engine.slots': 4}
MIB = 1024


class World:
    """A /proc of 16 GiB in which everything is calm."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix='vtproc', dir='/tmp')
        self.available(8192)
        self.pressure()

    def put(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + '.new', 'w') as f:
            f.write(text)
        os.rename(path + '.new', path)

    def available(self, mib):
        self.put('meminfo', 'MemTotal: %d kB\nMemAvailable: %d kB\n' % (16384 * MIB, mib * MIB))

    def pressure(self, some=0.0, full=0.0):
        self.put('pressure/memory', ''.join('%s avg10=%.2f avg60=0.00 avg300=0.00 total=0\n' % p
                                            for p in (('some', some), ('full', full))))

    def process(self, pid, anon_mib, comm='x'):
        self.put('%d/status' % pid, 'Name: %s\nRssAnon: %d kB\nRssFile: 0 kB\nRssShmem: 0 kB\nVmSwap: 0 kB\n' %
                 (comm, anon_mib * MIB))
        self.put('%d/comm' % pid, comm + '\n')


@pytest.fixture
def world():
    w = World()
    yield w
    shutil.rmtree(w.root, ignore_errors=True)


def status(a):
    return a.ctl_json('status', check=False)


def level(a, n, timeout=10):
    return wait_for('memory level %d' % n, lambda: status(a)['mem_level'] == n, timeout)


def in_world(make, world, engine='stub', sets=None, **kw):
    sets = dict(QUICK, **{'paths.proc_root': world.root, 'paths.cgroup_root': world.root + '/cg'}, **(sets or {}))
    return make(engine=engine, sets=sets, **kw)


def settled(a, world, anon=100):
    """The engine's baseline is known; returns its pid."""
    pid = a.child('engine0')
    world.process(pid, anon)
    wait_for('a baseline', lambda: next(c for c in status(a)['children'] if c['name'] == 'engine0')['plan_bytes'] > 0)
    return pid


def test_levels_shed_load(make, world):
    a = in_world(make, world, stub_args='rate=100')
    assert status(a)['mem_level'] == 0
    world.available(1700)  # 10 %
    level(a, 1)
    wait_for('the series follows', lambda: a.metric('vitriol_mem_level') == 1)
    s = a.stream('Hello', 1000, seed=5)
    s.run(until_events=5)
    world.available(1000)  # 6 %
    level(a, 2)
    r = post(a.port, '/v1/completions', {'prompt': 'Another', 'max_tokens': 4})
    assert r.status == 503 and r.json()['error']['type'] == 'unavailable_error'
    assert int(r.headers['retry-after']) >= 1
    s.run()  # what runs goes on
    assert check_transcript(s, ('normal',)) == 'normal' and s.text == stub.text(a, 5, 1000)
    assert post(a.port, '/v1/completions', {'prompt': 'One alone', 'max_tokens': 4}).status == 200
    world.available(300)  # 2 %
    level(a, 3)
    assert post(a.port, '/v1/completions', {'prompt': 'None', 'max_tokens': 4}).status == 503
    world.available(8192)
    level(a, 0, 20)
    assert post(a.port, '/v1/completions', {'prompt': 'All again', 'max_tokens': 4}).status == 200


def test_a_broken_reader_does_nothing(make, world):
    a = in_world(make, world)
    old = a.child('engine0')
    world.put('meminfo', 'MemTotal: 16777216 kB\nMemAvailable: 0 kB\n')
    wait_for('the alarm', lambda: 'mem_sampler_broken' in a.log_text(), 20)
    assert status(a)['mem_level'] == 0 and status(a)['mem_invalid'] >= 10
    assert post(a.port, '/v1/completions', {'prompt': 'Hello', 'max_tokens': 4}).status == 200
    assert a.child('engine0') == old
    world.available(8192)
    wait_for('it is read again', lambda: 'memory is read again' in a.log_text())


def test_an_innocent_engine_is_not_restarted(make, world):
    a = in_world(make, world)
    pid = settled(a, world)
    world.process(4242, 9000, 'glutton')
    world.available(1000)
    level(a, 2)
    wait_for('the alert', lambda: 'memory_pressure_external' in a.log_text(), 20)
    assert 'glutton[4242] 9000 MiB' in a.log_text()
    assert a.child('engine0') == pid and status(a)['mem_bounces'] == 0


def test_what_grew_is_restarted_once(make, world):
    """The engine is the real one, its growth is made up; four streams live through the restart."""
    a = in_world(make, world, engine='real')
    prompts = ['The first story is about a', 'It was a cold evening, and', 'In the year of the', 'She said that the']
    want = [a.text(p, 400, ignore_eos=True) for p in prompts]
    pid = settled(a, world)
    streams = [a.stream(p, 400, ignore_eos=True) for p in prompts]
    threads = [threading.Thread(target=s.run) for s in streams]
    world.process(pid, 900)  # 800 MiB beyond its plan, the default asks for 512
    for t in threads:
        t.start()
    time.sleep(1)
    assert a.child('engine0') == pid and 'memory_bounce' not in a.log_text()  # growth alone is no reason
    world.available(1000)
    wait_for('the restart', lambda: a.children().get('engine0') not in (None, pid), 120)
    new = a.child('engine0')
    world.process(new, 900)
    for t in threads:
        t.join()
    assert [check_transcript(s, ('normal',)) for s in streams] == ['normal'] * 4
    assert [s.text for s in streams] == want
    wait_for('it is ready', lambda: status(a)['state'] == 'ready', 30)
    world.process(new, 4000)  # it grows again, but the last restart was just now
    time.sleep(5)
    assert a.child('engine0') == new and status(a)['mem_bounces'] == 1
    assert a.log_text().count('memory_bounce:') == 1


def test_a_restart_that_would_not_come_back_is_not_made(make, world):
    """The next generation needs its work space beside what this one gives back."""
    a = in_world(make, world, sets={'memory.bounce_gain_mib': 1})
    pid = settled(a, world, 1)
    world.process(pid, 1 + 16 + 3)  # 3 MiB beyond its plan
    world.available(2)
    level(a, 3)
    wait_for('somebody else is to blame', lambda: 'memory_pressure_external' in a.log_text(), 20)
    assert a.child('engine0') == pid and status(a)['mem_bounces'] == 0


def test_kernel_evidence_holds_level_2(make, world):
    world.put('self/cgroup', '4:memory:/x\n')
    world.put('cg/memory/x/memory.oom_control', 'oom_kill_disable 0\nunder_oom 0\noom_kill 0\n')
    a = in_world(make, world)
    world.put('%d/cgroup' % a.pid, '4:memory:/x\n')
    old = a.kill('engine0', 19)
    world.put('cg/memory/x/memory.oom_control', 'oom_kill_disable 0\nunder_oom 0\noom_kill 1\n')
    os.kill(old, 9)
    wait_for('the kill is named', lambda: 'oom_kill' in a.log_text())
    level(a, 2)
    assert 'killed for want of memory' in status(a)['mem_why']


# ---- for real ----

@pytest.fixture
def limited():
    if box.why_not():
        pytest.skip('not run: ' + box.why_not())
    made, boxes = [], []

    def start(mib, **kw):
        b = box.Box(mib)
        boxes.append(b)
        a = Appliance(enter=b.enter, **kw)
        made.append(a)
        return a.start(), b

    yield start
    for a in made:
        a.destroy()
    for b in boxes:
        b.remove()


def test_real_growth_in_a_limited_cgroup(limited):
    """The engine eats up the cgroup it lives in. It is restarted in order, the memory is there again, the stream whole."""
    fd, once = tempfile.mkstemp(prefix='vtonce', dir='/tmp')
    os.close(fd)
    a, b = limited(765, engine='stub', stub_args='rate=100,grow=700,once=' + once,
                   sets=dict(QUICK, **{'memory.enter_ms': 1000, 'engine.drain_s': 5}))
    old = a.child('engine0')
    s = a.stream('Hello', 1500, seed=3)
    s.run(until_events=250)
    before = b.used()
    t = threading.Thread(target=s.run)
    t.start()
    wait_for('it grows', lambda: b.used() > before + (500 << 20), 20)
    a.next_generation('engine0', old, 60)
    wait_for('the memory is back', lambda: b.used() < before + (200 << 20))
    t.join()
    assert check_transcript(s, ('normal',)) == 'normal' and s.text == stub.text(a, 3, 1500)
    assert a.log_text().count('memory_bounce:') == 1
    level(a, 0, 30)


def test_a_glutton_beside_a_real_engine(limited):
    """Another process eats up the cgroup: load is shed, nothing of ours is restarted or killed, and it is named."""
    a, b = limited(1200, sets=dict(QUICK, **{'memory.enter_ms': 500}))
    want = a.text('It was a cold evening, and', 900, ignore_eos=True)
    pids = a.children()
    s = a.stream('It was a cold evening, and', 900, ignore_eos=True)
    s.run(until_events=3)
    eater = b.eat((1200 << 20) * 0.95 / (1 << 20) - b.used() / (1 << 20), 400)
    try:
        level(a, 2, 30)
        s.run()
        assert check_transcript(s, ('normal',)) == 'normal' and s.text == want
        wait_for('it is named', lambda: 'memory_pressure_external' in a.log_text(), 30)
        assert '[%d]' % eater.pid in a.log_text()
    finally:
        eater.kill()
        eater.wait()
    level(a, 0, 30)
    assert a.children() == pids and all(alive(p) for p in pids.values())
