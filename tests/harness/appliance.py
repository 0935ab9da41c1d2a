"""Starts a real appliance in folders of its own and offers what tests do to it."""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from . import stream

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), '..', '..'))
BUILD = os.path.realpath(os.environ.get('VTEST_BUILD', os.path.join(TOP, 'build')))
MODEL = os.path.join(TOP, 'models', 'lapis-hybrid-q4_k_m.gguf')
CHILDREN = ('engine0', 'store', 'gateway')
PATIENCE = 5  # limits of waits are those of a quiet machine; a busy one takes several times as long


def program(name):
    """The built program of that name."""
    for root, _, files in os.walk(BUILD):
        if name in files and not root.endswith('.p'):
            path = os.path.join(root, name)
            if os.access(path, os.X_OK):
                return path
    raise FileNotFoundError('%s is not in %s: build first' % (name, BUILD))


def free_port():
    """A port that nobody listens on, from below those that the kernel gives to connections: one of these could take it
    before the program does that it is for."""
    while True:
        with socket.socket() as s:
            with contextlib.suppress(OSError):
                s.bind(('127.0.0.1', random.randrange(16384, 32768)))
                return s.getsockname()[1]


def clean_env():
    env = {k: v for k, v in os.environ.items() if not k.startswith(('VITRIOL_', 'LISTEN_', 'NOTIFY_'))}
    dirs = ['supervisor', 'engine-worker/worker', 'engine-worker/stub', 'engine-worker/fake', 'engine-worker/cuda', 'engine-worker/tools', 'persist-sidecar', 'gateway', 'pull', 'vault', 'oom-shield', 'external-worker']
    dirs.append('officina')
    env['VITRIOL_LIBEXEC'] = ':'.join(os.path.join(BUILD, d) for d in dirs)
    env['VITRIOL_MODELS'] = os.path.join(TOP, 'models')
    return env


def alive(pid):
    try:
        with open('/proc/%d/stat' % pid) as f:
            return f.read().rpartition(')')[2].split()[0] not in 'ZX'
    except OSError:
        return False


def wait_for(what, cond, timeout=20, step=0.02):
    """Polls cond until it returns something true, which is returned; fails with `what` when even a busy machine
    would have done it. What has to happen within a time is `within`."""
    return within(what, cond, timeout * PATIENCE, step)


def within(what, cond, timeout, step=0.02):
    """The same with a limit that is meant: short of what would happen otherwise, long for a busy machine."""
    end = time.monotonic() + timeout
    while True:
        v = cond()
        if v:
            return v
        if time.monotonic() > end:
            raise AssertionError('%s: not within %g s' % (what, timeout))
        time.sleep(step)


