#!/usr/bin/env python3
"""Runs every test: run.py [STAGE...] [--serial] [--seconds N] [--only TARGET,...] [--jobs N]
stages: unit asan lint fuzz text engine appliance officina faults units, and gpu, which runs only when it is named.
Commands of their own, with options of their own: mutations (shows that tests can fail), chaos (half an
hour of faults, or N kills).

`./vitriol test` installs the packages and builds before it comes here. Stages that wait for processes run beside those that
compute (LANES): each writes into a log of its own in the build folder, which is printed whole when the stage ends. With
--serial, and where one stage is asked for, they run in turn and print as they go.
The last line is 'N passed, N failed, N skipped' over all stages, and the exit code is 1 when anything failed.
Other options are the fuzz stage's: seconds for each target (30), which targets (all), how many at once (2).
"""
import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
import xml.etree.ElementTree as ET

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
BUILD = os.path.join(TOP, 'build')
VENV = os.path.join(TOP, '.venv')
SAN_ENV = {'ASAN_OPTIONS': 'detect_leaks=1:abort_on_error=0:allocator_may_return_null=1',
           'UBSAN_OPTIONS': 'print_stacktrace=1:halt_on_error=1'}


class Counts:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.names = []

    def fail(self, name):
        self.failed += 1
        self.names.append(name)

    def add(self, o):
        self.passed += o.passed
        self.failed += o.failed
        self.skipped += o.skipped
        self.names += o.names


def sh(argv, log, **kw):
    """Runs a command into a log file; on failure prints the end of it. True when it went well."""
    with open(log, 'w') as f:
        rc = subprocess.call(argv, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, **kw)
    if rc:
        with open(log, errors='replace') as f:
            sys.stdout.write(''.join(f.readlines()[-60:]))
        print('failed with %d: %s (log: %s)' % (rc, ' '.join(argv), log), flush=True)
    return rc == 0


def log_of(tree, what):
    """Where a build tree's logs go: into the release tree, which is never removed here."""
    return os.path.join(BUILD, '%s.%s.log' % (os.path.basename(tree), what))


def setup(tree, options, env=None):
    """Makes a build tree once; rebuilds it from nothing when the clone has moved."""
    mark = os.path.join(tree, '.top')
    if os.path.exists(mark):
        with open(mark) as f:
            if f.read() != TOP:
                shutil.rmtree(tree)
    if os.path.exists(os.path.join(tree, 'build.ninja')):
        return True
    if not sh(['meson', 'setup', tree, TOP] + options, log_of(tree, 'setup'), env=dict(os.environ, **(env or {}))):
        return False
    with open(mark, 'w') as f:
        f.write(TOP)
    return True


def meson_tests(tree, suites, env=None, label='', patience=1):
    c = Counts()
    argv = ['meson', 'test', '-C', tree, '--no-rebuild', '--print-errorlogs', '--num-processes', '2',
            '--timeout-multiplier', str(patience)]
    for s in suites:
        argv += ['--suite', s]
    log = os.path.join(tree, 'meson-logs', 'testlog.json')
    if os.path.exists(log):
        os.unlink(log)
    subprocess.call(argv, stdin=subprocess.DEVNULL, env=dict(os.environ, **(env or {})))
    if not os.path.exists(log):
        c.fail(label + 'meson test wrote no log')
        return c
    with open(log) as f:
        for line in f:
            t = json.loads(line)
            if t['result'] in ('OK', 'EXPECTEDFAIL'):
                c.passed += 1
            elif t['result'] == 'SKIP':
                c.skipped += 1
            else:
                c.fail(label + t['name'])
    return c


def stage_unit():
    return meson_tests(BUILD, ['unit', 'slow'], patience=10)


def introspect(tree, what):
    return json.loads(subprocess.check_output(['meson', 'introspect', tree, '--' + what], text=True))


def programs(tree, suite):
    """What the tests of a suite need, as ninja names it: not the programs of other suites, tools and pages."""
    wanted = {i for t in introspect(tree, 'tests') if any(s.endswith(':' + suite) for s in t['suite']) for i in t['depends']}
    return sorted(os.path.relpath(f, tree) for t in introspect(tree, 'targets') if t['id'] in wanted for f in t['filename'])


def build(tree, targets):
    return sh(['ninja', '-C', tree, '-j', '2'] + targets, log_of(tree, 'build'))


