"""The laws of docs/DURABILITY.md, their tests, and the mutations that turn those tests red.

A mutation is a file NAME.patch below tests/mutations: a few lines 'Law:', 'Test:' and 'What:', then a unified diff with
one line of context. A test is named as in the document: FOLDER/test_NOUN.c::FUNCTION for a suite of cmocka, or
tests/.../test_NOUN.py::FUNCTION for pytest.
"""
import glob
import os
import re
import subprocess

from .tree import TOP, read

FOLDER = os.path.join('tests', 'mutations')
DOCUMENT = os.path.join('docs', 'DURABILITY.md')
TEST = re.compile(r'[\w./-]+/test_\w+\.(?:c|py)::\w+')
ROW = re.compile(r'^\| (L\d+) \| (.*?) \| (.*?) \| (.*?) \|$', re.M)


class Mutation:
    def __init__(self, name):
        self.name = name
        self.path = os.path.join(FOLDER, name + '.patch')
        text = read(self.path)
        head, mark, self.diff = text.partition('--- a/')
        self.diff = mark + self.diff
        self.head = dict(ln.split(': ', 1) for ln in head.splitlines() if ': ' in ln)
        missing = {'Law', 'Test', 'What'} - set(self.head)
        assert not missing and mark, '%s: no %s' % (self.path, ', '.join(sorted(missing)) or 'diff')
        self.laws = re.findall(r'L\d+', self.head['Law'])
        self.test = self.head['Test'].strip()
        self.what = self.head['What'].strip()
        self.files = re.findall(r'^\+\+\+ b/(\S+)', self.diff, re.M)

    def apply(self, tree, check=False):
        """Applies it to a tree, or only asks whether it would; returns what git says against it."""
        env = dict(os.environ, GIT_CEILING_DIRECTORIES=os.path.dirname(os.path.realpath(tree)))
        p = subprocess.run(['git', 'apply', '-p1'] + (['--check'] if check else []) + ['-'], cwd=tree, env=env,
                           input=self.diff, capture_output=True, text=True)
        return p.stderr.strip() if p.returncode else ''


def names():
    return sorted(os.path.basename(p)[:-len('.patch')] for p in glob.glob(os.path.join(TOP, FOLDER, '*.patch')))


class Law:
    def __init__(self, number, text, proofs, red):
        self.number, self.text = number, text
        self.tests = TEST.findall(proofs)
        self.red = re.findall(r'`([\w-]+)`', red)
        self.open = proofs.startswith('not proved')  # and the reason


def laws():
    return [Law(*m) for m in ROW.findall(read(DOCUMENT))]


def missing(test):
    """Why a named test is not there, or an empty string."""
    path, function = test.split('::')
    if not os.path.exists(os.path.join(TOP, path)):
        return path + ' does not exist'
    text = read(path)
    pattern = r'^def %s\(' if path.endswith('.py') else r'^static void %s\('
    return '' if re.search(pattern % re.escape(function), text, re.M) else '%s has no %s' % (path, function)
