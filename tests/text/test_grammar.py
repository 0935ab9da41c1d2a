"""Grammars and schemas against the public jsonschema and re packages: what is accepted validates, what validates is accepted."""
import decimal
import json
import math
import os
import random
import re
import subprocess

import jsonschema
import pytest

from harness.appliance import program

PAIRS = int(os.environ.get('GRAMMAR_PAIRS', '10000'))
SEED = int(os.environ.get('GRAMMAR_SEED', '20240607'))


def ours(questions):
    lines = ''.join(json.dumps(q) + '\n' for q in questions)
    p = subprocess.run([program('grammar_cli')], input=lines, capture_output=True, text=True, timeout=300)
    assert p.returncode == 0, p.stderr
    answers = [json.loads(ln) for ln in p.stdout.split('\n') if ln]
    assert len(answers) == len(questions)
    return answers


def accepts(text, **source):
    return ours([dict(source, texts=[text])])[0]


# ---- random schemas, each with a way to make valid values ----

CHARS = 'abcxyz 0189_-"\\/\n\t\u00e9\u03a9\u20ac\u4e2d\U0001f600\x7f\x01'
NAMES = ['a', 'b', 'ab', 'abc', 'name', 'x y', 'q"t', 'b\\s', '\u00fc', '', 'type', '$ref']


def word(r, lo, hi):
    return ''.join(r.choice(CHARS) for _ in range(r.randint(lo, hi)))


# pattern, and a maker of matches
PATTERNS = [
    (r'^[a-z]{2,5}$', lambda r: ''.join(r.choice('abz') for _ in range(r.randint(2, 5)))),
    (r'^(foo|ba[rz])+$', lambda r: ''.join(r.choice(['foo', 'bar', 'baz']) for _ in range(r.randint(1, 4)))),
    (r'\d{3}-\d{4}', lambda r: word(r, 0, 3) + '555-%04d' % r.randint(0, 9999) + word(r, 0, 3)),
    (r'^[^"\\]*$', lambda r: word(r, 0, 6).replace('"', '').replace('\\', '')),
    (r'^a.c$|^[ \t]*$', lambda r: r.choice(['a\u00e9c', 'axc', '', ' \t'])),
    (r'x$', lambda r: word(r, 0, 4) + 'x'),
    (r'^(?:[A-Fa-f0-9]{2}:){2}\w?$', lambda r: 'aF:09:' + r.choice(['', 'z', '_'])),
]


def make_string(r):
    k = r.random()
    if k < 0.25:
        pattern, make = r.choice(PATTERNS)
        return {'type': 'string', 'pattern': pattern}, make
    if k < 0.4:
        return r.choice([
            ({'type': 'string', 'format': 'date'}, lambda r: r.choice(['2024-02-29', '1999-12-31', '2023-06-30'])),
            ({'type': 'string', 'format': 'uuid'}, lambda r: '0123abcd-0000-4000-8000-%012x' % r.getrandbits(48)),
            ({'type': 'string', 'format': 'ipv4'}, lambda r: '.'.join(str(r.randint(0, 255)) for _ in range(4))),
            ({'type': 'string', 'format': 'date-time'}, lambda r: '2024-02-29T23:59:0%d.5Z' % r.randint(0, 9)),
        ])
    lo, hi = r.choice([(0, 8), (0, 3), (2, 5), (3, 3), (0, 300)])
    s = {'type': 'string'}
    if lo or r.random() < 0.3:
        s['minLength'] = lo
    if hi != 8 or r.random() < 0.3:
        s['maxLength'] = hi
    return s, lambda r: word(r, lo, hi)


def make_integer(r):
    s, lo, hi = {'type': 'integer'}, -10 ** 6, 10 ** 6
    if r.random() < 0.6:
        lo = r.choice([-1000, -99, -10, -1, 0, 1, 7, 99, 100, 12345])
        s.update({'minimum': lo} if r.random() < 0.7 else {'exclusiveMinimum': lo - 1})
    if r.random() < 0.6:
        hi = lo + r.choice([0, 1, 9, 10, 12, 99, 1234, 10 ** 6])
        s.update({'maximum': hi} if r.random() < 0.7 else {'exclusiveMaximum': hi + 1})
    return s, lambda r: r.choice([lo, hi, r.randint(lo, hi)])