def stage_asan():
    c, tree = Counts(), os.path.join(TOP, 'build-asan')
    # gcc warns of things that its sanitizers put there themselves; the release build has -Werror
    if not setup(tree, ['-Db_sanitize=address,undefined', '-Dbuildtype=debugoptimized', '-Db_lundef=false', '-Dwerror=false', '-Dcuda=disabled']) or \
            not build(tree, programs(tree, 'unit')):
        c.fail('build with ASan and UBSan')
        return c
    return meson_tests(tree, ['unit'], SAN_ENV, 'asan: ', patience=10)


def stage_fuzz(seconds=30, only=(), jobs=2):
    c, tree = Counts(), os.path.join(TOP, 'build-fuzz')
    options = ['-Dfuzz=true', '-Db_sanitize=address,undefined', '-Dbuildtype=debugoptimized', '-Db_lundef=false',
               '-Dcuda=disabled']
    if not setup(tree, options, {'CC': 'clang'}):
        c.fail('set-up of the fuzz build')
        return c
    targets = sorted((t['name'], t['filename'][0]) for t in introspect(tree, 'targets') if t['name'].startswith('fuzz_'))
    unknown = set(only) - {name[5:] for name, _ in targets}
    if unknown:
        sys.exit('unknown fuzz target %s; there are: %s' % (', '.join(sorted(unknown)), ' '.join(n[5:] for n, _ in targets)))
    targets = [t for t in targets if not only or t[0][5:] in only]
    if not targets:
        c.fail('no fuzz target')
        return c
    rel = [os.path.relpath(path, tree) for _, path in targets]
    if not build(tree, rel):
        c.fail('fuzz build')
        return c
    work = os.path.join(tree, 'work')
    os.makedirs(work, exist_ok=True)
    subprocess.check_call([sys.executable, os.path.join(TOP, 'tests', 'fuzz', 'dictionary.py'), work])
    running, queue = [], list(targets)
    while queue or running:
        while queue and len(running) < jobs:
            name, path = queue.pop(0)
            running.append((name,) + fuzz_start(name, path, work, seconds))
        time.sleep(0.5)
        for r in list(running):
            name, proc, log = r
            if proc.poll() is None:
                continue
            running.remove(r)
            if proc.returncode == 0:
                c.passed += 1
            else:
                with open(log, errors='replace') as f:
                    sys.stdout.write(''.join(f.readlines()[-40:]))
                c.fail('%s (log: %s)' % (name, log))
            print('  %s: %s' % (name, fuzz_summary(log)), flush=True)
    return c


def fuzz_start(name, path, work, seconds):
    corpus, log = os.path.join(work, name + '.corpus'), os.path.join(work, name + '.log')
    os.makedirs(corpus, exist_ok=True)
    argv = [path, '-max_total_time=%d' % seconds, '-timeout=20', '-rss_limit_mb=2048', '-print_final_stats=1',
            '-artifact_prefix=%s/%s.' % (work, name), corpus]
    seeds = os.path.join(TOP, 'tests', 'fuzz', 'seeds', name)
    if os.path.isdir(seeds):
        argv.append(seeds)
    words = os.path.join(work, name + '.dict')
    if os.path.exists(words):
        argv.append('-dict=' + words)
    f = open(log, 'w')
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=f, stderr=f, env=dict(os.environ, **SAN_ENV)), log


def fuzz_summary(log):
    with open(log, errors='replace') as f:
        stat = dict(ln.split(':', 1) for ln in f if ln.startswith('stat::') for ln in [ln[6:]])
    return '%s runs' % stat.get('number_of_executed_units', '?').strip()


