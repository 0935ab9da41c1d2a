#!/usr/bin/env python3
"""Measures the workshop against its budgets: bench/officina.py [--quick] [--json FILE]

Needs a build and the Python environment of the tests. Frames are drawn by bench_officina (time on a core); the rest is the
program in a pseudo-terminal of 200x50 that answers as a terminal does, before the scripted gateway. Prints the table of
docs/OFFICINA.md.
"""
import argparse
import fcntl
import json
import os
import pty
import re
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
sys.path.insert(0, os.path.join(TOP, 'tests'))

from harness.appliance import program  # noqa: E402
from harness.workshop import Gateway  # noqa: E402
from procs import cpu_s, rss_mib  # noqa: E402

ENGINE = 'engine n_ctx=4000000 certified=4000000 slots=1 model=scripted-1 checkpoints=on cut=any'


class Screen:
    """officina in a terminal; what it wrote is in `out`."""

    def __init__(self, project, home, url, *args):
        self.out = b''
        self.began = time.monotonic()
        pid, fd = pty.fork()
        if pid == 0:
            env = dict(os.environ, OFFICINA_HOME=home, TERM='xterm-256color', LC_ALL='C.UTF-8')
            env.pop('OFFICINA_CLOCK', None)
            os.execve(program('officina'), [program('officina'), project, '--engine', url, *args], env)
        self.pid, self.fd = pid, fd
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 50, 200, 0, 0))

    def read(self, seconds):
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                return
            try:
                got = os.read(self.fd, 65536)
            except OSError:
                return
            if b'\x1b[?2026$p' in got:
                os.write(self.fd, b'\x1b[?2026;2$y')  # synchronized updates: frames can be counted
            if b'\x1b[c' in got:
                os.write(self.fd, b'\x1b[?62;c')
            self.out += got
            return

    def until(self, pattern, seconds=60):
        """Time until what was written since `mark` has it."""
        begin, at = time.monotonic(), len(self.out)
        while time.monotonic() - begin < seconds:
            self.read(0.5)
            if re.search(pattern, self.out[max(0, at - 16):]):
                return time.monotonic() - begin
        raise AssertionError('no %r: %r' % (pattern, self.out[-600:]))

    def type(self, text):
        os.write(self.fd, text.encode())

    def workshop(self):
        """The keeper's child."""
        with open('/proc/%d/task/%d/children' % (self.pid, self.pid)) as f:
            return int(f.read().split()[0])

    def close(self):
        os.kill(self.workshop(), signal.SIGTERM)
        for _ in range(200):
            self.read(0.05)
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                break
        os.close(self.fd)


def folders(name):
    top = tempfile.mkdtemp(prefix='officina-bench-%s-' % name)
    for sub in ('project', 'gate'):
        os.mkdir(os.path.join(top, sub))
    return top, os.path.join(top, 'project'), os.path.join(top, 'home')


