"""The out-of-memory shield among real processes of a user without privileges."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from harness.appliance import Appliance, program, wait_for

NOBODY = 65534
HOLD = 'import sys, time\nb = bytearray(int(sys.argv[1]) << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nprint("held", flush=True)\ntime.sleep(600)\n'
FORK = 'import os, sys, time\nb = bytearray(int(sys.argv[1]) << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nprint("held", flush=True)\nsys.stdin.readline()\npid = os.fork()\nif pid: print(pid, flush=True)\ntime.sleep(600)\n'


def as_user():
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def can_protect():
    """Whether this machine lets root give a negative value."""
    return subprocess.run([sys.executable, '-c', "with open('/proc/self/oom_score_adj', 'w') as f: f.write('-200')"],
                          stderr=subprocess.DEVNULL).returncode == 0


def adj(pid):
    with open('/proc/%d/oom_score_adj' % pid) as f:
        return int(f.read())


@pytest.fixture
def zoo():
    """zoo(mib, name=..., adj=..., user=...): a process of that size; its program is a copy of the interpreter of that name."""
    if os.geteuid() != 0:
        pytest.skip('not run: the zoo needs a user of its own, which only root can take')
    folder, alive = tempfile.mkdtemp(prefix='vtzoo', dir='/tmp'), []
    os.chmod(folder, 0o777)
    real = os.path.realpath('/usr/bin/python3')

    def start(mib, name=None, adj=None, user=as_user, code=HOLD):
        exe = real
        if name:
            exe = os.path.join(folder, name)
            if not os.path.exists(exe):
                shutil.copy(real, exe)

        def prepare():
            if adj is not None:
                with open('/proc/self/oom_score_adj', 'w') as f:
                    f.write(str(adj))
            if user:
                user()
        p = subprocess.Popen([exe, '-I', '-c', code, str(mib)], preexec_fn=prepare, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, cwd='/')
        alive.append(p)
        assert p.stdout.readline() == 'held\n'
        return p

    start.folder = folder
    yield start
    for p in alive:
        p.kill()
        p.wait()
    shutil.rmtree(folder, ignore_errors=True)


def shield(zoo, what, *settings):
    p = subprocess.run([program('vitriol-shield'), what, zoo.folder] + list(settings), preexec_fn=as_user, cwd='/',
                       capture_output=True, text=True)
    assert p.returncode == 0, p.stdout + p.stderr
    return p.stdout


def test_zoo(zoo):
    browser = zoo(100)
    small = zoo(5)
    modest = zoo(100, adj=100)
    eager = zoo(100, adj=800)
    guarded = zoo(100, adj=-200 if can_protect() else None, name=None if can_protect() else 'sudo')
    foreign = zoo(100, user=None)
    sshd = zoo(100, name='sshd')
    screen = zoo(100, name='Xwayland')
    fuse = zoo(100, name='sshfs')
    kept = zoo(100, name='precious')
    keep = 'shield.keep=' + os.path.join(zoo.folder, 'precious')
    before = {p.pid: adj(p.pid) for p in (browser, small, modest, eager, guarded, foreign, sshd, screen, fuse, kept)}
    look = shield(zoo, '--look', keep)
    assert {p: adj(p) for p in before} == before, 'looking changed something'
    assert any(ln.split()[0] == str(browser.pid) and 'would be marked' in ln for ln in look.splitlines())
    for p, why in ((sshd, 'login'), (screen, 'display'), (fuse, 'storage'), (kept, 'listed'), (guarded, 'protected' if can_protect() else 'login')):
        assert any(ln.split()[0] == str(p.pid) and why in ln for ln in look.splitlines()), (why, look)
    report = shield(zoo, '--mark', keep)
    want = {**before, browser.pid: 300, modest.pid: 300}
    assert {p: adj(p) for p in before} == want, report
    assert shield(zoo, '--mark', keep).splitlines()[1].split()[-1] == '2'
    assert {p: adj(p) for p in before} == want
    heir = zoo(100, code=FORK)
    shield(zoo, '--mark', keep)
    heir.stdin.write('\n')
    heir.stdin.flush()
    born = int(heir.stdout.readline())
    assert adj(born) == 300
    try:
        shield(zoo, '--undo')
        assert {p: adj(p) for p in before} == before
        assert adj(heir.pid) == adj(born) == before[browser.pid]
    finally:
        os.kill(born, signal.SIGKILL)
    assert not os.path.exists(os.path.join(zoo.folder, 'shield.journal'))


def test_hostile_settings(zoo):
    for bad in ('shield.floor=0', 'shield.floor=-5', 'shield.keep=a/b', 'shield.keep=/no/such/file', 'shield.nonsense=1', 'x'):
        p = subprocess.run([program('vitriol-shield'), '--mark', zoo.folder, bad], preexec_fn=as_user, cwd='/',
                           capture_output=True, text=True)
        assert p.returncode in (64, 78) and bad.split('=')[0] in p.stderr, (bad, p)


@pytest.mark.parametrize('victim', ['shield', 'vitriold', None], ids=['shield killed', 'vitriold killed', 'ordered stop'])
def test_as_a_child(zoo, victim, monkeypatch):
    """Under a user's vitriold: it marks, spares the appliance, and everything is taken back however it ends."""
    other = zoo(100)
    monkeypatch.setenv('HOME', zoo.folder)
    root = os.path.join(zoo.folder, 'a')
    os.makedirs(root)
    shutil.chown(root, NOBODY, NOBODY)
    a = Appliance(engine='stub', root=root, enter=as_user, sets={'paths.cgroup_root': '/nonexistent'})
    os.makedirs(a.run_dir)
    os.makedirs(a.state_dir)
    for d in (a.run_dir, a.state_dir):
        shutil.chown(d, NOBODY, NOBODY)
    was = adj(other.pid)
    a.start()
    try:
        wait_for('the mark', lambda: adj(other.pid) == 300)
        kids = a.children()
        assert 'shield' in kids and all(adj(p) == was for p in list(kids.values()) + [a.pid])
        assert 'marked now     1' in a.ctl('shield')[1] and a.ctl_json('shield')['marked now'] == 1
        wait_for('the series', lambda: a.metric('vitriol_shield_marked', absent=0) == 1)
        if victim == 'shield':
            a.kill('shield')
            wait_for('another shield', lambda: a.children().get('shield') not in (None, kids['shield']))
            assert adj(other.pid) == 300
            assert a.stop() == 0
        elif victim == 'vitriold':
            a.kill('vitriold')
        else:
            assert a.stop() == 0
        wait_for('it is taken back', lambda: adj(other.pid) == was, 5)
    finally:
        a.destroy()


def test_stands_down_below_a_limit(zoo, monkeypatch):
    from harness import box
    if box.why_not():
        pytest.skip('not run: ' + box.why_not())
    other = zoo(100)
    monkeypatch.setenv('HOME', zoo.folder)
    b = box.Box(900)
    root = os.path.join(zoo.folder, 'a')
    os.makedirs(root + '/r')
    os.makedirs(root + '/s')
    for d in (root, root + '/r', root + '/s'):
        shutil.chown(d, NOBODY, NOBODY)

    def enter():
        b.enter()
        as_user()
    a = Appliance(engine='stub', root=root, enter=enter)
    a.start()
    try:
        wait_for('the report', lambda: 'scope=cgroup' in a.ctl('shield', check=False)[1])
        time.sleep(1)
        assert adj(other.pid) != 300
    finally:
        a.destroy()
        b.remove()