def venv():
    """The Python environment of the tests, with exact versions; made once for each requirements.txt."""
    with open(os.path.join(BUILD, 'venv.lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # stages that start together want it together
        return make_venv(os.path.join(TOP, 'tests', 'requirements.txt'), os.path.join(VENV, '.requirements'))


def make_venv(req, mark):
    with open(req) as f:
        want = f.read()
    if os.path.exists(mark):
        with open(mark) as f:
            if f.read() == want:
                return True
    python = '/usr/bin/python3' if os.path.exists('/usr/bin/python3') else sys.executable
    shutil.rmtree(VENV, ignore_errors=True)
    log = os.path.join(BUILD, 'venv.log')
    if not sh([python, '-m', 'venv', VENV], log) or \
            not sh([os.path.join(VENV, 'bin', 'pip'), 'install', '--disable-pip-version-check', '-q', '-r', req], log):
        return False
    with open(mark, 'w') as f:
        f.write(want)
    return True


def pytest(folder):
    c = Counts()
    if not venv():
        c.fail('Python environment of the tests')
        return c
    xml = os.path.join(BUILD, 'pytest-%s.xml' % folder)
    if os.path.exists(xml):
        os.unlink(xml)
    subprocess.call([os.path.join(VENV, 'bin', 'python'), '-m', 'pytest', '-q', '--durations=12', '--junitxml', xml,
                     os.path.join(TOP, 'tests', folder)], stdin=subprocess.DEVNULL, cwd=TOP)
    if not os.path.exists(xml):
        c.fail('pytest %s wrote no result' % folder)
        return c
    cases = list(ET.parse(xml).getroot().iter('testcase'))
    for t in cases:
        if t.find('failure') is not None or t.find('error') is not None:
            c.fail('%s::%s' % (t.get('classname'), t.get('name')))
        elif t.find('skipped') is not None:
            c.skipped += 1
        else:
            c.passed += 1
    if not cases:
        c.fail('pytest %s ran no test' % folder)
    return c


def stage_gpu():
    """Kernels, whole models, and the appliance with its faults, on a real GPU."""
    c = Counts()
    if not any(os.path.exists(p) for p in ('/dev/nvidiactl', '/dev/dxg')):
        print('skipped: there is no NVIDIA GPU on this machine (no /dev/nvidiactl)', flush=True)
        c.skipped = 1
        return c
    if not os.path.exists(os.path.join(BUILD, 'engine-worker', 'cuda', 'vitriol-cuda.so')):
        c.fail('gpu: this build has no code for GPUs (no nvcc, or -Dcuda=disabled)')
        return c
    c.add(meson_tests(BUILD, ['gpu']))
    c.add(pytest('gpu'))
    return c


STAGES = {
    'unit': stage_unit,
    'asan': stage_asan,
    'lint': lambda: pytest('lint'),
    'fuzz': stage_fuzz,
    'text': lambda: pytest('text'),
    'engine': lambda: pytest('engine'),
    'appliance': lambda: pytest('appliance'),
    'officina': lambda: pytest('officina'),
    'faults': lambda: pytest('faults'),
    'units': lambda: pytest('units'),
}
ON_REQUEST = {'gpu': stage_gpu}
# What runs beside each other: the first lane computes on every processor, the others mostly wait for processes and disks.
LANES = [['asan', 'fuzz'], ['appliance', 'officina', 'text', 'lint'], ['unit', 'faults', 'units', 'engine', 'gpu']]


class Run:
    """A stage in a process and session of its own."""

    def __init__(self, name, stage, quiet):
        self.name = name
        self.t0 = time.monotonic()
        self.log = os.path.join(BUILD, 'stage-%s.log' % name) if quiet else None
        self.result = os.path.join(BUILD, 'stage-%s.json' % name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.result)
        print('== %s%s' % (name, ' begins (log: %s)' % self.log if quiet else ''), flush=True)
        self.pid = os.fork()
        if self.pid == 0:
            self.work(stage)

    def work(self, stage):
        """In the new process; does not return."""
        rc = 1
        try:
            os.setsid()
            signal.signal(signal.SIGINT, lambda *_: None)  # its programs hear it, too, and end; a default again for them
            if self.log:
                fd = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                os.dup2(fd, 1)
                os.dup2(fd, 2)
            c = stage()
            with open(self.result, 'w') as f:
                json.dump(vars(c), f)
            rc = 0
        except SystemExit as e:
            print(e)
        except BaseException:  # nothing may come back into the parent's code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(rc)

    def end(self, usage):
        """After its process ended: prints what it said, and its counts."""
        self.wall, self.cpu = time.monotonic() - self.t0, usage.ru_utime + usage.ru_stime
        self.counts = Counts()
        try:
            with open(self.result) as f:
                vars(self.counts).update(json.load(f))
        except (OSError, ValueError):
            self.counts.fail('stage %s ended without a result' % self.name)
        if self.log:
            print('== %s' % self.name)
            with open(self.log, errors='replace') as f:
                shutil.copyfileobj(f, sys.stdout)
        print('== %s: %s in %.0f s' % (self.name, said(self.counts), self.wall), flush=True)


def said(c):
    return '%d passed, %d failed, %d skipped' % (c.passed, c.failed, c.skipped)


def run_lanes(lanes, known):
    """Runs the lanes beside each other, the stages of each in turn; the ended runs, in the order of their ends."""
    waiting, running, done = [list(n) for n in lanes], {}, []

    def go(lane):
        if waiting[lane]:
            name = waiting[lane].pop(0)
            r = Run(name, known[name], len(lanes) > 1)
            running[r.pid] = (lane, r)

    for lane in range(len(lanes)):
        go(lane)
    while running:
        pid, _, usage = os.wait4(-1, 0)
        if pid in running:  # others are orphans of tests (adopt_orphans)
            lane, r = running.pop(pid)
            r.end(usage)
            done.append(r)
            go(lane)
    return done


def adopt_orphans():
    """What tests leave behind becomes a child of this process, so that all of it can be found and ended."""
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants():
    children = {}
    for p in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError):
            with open('/proc/%s/stat' % p) as f:
                state, parent = f.read().rpartition(')')[2].split()[:2]
            if state not in 'ZX':
                children.setdefault(int(parent), []).append(int(p))
    found, todo = [], [os.getpid()]
    while todo:
        more = children.get(todo.pop(), [])
        found += more
        todo += more
    return found


def end_all():
    """Ends every process that a stage started: they are asked, and after a few seconds they are not."""
    for sig, patience in ((signal.SIGINT, 5), (signal.SIGTERM, 3), (signal.SIGKILL, 10)):
        for p in descendants():
            with contextlib.suppress(OSError):
                os.kill(p, sig)
        end = time.monotonic() + patience
        while time.monotonic() < end:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            left = descendants()
            if not left:
                return
            if sig == signal.SIGKILL:
                for p in left:
                    with contextlib.suppress(OSError):
                        os.kill(p, sig)
            time.sleep(0.1)


ALONE = {'mutations': 'mutate.py', 'chaos': 'chaos.py'}


def alone(name, args):
    if not venv():
        sys.exit('the Python environment of the tests could not be made')
    argv = [os.path.join(VENV, 'bin', 'python'), os.path.join(TOP, 'tests', ALONE[name])]
    sys.exit(subprocess.call(argv + args, stdin=subprocess.DEVNULL))


def main():
    if len(sys.argv) > 1 and sys.argv[1] in ALONE:
        alone(sys.argv[1], sys.argv[2:])
    args = argparse.ArgumentParser(prog='vitriol test', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument('stage', nargs='*')
    args.add_argument('--serial', action='store_true', help='one stage after the other')
    args.add_argument('--seconds', type=int, default=30, help='for each fuzz target')
    args.add_argument('--only', default='', help='fuzz targets, with commas between them')
    args.add_argument('--jobs', type=int, default=2, help='fuzz targets at once')
    opt = args.parse_intermixed_args()
    names, known = opt.stage or list(STAGES), {**STAGES, **ON_REQUEST}
    known['fuzz'] = lambda: stage_fuzz(opt.seconds, [n for n in opt.only.split(',') if n], max(1, opt.jobs))
    bad = [n for n in names if n not in known]
    if bad:
        sys.exit('unknown stage %s; there are: %s' % (', '.join(bad), ' '.join(known)))
    lanes = [names] if opt.serial else [lane for lane in ([n for n in lane if n in names] for lane in LANES) if lane]
    os.makedirs(BUILD, exist_ok=True)
    adopt_orphans()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    t0 = time.monotonic()
    try:
        done = run_lanes(lanes, known)
    except KeyboardInterrupt:
        print('\ninterrupted: everything that runs is ended', flush=True)
        end_all()
        sys.exit(130)
    total = Counts()
    print()
    for r in sorted(done, key=lambda r: names.index(r.name)):
        total.add(r.counts)
        print('%-10s %5.0f s (%5.0f s computing)   %s' % (r.name, r.wall, r.cpu, said(r.counts)))
    print('%-10s %5.0f s' % ('all', time.monotonic() - t0))
    for n in total.names:
        print('FAILED: ' + n)
    print(said(total), flush=True)
    sys.exit(1 if total.failed else 0)


main()
