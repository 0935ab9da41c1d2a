#!/usr/bin/env python3
"""Disturbs a whole appliance for a while, by chance but repeatably, under a mixed load, and judges every answer.

chaos.py [--seed N] [--minutes M] [--kills N] [--clients N]
Without --kills: kills, stops, a full disk, a cgroup filled to its limit, a store that stands still, knocking on internal
sockets, clients that leave; M minutes (30). With --kills: SIGKILL only, until there were N.

An answer is normal, and then it is the undisturbed text to the byte; or it ends with the error event and terminator, or
with a 503; only a death of the gateway, or of vitriold, may cut it off. Anything else is wrong or silent, and the run
fails. The seed is printed: faults and requests come in the same order again, at moments that depend on the machine. The
last line is 'ok' or 'FAILED'.
"""
import argparse
import collections
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import box, stream  # noqa: E402
from harness.appliance import Appliance, wait_for  # noqa: E402
from harness.stream import check_transcript  # noqa: E402

PROMPTS = ['The first story is about a', 'It was a cold evening, and the old man', 'In the year of the great flood',
           'She said that the', 'Once there was a king who', 'The sea was calm and', 'A letter came for', 'Nobody knew why']
LENGTHS = (20, 120, 400)
SETS = {'engine.slots': 4, 'engine.ctx_tokens': 2048, 'engine.hang_budget_s': 4, 'engine.drain_s': 5, 'gateway.resume_attempts': 1000,
        'gateway.resume_max_age_s': 600, 'store.quota_mib': 4096, 'memory.enter_ms': 500, 'memory.leave_ms': 1000}
MEMORY_MIB = 1500


def descriptors(pid):
    """How many of each kind the process has."""
    kinds = collections.Counter()
    for fd in os.listdir('/proc/%d/fd' % pid):
        try:
            kinds[re.sub(r':\[\d+\]$', '', os.readlink('/proc/%d/fd/%s' % (pid, fd)))] += 1
        except OSError:
            pass  # closed meanwhile
    return kinds


class Death:
    """Of a gateway, or of a vitriold with its gateway: from the moment before the signal, which may come long after it was
    decided on a busy machine, until the kernel says that all are gone, and with them their connections."""

    def __init__(self, name, fds):
        self.name, self.fds, self.begin, self.end = name, fds, time.monotonic(), None

    def watch(self):
        for fd in self.fds:
            p = select.poll()
            p.register(fd, select.POLLIN)
            p.poll()
            os.close(fd)
        self.end = time.monotonic()

    def meets(self, t0, t1):
        """Something was on its way from t0 to t1 when they died."""
        return self.begin <= t1 and (self.end is None or self.end >= t0)