def make_number(r):
    s, lo, hi = {'type': 'number'}, -1000.0, 1000.0
    if r.random() < 0.3:
        return s, lambda r: r.choice([0, -0.5, 1e10, -2.5e-7, 123.25, 10 ** 17, r.uniform(-5, 5)])
    lo = r.choice([-12.5, -1, -0.25, 0, 0.001, 0.5, 1.25, 99])
    hi = lo + r.choice([0.5, 1, 1.75, 10, 1000])
    s['minimum'], s['maximum'] = lo, hi
    return s, lambda r: r.choice([lo, hi, round(r.uniform(lo, hi), r.randint(4, 6)), (lo + hi) / 2])


def make_array(r, depth):
    n = r.choice([0, 0, 1, 2, 3])
    prefix = [make(r, depth + 1) for _ in range(n)]
    items = make(r, depth + 1)
    lo, hi = r.choice([(0, 3), (1, 2), (2, 4), (0, 0), (3, 3), (0, 40)])
    s = {'type': 'array'}
    if n:
        s['prefixItems'] = [p[0] for p in prefix]
    s['items'] = items[0]
    if lo:
        s['minItems'] = lo
    s['maxItems'] = hi

    def value(r):
        return [prefix[i][1](r) if i < n else items[1](r) for i in range(r.randint(lo, min(hi, lo + 4)))]
    return s, value


def make_object(r, depth):
    names = r.sample(NAMES, r.randint(0, 5))
    members = {k: make(r, depth + 1) for k in names}
    required = [k for k in names if r.random() < 0.5]
    s = {'type': 'object', 'properties': {k: members[k][0] for k in names}, 'required': required}
    other = r.choice([None, make(r, depth + 1)])
    s['additionalProperties'] = other[0] if other else False
    if not names and other and r.random() < 0.5:
        del s['properties']
    at_most = None
    if r.random() < 0.25:
        at_most = s['maxProperties'] = r.randint(len(required), len(names) + 2)
    at_least = 0
    if r.random() < 0.25 and (other or len(names) > len(required)) and (at_most is None or at_most > len(required)):
        at_least = s['minProperties'] = len(required) + 1

    def value(r):
        extra = ['zz%d' % i + r.choice(['', 'a', '\u00e9']) for i in range(r.randint(0, 3))] if other else []
        extra += [k + 'x' for k in names[:1] if other and r.random() < 0.5 and k + 'x' not in names]
        optional = [k for k in names if k not in required] + extra
        room = len(optional) if at_most is None else min(len(optional), at_most - len(required))
        low = max(0, at_least - len(required))
        if low > len(optional):
            optional, room = optional + ['zzz'], max(room, 1)
        chosen = set(r.sample(optional, r.randint(min(low, room), max(room, 0)))) | set(required)
        return {k: (members[k][1] if k in members else other[1])(r) for k in names + extra + ['zzz'] if k in chosen}
    return s, value


