"""Rules of the house that a program can check."""
import glob
import os
import re
import subprocess

import pytest

from harness.appliance import BUILD
from harness.tree import CODE, TOP, files, read

C = files(('.c', '.h'), CODE)


def test_there_is_code():
    assert len(C) > 20


def test_clang_format():
    bad = []
    for i in range(0, len(C), 40):
        p = subprocess.run(['clang-format', '--dry-run', '-Werror'] + C[i:i + 40], cwd=TOP, capture_output=True, text=True)
        bad += sorted(set(re.findall(r'^([^:\n]+):\d+:\d+: error', p.stderr, re.M)))
    assert not bad, 'run clang-format -i on: ' + ' '.join(bad)


def test_sockets_are_made_in_one_place():
    bad = [f for f in C if re.search(r'\bnng_\w+_open\s*\(', read(f)) and not f.startswith('common/sock')]
    assert not bad, 'only common/sock*.c opens NNG sockets: %s' % bad


def test_no_loose_ends():
    """Marks of unfinished work, and paths of the machine it was written on."""
    words = ['TO' + 'DO', 'FIX' + 'ME', r'\bXX' + r'X\b', '/wo' + 'rk/', '/tmp/' + 'wt', r'\bshared' + '/', '/root' + '/[a-z.]']
    pattern = re.compile('|'.join(words))
    bad = []
    for f in files():
        for n, line in enumerate(read(f).splitlines(), 1):
            if pattern.search(line):
                bad.append('%s:%d: %s' % (f, n, line.strip()[:100]))
    assert not bad, '\n'.join(bad)


def test_no_header_reaches_across_processes():
    """A folder includes common/ and itself; the tokenizer is a library of its own."""
    bad = []
    for f in C:
        own = f.split(os.sep)[0]
        for inc in re.findall(r'^\s*#\s*include\s+"([^"]+)"', read(f), re.M):
            target = os.path.normpath(os.path.join(os.path.dirname(f), inc))
            if inc.startswith('..') and target.split(os.sep)[0] not in (own, 'common'):
                bad.append('%s includes %s' % (f, inc))
    assert not bad, bad


def test_shell_scripts():
    scripts = ['vitriol', '.ci/run'] + files(('.sh',))
    p = subprocess.run(['shellcheck', '-s', 'sh'] + scripts, cwd=TOP, capture_output=True, text=True)
    assert p.returncode == 0, p.stdout


def test_python_scripts_compile():
    for f in files(('.py',)):
        compile(read(f), f, 'exec')


ENDS = tuple('.%d' % n for n in (1, 5, 7, 8))
MAN = files(ENDS, ('docs',)) + sorted(p for p in glob.glob(os.path.join(BUILD, 'docs', '*')) if p.endswith(ENDS))


def test_there_are_man_pages():
    have = {os.path.basename(f) for f in MAN}
    want = {'vitriol.1', 'vitriolctl.1', 'vitriol-tool.1', 'vitriol-pull.1', 'vitriold.8', 'vitriol-engine.8', 'vitriol-gateway.8',
            'vitriol-store.8', 'vitriol-shield.8', 'vitriol.conf.5', 'vitriol-wire.7'}
    want.add('officina.1')
    assert want <= have, want - have


@pytest.mark.parametrize('page', MAN, ids=os.path.basename)
def test_man_page(page):
    p = subprocess.run(['mandoc', '-T', 'lint', '-W', 'warning', page], cwd=TOP, capture_output=True, text=True)
    assert p.returncode == 0 and p.stdout == '', p.stdout + p.stderr


def test_links_of_documents():
    """Files that the documents point to exist."""
    bad = []
    for f in files(('.md',)):
        for target in re.findall(r'\]\(([^)#:]+)\)', read(f)):
            if not os.path.exists(os.path.join(TOP, os.path.dirname(f), target)):
                bad.append('%s -> %s' % (f, target))
    assert not bad, bad


def test_config_reference_is_current():
    want = subprocess.check_output([os.path.join(BUILD, 'common', 'vt-config-reference')], text=True)
    assert read('docs/CONFIG_REFERENCE.md') == want, 'run: build/common/vt-config-reference > docs/CONFIG_REFERENCE.md'


def test_packages_file_is_plain():
    for line in read('deps/packages.txt').splitlines():
        assert re.fullmatch(r'(#.*|(test: )?[a-z0-9][a-z0-9.+-]*)', line), line