class Appliance:
    """engine: 'real' or 'stub'. sets: configuration keys. holder: keep the port over restarts of vitriold."""

    def __init__(self, engine='real', sets=None, holder=False, model=None, stub_args='', root=None, state_dir=None,
                 enter=None, options=()):
        self.root = root or tempfile.mkdtemp(prefix='vt', dir='/tmp')
        self.own_root = root is None
        self.run_dir = os.path.join(self.root, 'r')
        self.state_dir = state_dir or os.path.join(self.root, 's')
        self.log_path = os.path.join(self.root, 'log')
        self.port = free_port()
        self.holder = holder
        self.options = list(options)  # of vitriold's command line, beside the keys
        self.enter = enter  # called in the process that becomes vitriold
        self.proc = None
        self.sets = {'paths.run_dir': self.run_dir, 'paths.state_dir': self.state_dir,
                     'store.min_free_mib': 0, 'store.ballast_mib': 0, 'supervisor.breaker': 'off',
                     'store.autosave_s': 1, 'store.turn_save_ms': 100}
        if not holder:
            self.sets['http.listen'] = '127.0.0.1:%d' % self.port
        if engine == 'stub':
            self.sets['engine.program'] = program('vitriol-stub')
            if stub_args:
                self.sets['engine.args'] = stub_args
        self.sets['model.path'] = model or MODEL
        self.sets.update(sets or {})

    # -- life --

    def argv(self):
        args = [program('vitriold')]
        for k, v in self.sets.items():
            args += ['--set', '%s=%s' % (k, v)]
        return args + self.options

    def start(self, wait=True):
        os.makedirs(self.run_dir, exist_ok=True)
        os.makedirs(self.state_dir, exist_ok=True)
        argv = self.argv()
        if self.holder:
            self.pidfile = os.path.join(self.root, 'pid')
            argv = [sys.executable, os.path.join(os.path.dirname(__file__), 'holder.py'),
                    str(self.port), self.pidfile, '--'] + argv
        self.log = open(self.log_path, 'ab')
        self.proc = subprocess.Popen(argv, env=clean_env(), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                     start_new_session=True, preexec_fn=self.enter)
        if self.holder:
            wait_for('the holder starts vitriold', lambda: os.path.exists(self.pidfile))
        if wait:
            self.wait_ready()
        return self

    def __enter__(self):
        return self.start() if self.proc is None else self

    def __exit__(self, kind, value, tb):
        if kind is not None:
            sys.stderr.write('---- log of the appliance\n' + self.log_text()[-6000:] + '\n----\n')
        self.destroy()

    def destroy(self):
        """Ends everything without ceremony and removes the folders."""
        if self.proc is not None and self.proc.poll() is None:
            pids = [self.pid] + list(self.children().values()) + [self.proc.pid]
            for p in [self.proc.pid] + pids:
                try:
                    os.kill(p, signal.SIGKILL)
                except OSError:
                    pass
            self.proc.wait()
            wait_for('children end', lambda: not any(alive(p) for p in pids), 10)
        if self.proc is not None:
            self.log.close()
        if self.own_root:
            shutil.rmtree(self.root, ignore_errors=True)

    def stop(self, timeout=60):
        """SIGTERM, as an operator does; returns the exit code."""
        self.proc.send_signal(signal.SIGTERM)
        return self.proc.wait(timeout * PATIENCE)

    def log_text(self):
        with open(self.log_path, errors='replace') as f:
            return f.read()

    # -- processes --

    @property
    def pid(self):
        if not self.holder:
            return self.proc.pid
        with open(self.pidfile) as f:
            return int(f.read())

    def children(self):
        """name -> pid of vitriold's living children, read from the kernel."""
        out, parent = {}, str(self.pid)
        for p in os.listdir('/proc'):
            if not p.isdigit():
                continue
            try:
                with open('/proc/%s/stat' % p) as f:
                    st = f.read().rpartition(')')[2].split()
                with open('/proc/%s/cmdline' % p, 'rb') as f:
                    argv = f.read().decode(errors='replace').split('\0')
            except OSError:
                continue
            if st[0] not in 'ZX' and st[1] == parent and '--name' in argv:
                out[argv[argv.index('--name') + 1]] = int(p)
        return out

    def child(self, name):
        return wait_for('child %s exists' % name, lambda: self.children().get(name))

    def kill(self, name, sig=signal.SIGKILL):
        """Signals a child, or vitriold itself; returns the pid."""
        pid = self.pid if name == 'vitriold' else self.child(name)
        os.kill(pid, sig)
        return pid

    def next_generation(self, name, old, timeout=30):
        """Waits until another process than `old` runs under that name and requests are served; returns its pid."""
        wait_for('a new ' + name, lambda: self.children().get(name) not in (None, old), timeout)
        self.wait_ready(timeout)
        return self.child(name)

    # -- asking --

    def wait_ready(self, timeout=60):
        def up():
            if self.proc.poll() is not None:
                raise AssertionError('vitriold ended with %d:\n%s' % (self.proc.returncode, self.log_text()[-3000:]))
            try:
                return stream.get(self.port, '/health', timeout=20).status == 200
            except (OSError, stream.Cut):
                return False
        wait_for('the appliance is ready', up, timeout, 0.05)

    def kill_all(self):
        """The power fails: everything gets SIGKILL at once."""
        pids = [self.pid] + list(self.children().values())
        for p in pids:
            os.kill(p, signal.SIGKILL)
        self.proc.wait()
        wait_for('children end', lambda: not any(alive(p) for p in pids), 10)

    def ctl(self, *args, timeout=30, check=True):
        """vitriolctl ...: (exit code, standard output)."""
        p = subprocess.run([program('vitriolctl'), '--run-dir', self.run_dir] + list(args), env=clean_env(),
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout * PATIENCE)
        if check:
            assert p.returncode == 0, (args, p.returncode, p.stdout, p.stderr)
        self.ctl_err = p.stderr
        return p.returncode, p.stdout

    def ctl_json(self, *args, **kw):
        return json.loads(self.ctl('--json', *args, **kw)[1])

    def metric(self, name, labels=None, absent=None):
        """Sum of a series in /metrics; labels: those that must match; absent: what a series counts that
        no process has told yet."""
        body = stream.get(self.port, '/metrics').read().decode()
        total, seen = 0.0, False
        for line in body.splitlines():
            m = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)', line)
            if m and m.group(1) == name:
                have = dict(re.findall(r'(\w+)="([^"]*)"', m.group(2) or ''))
                if all(have.get(k) == v for k, v in (labels or {}).items()):
                    total, seen = total + float(m.group(3)), True
        if not seen and absent is not None:
            return absent
        assert seen, 'no series %s %s in /metrics' % (name, labels or '')
        return total

    # -- requests --

    def completion(self, prompt, n, **kw):
        """POST /v1/completions, greedy; returns the parsed answer."""
        r = stream.post(self.port, '/v1/completions', dict({'prompt': prompt, 'max_tokens': n, 'temperature': 0}, **kw))
        body = r.json()
        assert r.status == 200, body
        return body

    def text(self, prompt, n, **kw):
        return self.completion(prompt, n, **kw)['choices'][0]['text']

    def stream(self, prompt, n, path='/v1/completions', timeout=120, **kw):
        body = dict({'max_tokens': n, 'temperature': 0}, **kw)
        if path.endswith('chat/completions'):
            body['messages'] = [{'role': 'user', 'content': prompt}]
        else:
            body['prompt'] = prompt
        return stream.Stream(self.port, path, body, timeout=timeout)