def make_multiple(r):
    n = r.choice([1, 2, 3, 5, 7, 10, 12, 60, 99, 100])
    s, lo, hi = {'type': r.choice(['integer', 'number']), 'multipleOf': n}, -40, 10 ** r.randint(2, 6)
    if r.random() < 0.6:
        lo = r.choice([-5000, -101, -1, 0, 1, 8, 95, 100, 12345])
        s.update({'minimum': lo} if r.random() < 0.7 else {'exclusiveMinimum': lo - 1})
        hi = lo + 1000
    if r.random() < 0.5:
        hi = lo + r.choice([100, 150, 999, 12345])
        s.update({'maximum': hi} if r.random() < 0.7 else {'exclusiveMaximum': hi + 1})
    return s, lambda r: n * r.randint(-(-lo // n), hi // n)


def make_step(r):
    """Fractions that a float holds exactly, for the other side computes with floats."""
    n = r.choice([0.5, 0.25, 0.125])
    s, lo, hi = {'type': 'number', 'multipleOf': n}, -300.0, 10000.0
    if r.random() < 0.7:
        lo = r.choice([-20, -1.3, -0.25, 0, 0.1, 0.5, 7.625, 99])
        s.update({'minimum': lo} if r.random() < 0.7 else {'exclusiveMinimum': lo})
    if r.random() < 0.6:
        hi = lo + r.choice([1.5, 2, 10.25, 1000])
        s.update({'maximum': hi} if r.random() < 0.7 else {'exclusiveMaximum': hi})
    return s, lambda r: n * r.randint(math.floor(lo / n) + 1, math.ceil(hi / n) - 1)


def make_names(r):
    k, more = r.random(), {}
    if r.random() < 0.4:
        more['maxProperties'] = 2
    if r.random() < 0.3:
        more['minProperties'] = 1
    if k < 0.4:
        s = {'type': 'object', 'propertyNames': {'pattern': '^[a-z]{2,4}$'}, 'additionalProperties': {'type': 'integer'}}
        return dict(s, **more), lambda r: {k: r.randint(0, 9) for k in r.sample(['ab', 'abc', 'zzzz', 'qq'], r.randint(1, 2))}
    if k < 0.7:
        s = {'type': 'object', 'propertyNames': r.choice([{'enum': ['x', 'y"', 'z', 5]}, {'type': 'string', 'enum': ['x', 'y"', 'z']}]),
             'additionalProperties': r.choice([True, {'type': 'null'}])}
        if r.random() < 0.4:
            s['required'] = ['x']
        names = ['x'] if 'required' in s else []
        return dict(s, **more), lambda r: {k: None for k in names + r.sample([k for k in ['x', 'y"', 'z'] if k not in names], r.randint(1 - len(names), 1))}
    return dict({'type': 'object', 'propertyNames': {'maxLength': 3}}, **more), lambda r: {k: 1 for k in r.sample(['', 'a', '\u20ac\u20acx', 'abc'], r.randint(1, 2))}


def make_unique(r):
    values = r.sample(['a', 'ab', 'b"', '\u00e9', 1, -7, 2.5, None, [], {'k': 1}], r.randint(1, 6))
    lo = r.choice([0, 0, 1, min(2, len(values))])
    hi = r.randint(lo, len(values))
    s = {'type': 'array', 'items': {'enum': values}, 'uniqueItems': True}
    if lo:
        s['minItems'] = lo
    if hi < len(values) or r.random() < 0.3:
        s['maxItems'] = hi
    return s, lambda r: r.sample(values, r.randint(lo, hi))


def make_counted(r, s):
    """Between so many elements that `contains` and so many."""
    s['items'] = {'type': 'integer', 'minimum': 0, 'maximum': 99}
    least, most = r.choice([(0, 2), (1, 1), (2, 2), (2, None), (3, 5), (0, 0), (4, None)])
    if least != 1 or r.random() < 0.5:
        s['minContains'] = least
    if most is not None:
        s['maxContains'] = most
    lo, hi = r.choice([(0, None), (least, least + 3), (least + 1, None)])
    if lo:
        s['minItems'] = lo
    if hi:
        s['maxItems'] = hi

    def value(r):
        v = [r.randint(50, 99) for _ in range(r.randint(least, least + 1 if most is None else most))]
        v = v[:hi] if hi else v
        room = hi - len(v) if hi else 4
        v += [r.randint(0, 49) for _ in range(r.randint(min(room, max(lo - len(v), 0)), room))]
        r.shuffle(v)
        return v
    return s, value


def make_contains(r):
    s = {'type': 'array', 'contains': {'type': 'integer', 'minimum': 50}}
    if r.random() < 0.7:
        s['items'] = {'type': 'integer', 'minimum': 0, 'maximum': 99}
    if r.random() < 0.5:
        return make_counted(r, s)
    lo, hi = r.choice([(0, None), (2, None), (0, 1), (0, 4), (3, 3)])
    if lo:
        s['minItems'] = lo
    if hi:
        s['maxItems'] = hi

    def value(r):
        v = [r.randint(0, 99) for _ in range(r.randint(max(lo, 1), hi or 4) - 1)]
        v.insert(r.randint(0, len(v)), r.randint(50, 99))
        return v
    return s, value


def make_not(r):
    lo = r.randint(-3, 3)
    return r.choice([
        ({'type': 'string', 'not': {'enum': ['a', 'ab', '', '\u00e9', 7]}}, lambda r: r.choice(['b', 'abc', 'aa', '\u00e9\u00e9', '\u20ac', '"'])),
        ({'type': 'integer', 'minimum': lo, 'not': {'enum': [lo, lo + 2, float(lo + 5)]}}, lambda r: lo + r.choice([1, 3, 4, 6, 70])),
        ({'type': ['integer', 'boolean'], 'not': {'const': True}}, lambda r: r.choice([0, 12, False])),
        ({'not': {'type': ['string', 'object', 'array']}}, lambda r: r.choice([1.5, None, False])),
        ({'enum': ['x', 'y', 3], 'not': {'const': 'y'}}, lambda r: r.choice(['x', 3])),
        ({'type': 'integer', 'multipleOf': 5, 'not': {'anyOf': [{'minimum': 30}, {'maximum': lo}]}}, lambda r: 5 * r.randint(1, 5)),
        ({'type': 'object', 'properties': {'a': {'type': 'integer'}, 'b': {'type': 'null'}}, 'not': {'required': ['a']}},
         lambda r: r.choice([{}, {'b': None}])),
        ({'type': 'object', 'properties': {'a': {'enum': [1, 2, 3]}}, 'not': {'properties': {'a': {'const': 2}}, 'required': ['a']}},
         lambda r: r.choice([{}, {'a': 1}, {'a': 3}])),
        ({'type': 'array', 'items': {'type': 'integer'}, 'not': {'maxItems': 1}}, lambda r: [1] * r.randint(2, 4)),
    ])


def make_pattern_members(r):
    s = {'type': 'object', 'patternProperties': {'^[a-z]{1,3}_?$': {'type': 'integer', 'minimum': 3}}}
    if r.random() < 0.7:
        s['additionalProperties'] = False
    if r.random() < 0.3:
        s['minProperties'] = 1
    if r.random() < 0.3:
        s['maxProperties'] = 3
    return s, lambda r: {k: r.randint(3, 99) for k in r.sample(['a', 'bc_', 'xyz', 'q'], r.randint(1, 3))}


def make_if(r):
    s = {'type': 'object', 'properties': {'k': {'enum': ['x', 'y', 'z']}, 'v': {'type': 'integer'}, 'w': {'type': 'null'}},
         'if': {'properties': {'k': {'const': 'x'}}, 'required': ['k']}, 'then': {'required': ['v']}, 'else': {'properties': {'v': False}}}
    if r.random() < 0.5:
        s['required'] = ['k']
    if r.random() < 0.5:
        del s['else']
    if r.random() < 0.5:
        s['additionalProperties'] = False

    def value(r):
        v = {'k': r.choice('xyz')} if 'required' in s or r.random() < 0.7 else {}
        if v.get('k') == 'x' or ('else' not in s and r.random() < 0.5):
            v['v'] = r.randint(0, 9)
        return dict(v, **({'w': None} if r.random() < 0.5 else {}))
    return s, value


def make_dependent(r):
    return r.choice([
        ({'type': 'object', 'properties': {'a': {'type': 'integer'}, 'b': {'type': 'integer'}, 'c': {'type': 'integer'}},
          'dependentRequired': {'a': ['b'], 'c': ['a', 'b']}}, lambda r: r.choice([{}, {'b': 1}, {'a': 1, 'b': 2}, {'a': 1, 'b': 2, 'c': 3}])),
        ({'type': 'object', 'properties': {'a': {'type': 'integer'}, 'b': {'type': 'integer'}},
          'dependentSchemas': {'a': {'properties': {'b': {'minimum': 5}}, 'required': ['b']}}}, lambda r: r.choice([{}, {'b': 1}, {'a': 1, 'b': 7}])),
    ])


def make_enum(r):
    values = r.sample(['a', 'ab', 'abc', 'b"', '\u00e9', 1, -7, 2.5, None, True, [], {}, [1, 'x'], {'k': [None]}, 'x\n'], r.randint(1, 6))
    if len(values) == 1 and r.random() < 0.7:
        return {'const': values[0]}, lambda r: values[0]
    return {'enum': values}, lambda r: r.choice(values)


def make_any(r, depth):
    subs = [make(r, depth + 1) for _ in range(r.randint(1, 3))]
    return {'anyOf': [s[0] for s in subs]}, lambda r: r.choice(subs)[1](r)


def make_one(r, depth):
    return ({'oneOf': [{'type': 'object', 'properties': {'kind': {'const': k}, 'v': {'type': t}}, 'required': ['kind', 'v'],
                        'additionalProperties': False} for k, t in (('i', 'integer'), ('s', 'string'))]},
            lambda r: r.choice([{'kind': 'i', 'v': 7}, {'kind': 's', 'v': word(r, 0, 3)}]))


def make_all(r, depth):
    lo = r.randint(-5, 5)
    return r.choice([
        ({'allOf': [{'type': 'integer', 'minimum': lo}, {'maximum': lo + 20, 'type': ['integer', 'string']}]}, lambda r: lo + r.randint(0, 20)),
        ({'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': ['a'],
          'allOf': [{'properties': {'a': {'minimum': 3}, 'b': {'type': 'null'}}, 'additionalProperties': False, 'required': ['b']}]},
         lambda r: {'a': r.randint(3, 9), 'b': None}),
        ({'anyOf': [{'minLength': 2, 'type': 'string'}, {'type': 'null'}], 'allOf': [{'type': ['string', 'null'], 'maxLength': 4}]},
         lambda r: r.choice([None, word(r, 2, 4)])),
    ])


def make_tree(r, depth):
    s = {'$ref': '#/$defs/tree'}
    tree_used[0] = True

    def value(r, left=3):
        if left == 0 or r.random() < 0.3:
            return {'v': r.randint(0, 9)}
        return {'v': 1, 'c': [value(r, left - 1) for _ in range(r.randint(0, 2))]}
    return s, value


tree_used = [False]
TREE = {'type': 'object', 'properties': {'v': {'type': 'integer', 'minimum': 0, 'maximum': 9},
                                         'c': {'type': 'array', 'items': {'$ref': '#/$defs/tree'}, 'maxItems': 3}},
        'required': ['v'], 'additionalProperties': False}


def make_free(r, depth):
    return r.choice([
        ({}, lambda r: r.choice([1, 'x', None, [True, {'k': []}], {'a': {'b': -1.5}}])),
        (True, lambda r: [[], {}, '\u20ac']),
        ({'type': 'object'}, lambda r: {'k': [1, {}], 'l': None}),
        ({'type': ['integer', 'null', 'boolean']}, lambda r: r.choice([0, None, False])),
    ])


def make(r, depth=0):
    leaves = [make_string, make_integer, make_number, make_enum, make_multiple, make_step, make_names, make_unique, make_contains, make_not, make_if, make_dependent, make_pattern_members]
    if depth > 2 or r.random() < 0.45:
        return r.choice(leaves)(r)
    return r.choice([make_array, make_object, make_object, make_any, make_one, make_all, make_tree, make_free])(r, depth)


def write(r, v):
    form = r.choice([{}, {'separators': (',', ':')}, {'indent': 2}, {'indent': 1}])
    return json.dumps(v, ensure_ascii=False, **form)


def damage(r, text):
    """The text with something changed; it may still be valid."""
    i, k = r.randrange(len(text)), r.random()
    if k < 0.3:
        return text[:i] + text[i + 1:]
    if k < 0.6:
        return text[:i] + r.choice('0123456789.-"{}[],:ae tnul\\') + text[i:]
    return text[:i] + r.choice('0123456789.-"{}[],:ae tnul') + text[i + 1:]


CHECK = jsonschema.FormatChecker(formats=['date', 'uuid', 'ipv4'])


class Case:
    def __init__(self, r):
        tree_used[0] = False
        self.schema, self.value = make(r)
        if tree_used[0]:
            self.schema = dict(self.schema, **{'$defs': {'tree': TREE}})
        v = self.value(r)
        self.check = jsonschema.Draft202012Validator(self.schema, format_checker=CHECK)
        self.good = [write(r, v)]
        self.damaged = [damage(r, self.good[0]) for _ in range(3)]
        self.seed = r.getrandbits(31)

    def question(self):
        return {'schema': self.schema, 'texts': self.good + self.damaged, 'samples': 2, 'seed': self.seed}

    def valid(self, text):
        try:
            return self.check.is_valid(json.loads(text))
        except ValueError:
            return False

    def judge(self, answer):
        """Complaints about an answer."""
        if 'error' in answer:
            return ['refused: ' + answer['error']]
        bad = ['rejects %r' % t for t, a in zip(self.good, answer['accepted']) if not a]
        bad += ['accepts %r' % t for t, a in zip(self.damaged, answer['accepted'][1:]) if a and not self.valid(t)]
        return bad + ['makes %r' % t for t in answer['samples'] if not self.valid(t)]


def test_random_schemas():
    """Prints its seed; GRAMMAR_SEED and GRAMMAR_PAIRS choose others."""
    r = random.Random(SEED)
    cases = [Case(r) for _ in range(PAIRS)]
    for c in cases:  # the maker of values is itself checked
        assert c.valid(c.good[0]), (c.schema, c.good[0])
    answers = ours([c.question() for c in cases])
    wrong = ['%s\n    %s' % (json.dumps(c.schema), b) for c, a in zip(cases, answers) for b in c.judge(a)[:2]]
    samples = sum(len(a.get('samples', ())) for a in answers)
    accepted = sum(sum(a.get('accepted', [])[1:]) for a in answers)
    print('seed %d: %d schemas, %d texts made and %d damaged ones accepted, all valid' % (SEED, len(cases), samples, accepted))
    assert not wrong, 'seed %d: %d wrong\n%s' % (SEED, len(wrong), '\n'.join(wrong[:8]))
    assert samples > PAIRS and accepted > PAIRS / 50, 'the test has become blind'


def test_patterns_like_re():
    """Random texts against random expressions: the automaton and re.search agree."""
    r = random.Random(SEED + 1)
    atoms = ['a', 'b', '[ab]', '[^a]', '.', '\\d', '(?:ab|b)', '(a)', '(?:c?)', '\\w', '[a-c]']
    questions, texts = [], []
    for _ in range(600):
        body = '|'.join(''.join(r.choice(atoms) + r.choice(['', '', '*', '+', '?', '{2}', '{1,3}', '{2,}', '*?'])
                                for _ in range(r.randint(0, 4))) for _ in range(r.randint(1, 3)))
        pattern = r.choice(['%s', '^(?:%s)$', '^(?:%s)', '(?:%s)$']) % body
        tries = [''.join(r.choice('abc1') for _ in range(r.randint(0, 6))) for _ in range(12)]
        questions.append({'schema': {'type': 'string', 'pattern': pattern}, 'texts': [json.dumps(t) for t in tries]})
        texts.append(tries)
    for q, tries, a in zip(questions, texts, ours(questions)):
        pattern = q['schema']['pattern']
        assert a.get('accepted') == [re.search(pattern, t) is not None for t in tries], (pattern, tries, a)


@pytest.mark.parametrize('schema,words', [
    ({'type': 'strin'}, 'unknown type'), ({'not': {}}, 'no text at all'), ({'type': 'array', 'uniqueItems': True}, 'uniqueItems'),
    ({'type': 'array', 'items': {'enum': list(range(9))}, 'uniqueItems': True}, 'at most 8'), ({'type': 'integer', 'multipleOf': 101}, 'multipleOf'),
    ({'type': 'number', 'multipleOf': 0.3}, 'multipleOf'), ({'type': 'number', 'multipleOf': 0.0001}, 'multipleOf'), ({'type': 'number', 'multipleOf': 2.5}, 'multipleOf'),
    ({'type': 'number', 'multipleOf': 0.01, 'minimum': 1e30}, 'steps'), ({'type': 'integer', 'multipleOf': 0}, 'multipleOf'), ({'type': 'integer', 'multipleOf': 'x'}, 'multipleOf'),
    ({'type': 'object', 'patternProperties': {'^a': {}, 'b$': {'type': 'null'}}}, 'one pattern'),
    ({'type': 'object', 'properties': {'a': True}, 'patternProperties': {'^a': {}}}, 'together with properties'),
    ({'type': 'object', 'additionalProperties': True, 'patternProperties': {'^a': {}}}, 'together with additional'), ({'patternProperties': 5}, 'must be an object'), ({'not': 5}, 'must be an object'),
    ({'not': {'pattern': 'a'}}, "'pattern' under 'not'"), ({'not': {'type': 'integer'}}, "type integer"), ({'not': {'const': 2.5}}, 'number'),
    ({'type': 'array', 'contains': {'type': 'null'}, 'items': {'type': 'string'}}, 'no text at all'), ({'type': 'array', 'contains': {'pattern': 'a'}, 'maxContains': 2}, "under 'not'"),
    ({'type': 'array', 'items': {'type': 'integer'}, 'contains': {'const': 1}, 'minContains': 3, 'maxContains': 2}, 'no text at all'), ({'type': 'array', 'contains': {'const': 1}, 'minContains': 2001}, 'above 2000'),
    ({'type': 'object', 'properties': {'a': True}, 'additionalProperties': True, 'propertyNames': {'pattern': 'a'}}, 'together with properties'),
    ({'type': 'object', 'required': ['a'], 'propertyNames': {'pattern': 'a'}}, 'together with required'), ({'propertyNames': False}, 'must be a schema'),
    ({'type': 'object', 'propertyNames': {'enum': ['a']}, 'required': ['b']}, 'is required'), ({'type': 'object', 'propertyNames': {'$ref': '#/nowhere'}}, 'leads nowhere'),
    ({'type': 'array', 'contains': {'const': 1}, 'prefixItems': [True]}, 'prefixItems'),
    ({'type': 'string', 'minLength': 2, 'not': {'const': 'ab'}}, 'together with'), ({'if': {'pattern': 'x'}, 'then': {'maxLength': 3}}, "'pattern' under"),
    ({'not': {'not': {'not': {'$ref': '#'}}}}, 'nested|deeper|no text|left recursion|together'), ({'dependentRequired': 5}, 'must be an object'), ({'type': 'string', 'pattern': '(?=a)'}, 'look-around'),
    ({'type': 'string', 'pattern': '\\bx'}, 'word borders'), ({'type': 'string', 'pattern': 'a{3,2}'}, 'smaller number first'),
    ({'type': 'string', 'pattern': 'a', 'minLength': 2}, 'together with'), ({'$ref': '#/$defs/x'}, 'leads nowhere'),
    ({'$ref': 'http://x/y'}, 'same schema'), ({'$ref': '#'}, 'left recursion|no text'), ({'enum': []}, 'not empty'),
    ({'oneOf': [{'type': 'integer'}, {'type': 'number'}]}, 'exclude each other'),
    ({'type': 'object', 'properties': {'a': False}, 'required': ['a']}, 'no text at all'),
    ({'type': 'object', 'properties': {}, 'required': ['a'], 'additionalProperties': False}, 'is required'),
    ({'allOf': [{'type': 'string'}, {'type': 'integer'}]}, 'no text at all'),
    ({'$defs': {'a': {'allOf': [{'$ref': '#/$defs/a'}]}}, '$ref': '#/$defs/a'}, 'nested|together|left recursion|no text|itself'),
    ({'type': 'object', 'properties': {'next': {'$ref': '#'}}, 'required': ['next']}, 'no text at all'),
    ({'type': 'object', 'additionalProperties': True, 'minProperties': 4}, 'minProperties'),
    ({'enum': list(range(200000))}, 'too large|limit'), ([], 'must be an object'),
])
def test_refused_schemas(schema, words):
    a = accepts('1', schema=schema)
    assert re.search(words, a.get('error', str(a))), a


def test_decimal_steps():
    """Against decimal arithmetic: money, and what bounds do to it."""
    for step in ('0.01', '0.1', '0.05', '0.2', '0.001', '0.02'):
        for lo, hi in ((None, None), ('0.3', '12.29'), ('-1.05', '1.05'), ('19.99', '19.99'), ('-3', '-2.5')):
            schema = {'type': 'number', 'multipleOf': float(step)}
            schema.update({'minimum': float(lo), 'maximum': float(hi)} if lo else {})
            r = random.Random(step + str(lo))
            texts = ['%d%s%s' % (r.randint(-4, 13), r.choice(['', '.']), r.randint(0, 1200)) for _ in range(300)]
            texts += ['%d.%0*d' % (r.randint(-4, 20), places, r.randint(0, 10 ** places - 1)) for places in (1, 2, 3, 4) for _ in range(200)]
            texts += [x for x in (lo, hi, '-0', '-0.0', '0', '0.00', '.5', '5.', '1e1', '01', '19.99') if x]
            a = ours([{'schema': schema, 'texts': texts}])[0]
            if lo == '19.99' and step not in ('0.01', '0.001'):
                assert 'no text at all' in a['error']
                continue
            for t, ok in zip(texts, a['accepted']):
                if not re.fullmatch(r'-?(0|[1-9][0-9]*)(\.[0-9]{1,%d})?' % (len(step) - 2), t) or re.fullmatch(r'-0(\.0+)?', t):
                    want = False  # another form of it can come out
                else:
                    d = decimal.Decimal(t)
                    want = d % decimal.Decimal(step) == 0 and (lo is None or decimal.Decimal(lo) <= d <= decimal.Decimal(hi))
                assert ok == want, (schema, t, ok)


def test_bombs_are_refused():
    """Schemas whose negation, or whose dependencies, would multiply: refused with words, in no time."""
    levels = {'d%d' % i: {'allOf': [{'$ref': '#/$defs/d%d' % (i + 1)}] * 9} for i in range(6)}
    levels['d6'] = {'title': 'nothing'}
    a = accepts('1', schema={'$defs': levels, 'type': 'string', 'not': {'$ref': '#/$defs/d0'}})
    assert re.search('too much', a.get('error', str(a))), a
    names = ['k%d' % i for i in range(40)]
    a = accepts('{}', schema={'type': 'object', 'properties': {k: True for k in names}, 'dependentRequired': {k: [names[0]] for k in names}})
    assert re.search('too many|limit|more than', a.get('error', str(a))), a


def test_refused_by_place():
    a = accepts('1', schema={'properties': {'a/b': {'items': {'type': 'array', 'unevaluatedItems': False}}}})
    assert '/properties/a/b/items' in a['error'], a


def test_closed_unless_said_otherwise():
    """Two readings that are narrower than the draft, on purpose."""
    schema = {'properties': {'a': {'type': 'integer'}}}
    assert ours([{'schema': schema, 'texts': ['{"a":1}', '{"a":1,"b":2}', '[]']}])[0]['accepted'] == [True, False, False]
    schema['additionalProperties'] = True
    assert ours([{'schema': schema, 'texts': ['{"a":1}', '{"a":1,"b":2}']}])[0]['accepted'] == [True, True]


GBNF = [
    ('root ::= "a"', ['a'], ['', 'aa', 'b']),
    ('root ::= "a" | "b" "c"', ['a', 'bc'], ['b', 'ac']),
    ('root ::= [a-c]+ [^a-c\\n] . ', ['abcx\n', 'a\u00e9\u20ac'], ['abc', 'ax', 'a\nx']),
    ('root ::= x{2,3} # comment\n\nx ::= "y" | "z"', ['yz', 'zzz'], ['y', 'yyyy']),
    ('root ::= "a"{2} "b"{,2} "c"{1,}', ['aac', 'aabbccc'], ['ac', 'aabbbc', 'aab']),
    ('root ::= ("ab" |\n "cd"\n)* "\\x41\\u00e9\\U0001F600\\n\\t\\"\\\\"', ['A\u00e9\U0001f600\n\t"\\', 'abcdabA\u00e9\U0001f600\n\t"\\'], ['ab']),
    ('root ::= item ("," item)*\nitem ::= "[" root? "]" | [0-9]', ['1', '[1,[2,[]]],3'], ['[', '1,', '[1']),
    ('root ::= "" | "x" root', ['', 'xxx'], ['y']),
    ('root ::= ("a"?){0,4} "b"', ['b', 'aaaab'], ['aaaaab']),
    ('root ::= (("a"*)*)+ "b"', ['b', 'aab'], ['a']),
    ('a-b ::= "q"\nroot ::= a-b a-b', ['qq'], ['q']),
    ('root ::= [a\\]\\-\\^-]+', ['a]-^'], ['b']),
]


@pytest.mark.parametrize('text,good,bad', GBNF)
def test_gbnf(text, good, bad):
    a = ours([{'gbnf': text, 'texts': good + bad}])[0]
    assert a.get('accepted') == [True] * len(good) + [False] * len(bad), a


@pytest.mark.parametrize('text,words', [
    ('root ::= root "a" | "b"', 'left recursion'), ('root ::= x\nx ::= "a"? root | "b"', 'left recursion'),
    ('root ::= (root)* "b"', 'left recursion'), ('root ::= x', 'line 1, column 10.*not defined'), ('x ::= "a"', "no rule 'root'"),
    ('', "no rule 'root'"), ('root ::= "a', 'ends inside'), ('root ::= [a', 'ends inside'), ('root ::= ("a"', 'not closed'),
    ('root ::= "a" )', 'belongs to no rule'), ('root = "a"', '::='), ('root ::= "a"{3,2}', 'less than its least'),
    ('root ::= "a"{x}', 'repetition is written'), ('root ::= "a"{99999999}', '1000000'), ('root ::= "\\q"', 'unknown escape'),
    ('root ::= [z-a]', 'ends before'), ('root ::= "\\uD800"', 'number of a character'), ('root ::= "a"\nroot ::= "b"', 'twice'),
    ('root ::= ' + '(' * 300 + '"a"' + ')' * 300, 'deeper'), ('root ::= ("a"?){5000}', 'limit'), ('root ::= "a" root', 'no text at all'),
    ('root ::= ' + '"abcdefghijkl" ' * 17000, 'too large|limit'), ('root ::= "\\xff', 'ends inside'),
])
def test_refused_gbnf(text, words):
    a = accepts('x', gbnf=text)
    assert re.search(words, a.get('error', str(a))), a


def test_long_counts_cost_nothing():
    """Counters, not copies."""
    a = ours([{'schema': {'type': 'array', 'items': {'type': 'string', 'maxLength': 100000}, 'maxItems': 100000}, 'texts': ['["a"]']}])[0]
    assert a['accepted'] == [True] and a['bytes'] < 4000
    text = json.dumps('x' * 3000)
    a = ours([{'schema': {'type': 'string', 'minLength': 3000, 'maxLength': 3000}, 'texts': [text, json.dumps('x' * 2999)]}])[0]
    assert a['accepted'] == [True, False]


def test_nesting_goes_deep():
    schema = {'$defs': {'l': {'type': 'array', 'items': {'$ref': '#/$defs/l'}}}, '$ref': '#/$defs/l'}
    a = ours([{'schema': schema, 'texts': ['[' * 600 + ']' * 600, '[' * 600 + ']' * 599]}])[0]
    assert a['accepted'] == [True, False]
