#!/usr/bin/env python3
"""Shows that the tests of the durability laws can fail: mutate.py [--record] [NAME...]

Each mutation below tests/mutations is applied to a scratch copy (build-mutations/), which is built and in which the
test that the mutation names is run: it has to pass without the mutation and to fail with it. NAME is a mutation, or a law
(L39). --record writes what failed into tests/mutations/RED.tsv.

The last line is 'N red, N failed'; the exit code is 1 when a mutation does not apply, does not build, or stays green.
"""
import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import mutation, tree  # noqa: E402

SCRATCH = os.path.join(tree.TOP, 'build-mutations', 'tree')
BUILD = os.path.join(SCRATCH, 'build')
RED = os.path.join(tree.TOP, mutation.FOLDER, 'RED.tsv')


class Broken(Exception):
    """The run says nothing about the test."""


def copy_tree():
    """What differs is copied, so that only that is built again."""
    want = set(tree.files()) | {os.path.join(d, f) for d, _, fs in os.walk('models') for f in fs}
    for f in want:
        src, dst = os.path.join(tree.TOP, f), os.path.join(SCRATCH, f)
        if os.path.islink(src) or not os.path.isfile(src):
            continue
        if os.path.exists(dst) and open(src, 'rb').read() == open(dst, 'rb').read():
            continue
        os.makedirs(os.path.dirname(dst), exist_ok=True)
        shutil.copy(src, dst)
    have = {os.path.join(os.path.relpath(d, SCRATCH), f).removeprefix('./') for d, ds, fs in os.walk(SCRATCH)
            for f in fs if not os.path.relpath(d, SCRATCH).startswith(('build', '.'))
            or os.path.relpath(d, SCRATCH) == '.'}
    for f in have - want:
        if '__pycache__' not in f and not f.startswith('build'):
            os.unlink(os.path.join(SCRATCH, f))


def run(argv, timeout, **kw):
    try:
        p = subprocess.run(argv, cwd=SCRATCH, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           timeout=timeout, **kw)
        return p.returncode, p.stdout.decode(errors='replace')
    except subprocess.TimeoutExpired as e:
        return 124, (e.stdout or b'').decode(errors='replace')


def build(targets):
    rc, out = run(['ninja', '-C', BUILD] + targets, 3600)
    if rc:
        raise Broken('does not build: ' + '\n'.join(out.splitlines()[-15:]))


def programs():
    """What tests in Python start: no suites of cmocka, no benchmarks."""
    intro = json.loads(run(['meson', 'introspect', BUILD, '--targets'], 60)[1])
    return [os.path.relpath(x['filename'][0], BUILD) for x in intro if x['type'] in ('executable', 'shared module')
            and not x['name'].startswith(('test_', 'bench', 'fuzz'))]


class Suite:
    """A suite of cmocka, by the path of its source."""

    def __init__(self, test):
        self.path, self.function = test.split('::')
        noun = os.path.basename(self.path)[len('test_'):-len('.c')]
        intro = json.loads(run(['meson', 'introspect', BUILD, '--tests', '--targets'], 60)[1])
        source = os.path.join(SCRATCH, self.path)
        made = {x['id'] for x in intro['targets'] for s in x['target_sources']
                if source in map(os.path.normpath, s.get('sources', []))}
        found = [t for t in intro['tests'] if t['name'].endswith('/' + noun) and made & set(t['depends'])]
        if not found:
            raise Broken('no test of meson is made from ' + self.path)
        self.name = found[0]['name']
        self.targets = [os.path.relpath(x['filename'][0], BUILD) for x in intro['targets']
                        if x['id'] in found[0]['depends']]

    def run(self):
        """Whether the function passed, and what it said if not."""
        build(self.targets)
        rc, out = run(['meson', 'test', '-C', BUILD, '--no-rebuild', '--num-processes', '1', self.name], 1800)
        log = tree.read(os.path.join(BUILD, 'meson-logs', 'testlog.txt'))
        if '[ RUN      ] %s\n' % self.function not in log:
            raise Broken('%s did not run: %s' % (self.function, out[-400:]))
        with open(os.path.join(BUILD, 'meson-logs', 'testlog.json')) as f:
            said = json.loads(f.readline()).get('stderr') or ''
        if '[       OK ] %s\n' % self.function in log:
            return True, ''
        said = re.findall(r'^(?:\[  ERROR   \] ---|\[   LINE   \] ---|.*Assertion) *(.*)', said, re.M)
        return False, ' '.join(said[:2]).strip() or 'it ended the process'