class Run:
    def __init__(self, opt):
        self.opt, self.random = opt, random.Random(opt.seed)
        self.faults, self.ends = collections.Counter(), collections.Counter()
        self.bad, self.deaths, self.rss, self.ended = [], [], {}, False
        self.lock, self.over = threading.Lock(), threading.Event()
        self.box = None if box.why_not() else box.Box(MEMORY_MIB)
        self.disk = self.mount()
        # Kills that come faster than a generation can prove itself would only be waited for.
        sets = dict(SETS, **({'supervisor.backoff_max_ms': 200} if opt.kills else {}))
        self.app = Appliance(engine='real', sets=sets, holder=True, state_dir=self.disk,
                             enter=self.box.enter if self.box else None)

    def mount(self):
        """A small filesystem for the state, where the machine allows one."""
        d = tempfile.mkdtemp(prefix='vtchaos', dir='/tmp')
        if os.geteuid() != 0 or subprocess.call(['mount', '-t', 'tmpfs', '-o', 'size=48m,mode=0777', 'tmpfs', d],
                                                stderr=subprocess.DEVNULL) != 0:
            print('not run: full disk (this machine lets us mount nothing)')
            os.rmdir(d)
            return None
        return d

    def close(self):
        self.app.destroy()
        if self.disk:
            subprocess.call(['umount', '-l', self.disk])
            os.rmdir(self.disk)
        if self.box:
            self.box.remove()

    # -- the load --

    def references(self):
        return {(p, n): self.app.text(p, n, ignore_eos=True) for p in PROMPTS for n in LENGTHS}

    def cut(self, t0, what):
        """An answer that was asked for at t0 is cut off: a gateway, or the vitriold above it, died meanwhile, or it is silent."""
        with self.lock:
            deaths = list(self.deaths)
        now = time.monotonic()
        if any(d.meets(t0, now) for d in deaths):
            return self.note('cut by a death of the gateway')
        last = 'none had'
        if deaths:
            last = 'the last was that of %s, begun %.3f s and over %.3f s before the request' % (
                deaths[-1].name, t0 - deaths[-1].begin, t0 - deaths[-1].end)
        self.note('SILENT', '%s, %.3f s after it was asked for, although no gateway died meanwhile (%s)' % (what, now - t0, last))

    def note(self, end, text=None):
        with self.lock:
            if self.ended:
                return
            self.ends[end] += 1
            if text:
                self.bad.append(text)

    def one(self, rng):
        prompt, n = rng.choice(PROMPTS), rng.choice(LENGTHS)
        kind = rng.choice(('stream', 'stream', 'stream', 'plain', 'slow', 'leaves'))
        t0, want = time.monotonic(), self.want[prompt, n]
        body = {'prompt': prompt, 'max_tokens': n, 'temperature': 0, 'ignore_eos': True}
        try:
            if kind == 'plain':
                r = stream.post(self.app.port, '/v1/completions', body, timeout=300)
                got = r.json()
                if r.status != 200:
                    stream.check_error(r.status, r.headers, r.raw)
                    self.note('refused')
                    return time.sleep(0.3)
                text = got['choices'][0]['text']
                return self.note('whole') if text == want else self.note('WRONG', 'plain: %r is not %r' % (text, want))
            s = stream.Stream(self.app.port, '/v1/completions', body, timeout=300)
            if kind == 'leaves':
                s.run(until_events=rng.randrange(1, 15))
                s.r.close()
                return self.note('left')
            if kind == 'slow' and s.status == 200:
                s.run(until_events=3)
                time.sleep(rng.uniform(0.5, 3))
            s.run()
            if s.end == 'cut':
                if not want.startswith(s.text):
                    return self.note('WRONG', 'cut: %r does not begin %r' % (s.text, want))
                return self.cut(t0, '%s: cut after %r' % (kind, s.r.raw[-400:]))
            how = check_transcript(s)
            if how == 'normal':
                return self.note('whole') if s.text == want else self.note('WRONG', '%s: %r is not %r' % (kind, s.text, want))
            if not want.startswith(s.text):
                return self.note('WRONG', 'error: %r does not begin %r' % (s.text, want))
            self.note('refused' if s.status != 200 else 'error event')
            time.sleep(0.3)
        except AssertionError as e:
            self.note('SILENT', str(e)[:600])
        except TimeoutError:
            self.note('SILENT', '%s: nothing for 300 s' % kind)
        except (OSError, stream.Cut, IndexError) as e:
            self.cut(t0, '%s: %r' % (kind, e))

    def client(self, number):
        rng = random.Random(self.opt.seed * 1000 + number)
        while not self.over.is_set():
            self.one(rng)

    # -- the faults --

    def kill(self, name):
        with self.lock:
            self.faults['kill ' + name] += 1
        try:
            if name in ('gateway', 'vitriold'):
                return self.kill_gateway(name)
            self.app.kill(name)
        except (OSError, AssertionError):
            pass

    def kill_gateway(self, name):
        """Kills it, or vitriold, which it follows as soon as its clients are told."""
        gateway = self.app.child('gateway') if name == 'gateway' else self.app.children().get('gateway')
        fds = [os.pidfd_open(p) for p in {'gateway': [gateway], 'vitriold': [self.app.pid, gateway]}[name] if p]
        death = Death(name, fds)
        with self.lock:
            self.deaths.append(death)
        try:
            signal.pidfd_send_signal(fds[0], signal.SIGKILL)
        finally:
            threading.Thread(target=death.watch, daemon=True).start()

    def stop(self, name, seconds):
        self.faults['stop %s' % name] += 1
        try:
            pid = self.app.child(name)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)
        except (OSError, AssertionError):
            pass

    def fill_disk(self):
        if not self.disk:
            return
        self.faults['full disk'] += 1
        path = os.path.join(self.disk, 'filler')
        with open(path, 'wb', buffering=0) as f:
            try:
                while True:
                    f.write(b'x' * 65536)
            except OSError:
                pass
        time.sleep(self.random.uniform(1, 5))
        os.unlink(path)

    def fill_memory(self):
        if not self.box:
            return
        self.faults['full cgroup'] += 1
        eater = self.box.eat(MEMORY_MIB * 0.94 - self.box.used() / (1 << 20), 600)
        time.sleep(self.random.uniform(3, 8))
        eater.kill()
        eater.wait()

    def knocks(self):
        """Connects to every socket of the run directory and leaves, which is what deafens a listener."""
        self.faults['knocking'] += 1
        for root, _, names in os.walk(self.app.run_dir):
            for n in names:
                try:
                    with socket.socket(socket.AF_UNIX) as k:
                        k.settimeout(1)
                        k.connect(os.path.join(root, n))
                except OSError:
                    pass

    def disturb(self):
        r = self.random
        r.choice((lambda: self.kill('engine0'), lambda: self.kill('engine0'), lambda: self.kill('engine0'),
                  lambda: self.kill('store'), lambda: self.kill('gateway'), lambda: self.kill('vitriold'),
                  lambda: self.stop('engine0', r.uniform(0.2, 2)), lambda: self.stop('engine0', 7),
                  lambda: self.stop('store', r.uniform(1, 6)), lambda: self.stop('gateway', r.uniform(0.2, 1)),
                  self.fill_disk, self.fill_memory, self.knocks))()

    def kills_only(self):
        """Only what serves is killed: a loading engine that is killed again and again proves nothing."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                if stream.get(self.app.port, '/health', timeout=5).status == 200:
                    break
            except (OSError, stream.Cut, IndexError):
                pass
            time.sleep(0.05)
        time.sleep(self.random.uniform(0, 1.5))
        self.kill(self.random.choices(('engine0', 'store', 'gateway', 'vitriold'), (70, 15, 10, 5))[0])

    # -- watching --

    def measure(self):
        try:
            pids = dict(self.app.children(), vitriold=self.app.pid)
        except (OSError, ValueError):
            return
        for name, pid in pids.items():
            try:
                with open('/proc/%d/status' % pid) as f:
                    kb = next(int(ln.split()[1]) for ln in f if ln.startswith('VmRSS'))
                row = (time.monotonic(), kb, descriptors(pid))
            except (OSError, StopIteration, ValueError):
                continue
            self.rss.setdefault((name, pid), []).append(row)

    def growth(self, name):
        """Of the one of that name that lived longest, from its 30th second on: seconds, KiB, what descriptors it gained, KiB
        at the end; and how many samples of how many processes were taken. Descriptors: the most of the last third against
        the most of the first, since a child that is just being replaced has none."""
        spans, lives = [], [rows for (n, _), rows in self.rss.items() if n == name]
        for rows in lives:
            late = [x for x in rows if x[0] - rows[0][0] >= 30]
            if len(late) < 2:
                continue
            third = (len(late) + 2) // 3
            most = [max((x[2] for x in part), key=lambda c: c.total()) for part in (late[:third], late[-third:])]
            gained = collections.Counter(most[1])
            gained.subtract(most[0])
            spans.append((late[-1][0] - late[0][0], late[-1][1] - late[0][1], gained, late[-1][1]))
        longest = max(spans, key=lambda x: x[0], default=(0, 0, collections.Counter(), 0))
        return longest + (sum(map(len, lives)), len(lives))

    def go(self):
        a, opt = self.app, self.opt
        a.start()
        self.want = self.references()
        clients = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(opt.clients)]
        for c in clients:
            c.start()
        began = told = time.monotonic()
        while True:
            kills = sum(n for f, n in self.faults.items() if f.startswith('kill'))
            now = time.monotonic()
            if kills >= opt.kills if opt.kills else now - began >= opt.minutes * 60:
                break
            if opt.kills:
                self.kills_only()
            else:
                time.sleep(self.random.uniform(1, 6))
                self.disturb()
            self.measure()
            if now - told >= 60:
                told = now
                print('%5.0f s  %s' % (now - began, self.summary()), flush=True)
        self.over.set()
        for c in clients:
            c.join(240)
            if c.is_alive():
                self.note('SILENT', 'a client waits for ever')
        a.wait_ready(120)
        for (p, n), text in self.want.items():
            if a.text(p, n, ignore_eos=True) != text:
                self.note('WRONG', 'afterwards %r goes on differently' % p)
        wait_for('all children are up', lambda: all(n in a.children() for n in ('engine0', 'store', 'gateway')), 60)
        return time.monotonic() - began

    def summary(self):
        return '%d answers: %s; %d faults: %s' % (
            sum(self.ends.values()), ', '.join('%d %s' % (n, k) for k, n in sorted(self.ends.items())),
            sum(self.faults.values()), ', '.join('%d %s' % (n, k) for k, n in sorted(self.faults.items())))


def main():
    args = argparse.ArgumentParser(prog='vitriol test chaos', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument('--seed', type=int, default=random.SystemRandom().randrange(1 << 31))
    args.add_argument('--minutes', type=float, default=30)
    args.add_argument('--kills', type=int, default=0)
    args.add_argument('--clients', type=int, default=4)
    opt = args.parse_args()
    print('seed %d' % opt.seed, flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to clean up on that, too
    run, died = Run(opt), ''
    try:
        seconds = run.go()
    except AssertionError as e:
        died, seconds = str(e), 0
    except KeyboardInterrupt:
        died, seconds = 'interrupted', 0
    finally:
        run.ended = True  # what its end does to clients is not judged
        run.over.set()
        log = run.app.log_text()
        run.close()
    print('seed %d, %.0f s, %s' % (opt.seed, seconds, run.summary()))
    for name in ('vitriold', 'gateway', 'store', 'engine0'):
        span, kib, gained, end, samples, lives = run.growth(name)
        kinds = ''.join(', %s %+d' % (k, n) for k, n in sorted(gained.items()) if n)
        print('%s over %.0f s of one life: %+d KiB to %d, %+d descriptors%s (%d samples of %d processes)' % (
            name, span, kib, end, gained.total(), kinds, samples, lives))
        # An engine's pages and the store's cache fill as they are used, up to what they were given.
        if kib > {'vitriold': 8192, 'gateway': 16384}.get(name, kib) or \
                gained.total() > {'vitriold': 8, 'gateway': 16}.get(name, gained.total()):
            run.bad.append('%s grew' % name)
    for text in run.bad[:10] + ([died] if died else []):
        print('  ' + text)
    if run.bad or died:
        path = os.path.join(tempfile.gettempdir(), 'vitriol-chaos-%d.log' % opt.seed)
        with open(path, 'w') as f:
            f.write(log)
        print('log of the appliance: ' + path)
    print('FAILED' if run.bad or died else 'ok')
    sys.exit(1 if run.bad or died else 0)


if __name__ == '__main__':
    main()