def settle(screen, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        screen.read(0.1)


def bench_start(o):
    times, cores = [], []
    for _ in range(3 if o.quick else 10):
        _, project, home = folders('start')
        s = Screen(project, home, 'http://127.0.0.1:1')
        s.until(rb'OFFICINA')
        times.append((time.monotonic() - s.began) * 1000)
        cores.append((cpu_s(s.workshop()) + cpu_s(s.pid)) * 1000)
        s.close()
    return {'first frame, no engine, ms': round(statistics.median(times), 1), 'best': round(min(times), 1),
            'of it on a core, ms': round(statistics.median(cores), 1)}


def bench_rest(o):
    top, project, home = folders('rest')
    g = Gateway(os.path.join(top, 'gate'), ENGINE + '\nELSE say "ok" end')
    s = Screen(project, home, g.url)
    s.until(rb'READY')
    s.type('x')
    settle(s, 3)
    pid, secs, res = s.workshop(), 5 if o.quick else 30, {}
    for label, keys in (('with focus', '\x1b[I'), ('without focus', '\x1b[O')):
        s.type(keys)
        settle(s, 1)
        before, wrote = cpu_s(pid), len(s.out)
        settle(s, secs)
        res['processor at rest %s, %%' % label] = round((cpu_s(pid) - before) * 100 / secs, 2)
        res['bytes written at rest %s' % label] = len(s.out) - wrote
    res['memory, empty, MiB'] = round(rss_mib(pid)['VmRSS'], 1)
    with open(os.path.join(top, 'gate', 'rec', 'log')) as f:
        head = f.read()
    s.close()
    g.stop(False)
    res['requests of the log'] = len(head.splitlines())
    return res


def bench_stream(o):
    """100 deltas a second at 200x50; a key every 150 ms."""
    top, project, home = folders('stream')
    text = ' '.join('word%d' % i for i in range(2500))
    g = Gateway(os.path.join(top, 'gate'), ENGINE + ' delta=12 gap=10\nON 1 say %s end' % json.dumps(text))
    s = Screen(project, home, g.url)
    s.until(rb'READY')
    s.type('go\r')
    s.until(rb'word9')
    pid, times, marks = s.workshop(), [], 'QZXJKVYGPH'
    cpu, began, at = cpu_s(pid), time.monotonic(), len(s.out)
    for i in range(10 if o.quick else 40):
        s.type(marks[i % 10])
        times.append(s.until(marks[i % 10].encode(), 5) * 1000)
        settle(s, 0.15)
    took, wrote = time.monotonic() - began, s.out[at:]
    frames = wrote.count(b'\x1b[?2026h')
    res = {'key to terminal while it streams, ms, median': round(statistics.median(times), 1),
           'key to terminal, p90': round(sorted(times)[int(len(times) * 0.9)], 1),
           'frames a second': round(frames / took, 1), 'bytes a frame': round(len(wrote) / max(frames, 1)),
           'processor while it streams, %': round((cpu_s(pid) - cpu) * 100 / took, 1)}
    s.type('\x1b')
    res['stop to INTERRUPTED, ms'] = round(s.until(rb'INTERRUPTED', 10) * 1000, 1)
    s.close()
    g.stop(False)
    return res


def talk(project, home, url, prompts):
    """Fills a conversation without a screen."""
    lines = ''.join(json.dumps({'type': 'user', 'text': p}) + '\n' for p in prompts)
    p = subprocess.run([program('officina'), project, '--engine', url, '--input-format', 'stream-json', '--output-format',
                        'stream-json', '--max-turns', '9999'], input=lines, capture_output=True, text=True, timeout=900,
                       env=dict(os.environ, OFFICINA_HOME=home, LC_ALL='C.UTF-8'))
    assert p.returncode == 0, (p.returncode, p.stderr[-500:], p.stdout[-500:])


def bench_resume(o):
    """A conversation of 5,000 items, and one with a transcript of 20 MB."""
    res = {}
    items, megabytes = (1000, 4) if o.quick else (5000, 20)
    calls = ' '.join('call glob %s' % json.dumps({'pattern': 'nothing%d' % k}) for k in range(30))
    many = [ENGINE] + ['ON %d %s end' % (i + 1, re.sub('nothing', 'n%d_' % i, calls)) for i in range(items // 30)]
    many.append('ELSE say "done" end')
    prose = 'The reader takes one byte past the end when the buffer is empty. ' * 12 + '\n\n'
    big = [ENGINE + ' delta=4096', 'ELSE say %s end' % json.dumps(prose * 320)]
    for label, script, prompts in (('%d items' % items, many, ['look']),
                                   ('%d MB' % megabytes, big, ['tell me more'] * (megabytes * 4))):
        top, project, home = folders('resume')
        g = Gateway(os.path.join(top, 'gate'), '\n'.join(script))
        talk(project, home, g.url, prompts)
        times, cores, rss = [], [], []
        for _ in range(3 if o.quick else 5):
            s = Screen(project, home, g.url, '--resume', 'last')
            s.until(rb'READY|INTERRUPTED')
            times.append((time.monotonic() - s.began) * 1000)
            cores.append((cpu_s(s.workshop()) + cpu_s(s.pid)) * 1000)
            settle(s, 1)
            for _ in range(20):
                s.type('\x1b[5~')
                settle(s, 0.05)
            rss.append(rss_mib(s.workshop())['VmRSS'])
            s.close()
        res['opening %s, ms' % label] = round(statistics.median(times), 1)
        res['of it on a core, %s, ms' % label] = round(statistics.median(cores), 1)
        res['memory with %s, scrolled, MiB' % label] = round(max(rss), 1)
        g.stop(False)
    return res


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--quick', action='store_true')
    p.add_argument('--json')
    p.add_argument('--only', default='')
    o = p.parse_args()
    out = {}
    if not o.only or o.only == 'frames':
        out['frames'] = json.loads(subprocess.check_output([program('bench_officina'), '64' if o.quick else '256']))
    for name, fn in (('start', bench_start), ('rest', bench_rest), ('stream', bench_stream), ('resume', bench_resume)):
        if not o.only or o.only == name:
            out[name] = fn(o)
            print('%-8s %s' % (name, json.dumps(out[name])), file=sys.stderr, flush=True)
    print(json.dumps(out, indent=1))
    if o.json:
        with open(o.json, 'w') as f:
            json.dump(out, f, indent=1)


if __name__ == '__main__':
    main()