class Pytest:
    def __init__(self, test):
        self.test = test

    def run(self):
        build(programs())
        rc, out = run([sys.executable, '-m', 'pytest', '-q', '-x', '-p', 'no:cacheprovider', self.test], 1800,
                      env=dict(os.environ, VTEST_BUILD=BUILD))
        if rc not in (0, 1, 124) or ' skipped' in out.splitlines()[-1]:
            raise Broken('pytest says: ' + '\n'.join(out.splitlines()[-6:]))
        said = [ln[1:].strip() for ln in out.splitlines() if ln.startswith('E ')]
        return rc == 0, 'it did not end' if rc == 124 else said[0] if said else out[-200:]


def runner(test):
    return Suite(test) if test.split('::')[0].endswith('.c') else Pytest(test)


def red_run(m, green):
    """Runs one mutation; returns what its test said."""
    if m.test not in green:
        green[m.test] = runner(m.test)
        ok, said = green[m.test].run()
        if not ok:
            del green[m.test]
            raise Broken('the test fails without it: ' + said)
    before = {f: open(os.path.join(SCRATCH, f), 'rb').read() for f in m.files}
    try:
        said = m.apply(SCRATCH)
        if said:
            raise Broken('does not apply: ' + said)
        ok, said = green[m.test].run()
        if ok:
            raise Broken('the test stays green')
        return said
    finally:
        for f, data in before.items():
            with open(os.path.join(SCRATCH, f), 'wb') as out:
                out.write(data)


def record(rows):
    old = {}
    if os.path.exists(RED):
        with open(RED) as f:
            old = {ln.split('\t')[0]: ln for ln in f.read().splitlines() if ln}
    old.update({r[0]: '\t'.join(r) for r in rows})
    known = mutation.names()
    with open(RED, 'w') as f:
        f.write(''.join(old[n] + '\n' for n in known if n in old))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument('name', nargs='*')
    args.add_argument('--record', action='store_true')
    opt = args.parse_args()
    os.chdir(tree.TOP)
    chosen = [m for m in map(mutation.Mutation, mutation.names())
              if not opt.name or m.name in opt.name or set(m.laws) & set(opt.name)]
    if not chosen:
        sys.exit('no such mutation; there are: ' + ' '.join(mutation.names()))
    copy_tree()
    if not os.path.exists(os.path.join(BUILD, 'build.ninja')):
        rc, out = run(['meson', 'setup', BUILD, '-Dcuda=disabled', '-Dwerror=false'], 600)
        if rc:
            sys.exit(out)
    green, rows, failed = {}, [], []
    for m in sorted(chosen, key=lambda m: m.test):
        t0 = time.monotonic()
        try:
            said = red_run(m, green)
            said = ' '.join(said.replace(SCRATCH + '/', '').split())[:160]
            rows.append((m.name, m.test, datetime.date.today().isoformat(), said))
            print('red    %-40s %4.0f s  %s' % (m.name, time.monotonic() - t0, said), flush=True)
        except Broken as e:
            failed.append(m.name)
            print('FAILED %-40s %4.0f s  %s' % (m.name, time.monotonic() - t0, e), flush=True)
        if opt.record:
            record(rows)
    print('%d red, %d failed' % (len(rows), len(failed)))
    sys.exit(1 if failed else 0)


main()
