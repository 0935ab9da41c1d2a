"""The table of docs/DURABILITY.md: complete, its tests exist, its mutations still apply."""

import os

import pytest

from harness import mutation
from harness.tree import TOP, read

LAWS = mutation.laws()


def test_every_law_has_one_row():
    assert sorted((law.number for law in LAWS), key=lambda n: int(n[1:])) == ['L%d' % n for n in range(1, 82)]


def test_every_row_is_proved_or_says_why_not():
    bad = [law.number for law in LAWS if bool(law.tests) == law.open]
    assert not bad, bad


def test_named_tests_exist():
    bad = [w for w in (mutation.missing(t) for law in LAWS for t in law.tests) if w]
    assert not bad, '\n'.join(sorted(set(bad)))


def test_mutations_and_rows_name_each_other():
    rows = {(law.number, name) for law in LAWS for name in law.red}
    files = {(n, m.name) for m in map(mutation.Mutation, mutation.names()) for n in m.laws}
    assert rows == files, sorted(rows ^ files)
    named = {law.number: law.tests for law in LAWS}
    bad = [m.name for m in map(mutation.Mutation, mutation.names()) if not any(m.test in named[n] for n in m.laws)]
    assert not bad, 'the test of a mutation is not in the row of its law: %s' % bad


@pytest.mark.parametrize('name', mutation.names())
def test_mutation_applies(name):
    said = mutation.Mutation(name).apply(TOP, check=True)
    assert not said, said


def test_red_runs_are_recorded():
    """Every mutation was seen red once, with the test that it names now."""
    rows = [ln.split('\t') for ln in read(os.path.join(mutation.FOLDER, 'RED.tsv')).splitlines()]
    have = {r[0]: r[1] for r in rows}
    bad = [m.name for m in map(mutation.Mutation, mutation.names()) if have.get(m.name) != m.test]
    assert not bad, 'run: ./vitriol test mutations --record (or tests/mutate.py --record NAME) for %s' % bad
