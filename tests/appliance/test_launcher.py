"""The two commands of the README, as a person types them."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from harness.appliance import BUILD, MODEL, TOP, free_port, wait_for
from harness.stream import get

VITRIOL = os.path.join(TOP, 'vitriol')
own_build = pytest.mark.skipif(BUILD != os.path.join(TOP, 'build'), reason='the command builds in its own folder')


@pytest.fixture
def place():
    d = tempfile.mkdtemp(prefix='vt l', dir='/tmp')  # a path with a blank
    yield d
    shutil.rmtree(d, ignore_errors=True)


def serve(place, *more):
    link = os.path.join(place, 'link')
    if not os.path.exists(link):
        os.symlink(VITRIOL, link)
    port = free_port()
    log = open(os.path.join(place, 'log'), 'w')
    p = subprocess.Popen([link, 'serve', '--port', str(port), '--run-dir', place + '/r', '--state-dir', place + '/s',
                          '--slots', '2', '--ctx', '1024'] + list(more), cwd='/', stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                         env={k: v for k, v in os.environ.items() if not k.startswith('VITRIOL_')}, start_new_session=True)
    return p, port


def healthy(p, port, place):
    assert p.poll() is None, open(place + '/log').read()
    try:
        return get(port, '/health').status == 200
    except OSError:
        return False


@own_build
def test_serve_says_a_curl_line_that_works(place):
    p, port = serve(place)
    try:
        wait_for('serve is ready', lambda: healthy(p, port, place), 60, 0.1)
        wait_for('it is said', lambda: 'curl' in open(place + '/log').read())
        with open(place + '/log') as f:
            said = f.read()
        assert str(port) in said and 'curl' in said, said
        assert len(said.splitlines()) < 40, 'a few lines, not:\n' + said
        command = re.search(r'(curl http.*)$', said, re.M).group(1)
        out = subprocess.run(['sh', '-c', command], capture_output=True, text=True, timeout=300)
        assert out.returncode == 0 and ('"choices"' in out.stdout or 'data: ' in out.stdout), (command, out)
        ctl = os.path.join(BUILD, 'supervisor', 'vitriolctl')
        assert subprocess.run([ctl, '--run-dir', place + '/r', 'status'], capture_output=True).returncode == 0
        os.killpg(p.pid, signal.SIGINT)  # Ctrl-C reaches the whole foreground group
        assert p.wait(150) == 0
    finally:
        if p.poll() is None:
            p.kill()


@own_build
def test_serve_with_a_model_and_a_taken_port(place):
    p, port = serve(place, '--model', MODEL)
    try:
        wait_for('serve is ready', lambda: healthy(p, port, place), 60, 0.1)
        q = subprocess.run([VITRIOL, 'serve', '--port', str(port), '--run-dir', place + '/r2', '--state-dir', place + '/s2'],
                           cwd='/', stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        assert q.returncode == 69 and str(port) in q.stdout + q.stderr, q
    finally:
        p.send_signal(signal.SIGTERM)
        assert p.wait(150) == 0


def test_missing_packages_without_root(place):
    """One exact command is printed, nothing is installed, 69."""
    for name, text in (('dpkg-query', 'exit 1'), ('id', 'echo 1000'), ('apt-get', 'echo called >>"%s/apt"' % place)):
        with open(os.path.join(place, name), 'w') as f:
            f.write('#!/bin/sh\n%s\n' % text)
        os.chmod(os.path.join(place, name), 0o755)
    p = subprocess.run([VITRIOL, 'serve'], env=dict(os.environ, PATH=place + ':' + os.environ['PATH']), stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=300)
    assert p.returncode == 69
    line = re.search(r'sudo apt-get install .*', p.stderr).group(0)
    for package in ('meson', 'libnng-dev', 'libsqlite3-dev', 'build-essential'):
        assert ' %s ' % package in line + ' '
    assert 'debootstrap' not in line, 'packages of the tests are not needed to serve'
    assert not os.path.exists(place + '/apt')


@own_build
def test_run_answers_in_the_terminal():
    p = subprocess.run([VITRIOL, 'run', '-m', MODEL, '-p', 'It was a cold evening, and', '--raw', '-n', '8', '--temp', '0'],
                       cwd='/', stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert p.returncode == 0 and p.stdout.strip(), p


def test_unknown_command_is_refused():
    p = subprocess.run([os.path.join(BUILD, 'supervisor', 'vitriol'), 'sing'], capture_output=True, text=True)
    assert p.returncode == 64 and 'sing' in p.stderr


@own_build
@pytest.mark.parametrize('content,code', [(None, 66), (b'GGUF', 65)])
def test_serve_ends_when_the_model_cannot_be_served(place, content, code):
    model = place + '/m.gguf'
    if content is not None:
        with open(model, 'wb') as f:
            f.write(content)
    p, _ = serve(place, '--model', model)
    try:
        assert p.wait(150) == code, open(place + '/log').read()
        assert model in open(place + '/log').read()
    finally:
        p.kill()
